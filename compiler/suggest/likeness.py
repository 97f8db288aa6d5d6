"""Compare names by their letters and words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from xpc.compiler.suggest import tables
from xpc.grammar.nearest import letters
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from difflib import SequenceMatcher

LETTERS = 0.8
"""The least share of equal letters with which a name counts as a typo."""


@record
class Known:
    """One name of a setting: its letters without separators, their bit mask (`alphabet_of`), and its words.

    `own` is true if xpc itself has this name. `penalty` is subtracted from the similarity for settings of one method,
    or settings deep inside a block.
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
    """The words of a name with synonyms replaced, in order, without repetitions."""
    same = tables.synonyms()
    typed = " ".join(same.get(one, one) for one in parts(name))
    return tuple(dict.fromkeys(typed.split()))


def canonical(name: str) -> str:
    """The letters of a name with synonyms replaced: the same for `moe_aux_loss_coef` and `moe aux loss coefficient`."""
    return letters(" ".join(words(name[:80])))


@cache
def parts(name: str) -> tuple[str, ...]:
    """The words of a name as typed."""
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
    """The weight of a word in a comparison."""
    return 0.25 if word in tables.idle_words() else 1.0


def typo_of(name: str, names: Iterable[str]) -> str | None:
    """The name of which `name` is a typo; None if no name is near enough, or two are equally near."""
    ranked = sorted(((letter_likeness(letters(name[:80]), letters(one)), one) for one in set(names)), reverse=True)
    near = [one for like, one in ranked if like >= 0.8 and like == ranked[0][0]]
    return near[0] if len(near) == 1 else None


def letter_likeness(one: str, other: str) -> float:
    """The similarity of two names by their letters. A typo changes only few letters."""
    short, long = sorted((len(one), len(other)))
    if short < 3 or 2 * short < LETTERS * (short + long):
        return 0.0
    matcher = _matcher(one)
    matcher.set_seq1(other)
    if matcher.real_quick_ratio() < LETTERS or matcher.quick_ratio() < LETTERS:
        return 0.0
    ratio = matcher.ratio()
    if one[0] == other[0] and sorted(one) == sorted(other):
        return 0.97  # two letters changed places
    return 0.95 * ratio if ratio >= LETTERS else 0.0


def may_be_near(typed: str, alphabet: int, one: Known) -> bool:
    """Whether enough letters can be equal, estimated from the letters that only one of the two names has. `alphabet` is
    the bit mask of `typed`.
    """
    first, second = len(typed), len(one.letters)
    least = LETTERS * (first + second) / 2
    if first < least or second < least:
        return False
    both = alphabet & one.alphabet
    return first - (alphabet ^ both).bit_count() >= least and second - (one.alphabet ^ both).bit_count() >= least


def has_another_word(one: tuple[str, ...], other: tuple[str, ...], more: bool = True) -> bool:
    """Whether two similar names differ in a word: `valid_data` is not a typo of `train_data`.

    If `more` is false, an additional word counts as a difference, too, as in `eval_accumulation_steps` for
    `accumulation_steps`.
    """
    first, second = ("".join(part for part in a if part not in b) for a, b in ((one, other), (other, one)))
    return _matched(first, second) < 0.65 if first and second else not more and one != other


def _matched(one: str, other: str) -> float:
    matcher = _matcher(one)
    matcher.set_seq1(other)
    return 1.0 if sorted(one) == sorted(other) else matcher.ratio()


def begins(one: str, other: str) -> bool:
    """Whether a name is an abbreviation of another."""
    return len(one) >= 3 and other.startswith(one)


@cache
def _matcher(one: str) -> SequenceMatcher[str]:
    """A matcher that is prepared for one name, because the preparation is the expensive half of a comparison."""
    from difflib import SequenceMatcher  # takes 5 ms; needed only for a misspelt spec

    return SequenceMatcher(None, "", one, autojunk=False)


def alphabet_of(text: str) -> int:
    """A bit mask of the letters of a text; two letters may share one bit."""
    out = 0
    for c in text:
        out |= 1 << ord(c) % 64
    return out
