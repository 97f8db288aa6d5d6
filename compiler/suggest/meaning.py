"""Guess the intended setting for an unknown name, by its words, its letters and its place.

A setting is known by its own name, by the trainer arguments that it decides and their names in other versions
(`renames` of the stacks), by the keys of accelerate and DeepSpeed that it decides, and by the names that other tools
use (other_names.toml). Loaded only for an unknown name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from xpc.compiler import stacks
from xpc.compiler.language import schema
from xpc.compiler.suggest import tables
from xpc.compiler.suggest.no_equivalent import own_reason
from xpc.grammar.nearest import another_number
from xpc.grammar.nearest import letters as letters
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from difflib import SequenceMatcher

ENOUGH = 0.62
"""Minimum similarity of a suggestion; 1 is the same letters."""
SAME = 0.99
"""Similarity of the same words."""
LETTERS = 0.8
"""Minimum share of equal letters in a typo."""
OWN = 0.15
"""Bonus for a typo of the language's own names."""
NEVER_LEGAL = ("strategy.activation_checkpointing",)
"""Settings that exist only to be refused."""


@record
class Meaning:
    """A setting by its path (`train` is the first line of a spec), the value that the name implies, and the similarity.

    `own` is true if xpc or a trainer argument has exactly this name.
    """

    path: str
    value: str = ""
    likeness: float = 1.0
    own: bool = False


@record
class Known:
    """One name of a setting: its letters without separators, their bit mask (`_alphabet`), and its words.

    `own` is true for xpc's own name; `penalty` is subtracted for settings of one method, or settings deep inside a
    block.
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
    typed = " ".join(same.get(one, one) for one in _parts(name))
    return tuple(dict.fromkeys(typed.split()))


@cache
def _parts(name: str) -> tuple[str, ...]:
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


def word_likeness(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """The similarity of a typed name and a known one by shared words, from 0 to 1.

    It is 0 if the known name lacks a word of some weight.
    """
    shared = 0.0
    for word in one:
        if word in other:
            shared += weight(word)
        elif weight(word) == 1.0 and _typos_of(word).isdisjoint(other):
            return 0.0
    if not shared:
        return 0.0
    return 2 * shared / (sum(map(weight, one)) + sum(map(weight, other)))


@cache
def _typos_of(word: str) -> frozenset[str]:
    """The known words of which a word is probably a typo."""
    alphabet = _alphabet(word)
    return frozenset(
        one.letters
        for one in _vocabulary()
        if _may_be_near(word, alphabet, one) and _letter_likeness(word, one.letters) >= 0.8
    )


@cache
def _vocabulary() -> tuple[Known, ...]:
    phrases = {phrase for row in schema.TABLE for _, phrase in _choices(row)}
    found = {word for one in known() for word in one.words} | {word for phrase in phrases for word in words(phrase)}
    return tuple(Known(word, _alphabet(word), (), "", "", False, 0.0) for word in found)


@cache
def known() -> tuple[Known, ...]:
    """Every name of every setting, xpc's own names first."""
    from xpc.compiler.suggest import extra_form as passing

    out: dict[tuple[str, str, str], Known] = {}

    def add(name: str, path: str, value: str = "", own: bool = False, argument: bool = False) -> None:
        row = schema.BY_PATH.get(path)
        penalty = 0.0 if row is None else 0.03 * bool(row.methods) + 0.04 * (path.count(".") > 1)
        typed = letters(name)
        one = Known(typed, _alphabet(typed), words(name), path, value, own, penalty, argument, _parts(name))
        out.setdefault((typed, path, value), one)

    for row in schema.TABLE:
        if row.path not in NEVER_LEGAL and not row.path.startswith("train."):
            add(row.name, row.path, own=not row.inner)
            if row.path.replace(".", "_") not in passing.names():  # `data_seed` is the trainer's, not `data.seed`
                add(row.path, row.path, argument=True)
    for clause in schema.CLAUSES:
        if clause not in schema.BY_PATH and clause != "train":
            add(clause, clause, own=True)
    for name, path in schema.bare_choices().items():
        add(name, path, name, own=True)
    for row in schema.TABLE:
        for argument in row.args if row.path not in NEVER_LEGAL else ():
            add(argument, row.path, argument=True)
    for typed, phrases in tables.other_names().items():
        path, _, value = typed.partition("=")
        for phrase in phrases if path in (*schema.BY_PATH, "train", "data.take", "data.share", "data.columns") else ():
            add(phrase, path, value)
    for name, path in _target_names():
        add(name, path)
    for path, choices in tables.choices().items():
        if schema.BY_PATH[path].bare and path != "track":
            for choice, phrases in choices.items():
                for phrase in phrases:
                    if len(letters(phrase)) > 3 and phrase not in ("auto", "none", "full", "default", "true", "false"):
                        add(phrase, path, choice)
    return tuple(out.values())


def _target_names() -> Iterator[tuple[str, str]]:
    """Names in other versions, and keys of accelerate and DeepSpeed, each with the setting that decides it."""
    from xpc.compiler.language.extras import OWNED, owner

    for stack in stacks.every():
        for old in stack.renamed:
            path = owner("trl", stack.rename(old) or "")
            if path is not None:
                yield old, path
    for escape in ("accelerate", "deepspeed"):
        for name, path in OWNED[escape].items():
            yield name.rpartition(".")[2], path


@cache
def meaning(name: str, clause: str | None = None, exact: bool = False, valued: bool = False) -> Meaning | None:
    """The most likely setting for a name, or None.

    In a clause, the clause's own settings win ties, and the name is also tried with the clause in front of it:
    `interval` in `save` is `save_interval`. With `exact`, only the same words or letters are accepted; with `valued`,
    clauses are excluded.
    """
    name = name[:80]
    ways = [name] if clause is None else [name, f"{clause} {name}"]
    best: Meaning | None = None
    rank = 0.0
    for number, way in enumerate(ways):
        typed, own = letters(way), words(way)
        name_words = frozenset(words(name))
        candidates = _candidates(typed, own, exact)
        begun = {one.path for one in candidates if one.own and _begins(typed, one.letters)}
        for one in candidates:
            inside = clause is not None and (one.path == clause or one.path.startswith(clause + "."))
            if valued and one.own and one.path not in schema.BY_PATH:
                continue
            if typed != one.letters and one.path in schema.BY_PATH and schema.BY_PATH[one.path].pending:
                continue  # never suggest what cannot be written
            if number and (not inside or name_words.isdisjoint(one.words)):
                continue  # if the clause is named, suggest only its settings, by one word of their names
            like = 1.0 if typed == one.letters else 0.99 * word_likeness(own, one.words)
            if like < SAME and not exact:
                typo = _letter_likeness(typed, one.letters)
                typo = typo if typo and not _has_another_word(_parts(way), one.parts) else 0.0
                like = max(like, typo, 0.8 * (one.own and begun == {one.path}))
            if like < (SAME if exact else ENOUGH):
                continue
            score = (
                like
                + 0.2 * (like >= SAME)
                + 0.05 * (typed == one.letters)  # more than a penalty: no synonym of another setting is nearer
                + 0.15 * inside
                + (0.04 if like >= SAME else OWN) * one.own
                + 0.01 * bool(one.value)
                - 0.02 * number
                - one.penalty
            )
            if score > rank:
                best, rank = Meaning(one.path, one.value, like, one.own or one.argument), score
    return best


def _candidates(typed: str, own: tuple[str, ...], exact: bool) -> list[Known]:
    """The known names that can be similar at all, in their order: those with the same letters, with a common word, or
    with mostly the same letters.
    """
    names, with_word, of_length = _index()
    alphabet = _alphabet(typed)
    found = {number for number in of_length.get(len(typed), ()) if names[number].letters == typed}
    found.update(number for word in own for number in with_word.get(word, ()))
    if not exact:
        for length, numbers in of_length.items():
            if length > len(typed):
                found.update(one for one in numbers if names[one].own and _begins(typed, names[one].letters))
            if 2 * min(length, len(typed)) >= LETTERS * (length + len(typed)):
                found.update(one for one in numbers if _may_be_near(typed, alphabet, names[one]))
    return [names[number] for number in sorted(found)]


@cache
def _index() -> tuple[tuple[Known, ...], dict[str, list[int]], dict[int, list[int]]]:
    """The known names, and their indices by word and by length."""
    with_word: dict[str, list[int]] = {}
    of_length: dict[int, list[int]] = {}
    for number, one in enumerate(known()):
        of_length.setdefault(len(one.letters), []).append(number)
        for word in one.words:
            with_word.setdefault(word, []).append(number)
    return known(), with_word, of_length


def _with_all_words(name: str) -> str | None:
    """The one name that `extra` passes on and that has all words of a name, such as `pad_to_multiple_of` for
    `pad_to_multiple`; or None.
    """
    from xpc.compiler.suggest import extra_form as passing

    typed = frozenset(words(name[:80]))
    if sum(map(weight, typed)) < 2:
        return None
    found = [one for one in passing.names() if typed < frozenset(words(one))]
    least = min((len(words(one)) for one in found), default=0)
    nearest = [one for one in found if len(words(one)) == least]
    return nearest[0] if len(nearest) == 1 else None


def nearest_other_name(name: str) -> tuple[str | None, float]:
    """The nearest name that `extra` passes on or that has no equivalent, or None; and the similarity."""
    from xpc.compiler.suggest import extra_form as passing
    from xpc.compiler.suggest import no_equivalent as without

    typed = letters(name[:80])
    alphabet, best, rank = _alphabet(typed), None, 0.84
    for one, known_choice in _other_names():
        like = _letter_likeness(typed, known_choice.letters) if _may_be_near(typed, alphabet, known_choice) else 0.0
        if (
            like > rank
            and not _has_another_word(_parts(name[:80]), known_choice.parts, False)
            and (one in passing.names() or without.reason(one) is not None)
        ):
            best, rank = one, like
    return (_with_all_words(name), 0.85) if best is None else (best, rank)


@cache
def _other_names() -> tuple[tuple[str, Known], ...]:
    from xpc.compiler.suggest import extra_form as passing
    from xpc.compiler.suggest import no_equivalent as without

    known_choice = (*((one, letters(one)) for one in passing.names()), *((one, one) for one in without.reasons()))
    return tuple(
        (one, Known(typed, _alphabet(typed), (), "", "", False, 0.0, False, _parts(one))) for one, typed in known_choice
    )


@cache
def _matcher(one: str) -> SequenceMatcher[str]:
    """A matcher prepared for one name, which is the expensive half of a comparison."""
    from difflib import SequenceMatcher  # takes 5 ms; needed only for a misspelt spec

    return SequenceMatcher(None, "", one, autojunk=False)


def _alphabet(text: str) -> int:
    """A bit mask of the letters of a text; two letters may share one bit."""
    out = 0
    for c in text:
        out |= 1 << ord(c) % 64
    return out


def _may_be_near(typed: str, alphabet: int, one: Known) -> bool:
    """Whether enough letters can be equal, judged by the letters that only one of the two names has."""
    first, second = len(typed), len(one.letters)
    least = LETTERS * (first + second) / 2
    if first < least or second < least:
        return False
    both = alphabet & one.alphabet
    return first - (alphabet ^ both).bit_count() >= least and second - (one.alphabet ^ both).bit_count() >= least


def _letter_likeness(one: str, other: str) -> float:
    """The similarity by letters; a typo changes only few of them."""
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


def typo_of(name: str, names: Iterable[str]) -> str | None:
    """The one name of which another is a typo; None if no name is near enough, or two are equally near."""
    ranked = sorted(((_letter_likeness(letters(name[:80]), letters(one)), one) for one in set(names)), reverse=True)
    near = [one for like, one in ranked if like >= 0.8 and like == ranked[0][0]]
    return near[0] if len(near) == 1 else None


def _has_another_word(one: tuple[str, ...], other: tuple[str, ...], more: bool = True) -> bool:
    """Whether two similar names differ in a word: `valid_data` is not a typo of `train_data`.

    If `more` is false, an additional word also counts as a difference: `accumulation_steps`, `eval_accumulation_steps`.
    """
    first, second = ("".join(part for part in a if part not in b) for a, b in ((one, other), (other, one)))
    return _matched(first, second) < 0.5 if first and second else not more and one != other


def _matched(one: str, other: str) -> float:
    matcher = _matcher(one)
    matcher.set_seq1(other)
    return 1.0 if sorted(one) == sorted(other) else matcher.ratio()


def _begins(one: str, other: str) -> bool:
    """Whether a name is an abbreviation of another."""
    return len(one) >= 3 and other.startswith(one)


def choice(row: schema.Setting, text: str) -> str | None:
    """The choice that another spelling means, or None."""
    text = text[:80]
    typed, own = letters(text), words(text)
    same = known_choice(row, text)
    if same is not None:
        return same  # `llama-3.1` is `llama3.1`, not `llama3`
    if own_reason(f"{row.name} {text}") is not None:
        return None
    inside = {name for name in row.choices if len(name) > 3 and any(c.isdigit() for c in name) and name in typed}
    if len(inside) == 1:
        return inside.pop()  # `ds_config_zero3.json`
    best, rank = None, 0.0
    for name, phrase in _choices(row):
        if another_number(typed, letters(phrase)) or another_number(typed, letters(name)):
            continue
        like = (
            1.0
            if typed == letters(phrase)
            else max(word_likeness(own, words(phrase)), _letter_likeness(typed, letters(phrase)))
        )
        like += 0.04 * (name == phrase)
        if like >= ENOUGH and like > rank:
            best, rank = name, like
    return best


def known_choice(row: schema.Setting, text: str) -> str | None:
    """The choice that `text` is a known other spelling of, or None."""
    typed = letters(text[:80])
    return next((name for name, phrase in _choices(row) if letters(phrase) == typed), None)


@cache
def _choices(row: schema.Setting) -> tuple[tuple[str, str], ...]:
    """All spellings of all choices of a setting."""
    out = [(name, name) for name in row.choices]
    for name, phrases in tables.choices().get(row.path, {}).items():
        out += [(name, phrase) for phrase in phrases]
    if row.path == "optimizer":
        out += [name_words for stack in stacks.every() for name_words in stack.optimizers.items()]
    return tuple((name, phrase) for name, phrase in out if name in row.choices)
