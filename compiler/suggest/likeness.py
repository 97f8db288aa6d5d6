"""Measure the similarity of names by their letters and words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from xpc.compiler.suggest import tables
from xpc.grammar.nearest import letters
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from difflib import SequenceMatcher

LETTERS = 0.8
"""Two names count as misspellings of each other only if the similarity of their letters (from 0 to 1) is at least this.
"""


@record
class KnownName:
    """One name of a setting. `letters` are its letters without separators, `alphabet` is the bit mask of these letters
    (`alphabet_of`), and `words` are its words.

    `own` is true if xpc itself uses this name for the setting. `penalty` is subtracted from the similarity. It makes
    nested settings, and settings that only one method has, less likely.
    """

    letters: str
    alphabet: int
    words: tuple[str, ...]
    path: str
    value: str
    own: bool
    penalty: float
    argument: bool = False
    parts: tuple[str, ...] = ()


@cache
def words(name: str) -> tuple[str, ...]:
    """The words of a name, from left to right, without repetitions. Synonyms are replaced, so that they count
    as equal.
    """
    same = tables.mapped("same")
    typed = " ".join(same.get(one, one) for one in parts(name))
    return tuple(dict.fromkeys(typed.split()))


def canonical(name: str) -> str:
    """Replace the synonyms in a name, and return its letters, so that similar names become equal: `moe_aux_loss_coef`
    and `moe aux loss coefficient`.
    """
    return letters(" ".join(words(name[:80])))


@cache
def parts(name: str) -> tuple[str, ...]:
    """The words of a name, in their original spelling, without replacing synonyms."""
    parts: list[str] = []
    part = ""
    for before, c in zip(" " + name, name):
        if not c.isalnum():
            c = ""
        if part and (not c or (c.isupper() and before.islower())):
            parts.append(part)
            part = ""
        part += c.lower()
    return tuple(one for one in (*parts, part) if one)


def weight(word: str) -> float:
    """How much a word counts when two names are compared. Words such as `use` count little."""
    return 0.25 if word in tables.words_of("idle") else 1.0


def typo_of(name: str, names: Iterable[str]) -> str | None:
    """The name in `names` that `name` probably misspells. None if no name is similar enough, or if two names are
    equally similar.
    """
    ranked = sorted(((letter_likeness(letters(name[:80]), letters(one)), one) for one in set(names)), reverse=True)
    near = [one for like, one in ranked if like >= 0.8 and like == ranked[0][0]]
    return near[0] if len(near) == 1 else None


def letter_likeness(one: str, other: str) -> float:
    """The similarity of two names by their letters, from 0 to 1. It is high if one name misspells the other."""
    short, long = sorted((len(one), len(other)))
    if short < 3 or 2 * short < LETTERS * (short + long):
        return 0.0
    matcher = _matcher(one)
    matcher.set_seq1(other)
    if matcher.real_quick_ratio() < LETTERS or matcher.quick_ratio() < LETTERS:
        return 0.0
    ratio = matcher.ratio()
    if one[0] == other[0] and sorted(one) == sorted(other):
        return 0.97  # the same letters in another order
    return 0.95 * ratio if ratio >= LETTERS else 0.0


def one_mistake(one: str, other: str) -> bool:
    """Whether one typing mistake separates two names: two letters swapped, or one letter missing, additional or
    wrong.
    """
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    short, long = sorted((one, other), key=len)
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    return short[at + 1 :] == long[at + 1 :] or (
        short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    )


def may_be_near(typed: str, alphabet: int, one: KnownName) -> bool:
    """A fast test that excludes most names before the exact comparison: False if two names share too few letters to be
    similar. `alphabet` is the bit mask of the letters of `typed`.
    """
    first, second = len(typed), len(one.letters)
    least = LETTERS * (first + second) / 2
    if first < least or second < least:
        return False
    both = alphabet & one.alphabet
    return first - (alphabet ^ both).bit_count() >= least and second - (one.alphabet ^ both).bit_count() >= least


def has_another_word(one: tuple[str, ...], other: tuple[str, ...], more: bool = True) -> bool:
    """Whether two similar names differ by a word, as `valid_data` and `train_data` do, so that neither is a misspelling
    of the other.

    `more` matters if one name has all words of the other, and further words. If `more` is true, only a further word
    that changes the meaning, such as `min`, makes a difference: `min_response_length` differs from `response_length`.
    If `more` is false, every further word does: `eval_accumulation_steps` differs from `accumulation_steps`.
    """
    first, second = ([part for part in a if part not in b] for a, b in ((one, other), (other, one)))
    if first and second:
        return _matched("".join(first), "".join(second)) < 0.65
    return (not more and one != other) or not tables.words_of("contrary").isdisjoint(words(" ".join(first)))


def _matched(one: str, other: str) -> float:
    matcher = _matcher(one)
    matcher.set_seq1(other)
    return 1.0 if sorted(one) == sorted(other) else matcher.ratio()


def begins(one: str, other: str) -> bool:
    """Whether the name `one` is an abbreviation of `other`, as `grad` is of `gradient`."""
    return len(one) >= 3 and other.startswith(one)


@cache
def _matcher(one: str) -> SequenceMatcher[str]:
    """Prepare a SequenceMatcher for comparisons with the name `one`. The preparation takes half the time of a
    comparison, so the result is cached.
    """
    from difflib import SequenceMatcher  # imported here, because the import takes 5 ms and only a wrong spec needs it

    return SequenceMatcher(None, "", one, autojunk=False)


def alphabet_of(text: str) -> int:
    """A bit mask of the letters of a text. Two letters may share one bit."""
    out = 0
    for c in text:
        out |= 1 << ord(c) % 64
    return out


def likely_modules(target: str, legal: Iterable[str]) -> tuple[str, ...]:
    """The modules that a wrong target of an adapter probably stands for. `legal` are the paths of all modules, and the
    result has only the last part of each path. It is empty if the target is unclear.

    For example, `Q_PROJ` stands for `q_proj`, `q_proj|k_proj` for `q_proj` and `k_proj`, and `self_attn` for every
    module in this part of the model.
    """
    legal = tuple(legal)
    last = tuple(dict.fromkeys(path.rpartition(".")[2] for path in legal))
    out: list[str] = []
    for part in re.split(r"[|,\s]+", re.sub(r"[\^$()*\\]|\.(?=\*)", "", target).strip(" .")):
        if re.search(r"\d", part.rpartition(".")[0]):
            return ()  # `layers.1.*q_proj` names some of the layers
        found = [name for name in last if name.lower() == part.rpartition(".")[2].lower()]
        found = found or _in_part(part.lower(), legal)
        joined = tables.mapped("blocks").get(part.lower().removesuffix("_proj"), "[]")[1:-1].split(", ")
        found = found or [one for one in joined if set(joined) <= set(last)]
        found = found or [name for name in last if name == f"{part.lower()}_proj"]
        near = None if found else typo_of(part, last)
        if not found and near is None:
            return ()
        out += [*found, *([near] if near else [])]
    return tuple(dict.fromkeys(out))


def _in_part(part: str, legal: Iterable[str]) -> list[str]:
    """The names of the modules inside one block of a layer, such as `q_proj` for `self_attn`. `part` is the block's
    name in the model's family, or `attention` or `mlp`, which are accepted for every family. The names are the last
    parts of the paths in `legal`.
    """
    parts_of = tables.mapped("layer_parts")
    names = {part, *(one for one, of in parts_of.items() if of == parts_of.get(part))}
    return [path.rpartition(".")[2] for path in legal if not names.isdisjoint(path.lower().split(".")[:-1])]
