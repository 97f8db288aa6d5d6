"""Guess which setting an unknown name stands for. The guess uses the words of the name, its letters, and the clause
that contains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from operator import ne

from xpc.compiler.language import schema
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.suggest import no_equivalent as without
from xpc.compiler.suggest.known_names import index, known, vocabulary
from xpc.compiler.suggest.likeness import (
    LETTERS,
    KnownName,
    alphabet_of,
    begins,
    has_another_word,
    letter_likeness,
    may_be_near,
    one_mistake,
    parts,
    weight,
    words,
)
from xpc.compiler.suggest.no_equivalent import advice, families, loose_reason, own_reason
from xpc.compiler.suggest.tables import mapped, usual_columns, words_of
from xpc.grammar.nearest import another_number
from xpc.grammar.nearest import letters as letters
from xpc.grammar.record import record

ENOUGH = 0.62
"""A setting is suggested for a name only if the similarity of the two is at least this. The similarity is 1 if the
letters are the same.
"""
SAME = 0.99
"""The similarity of two names that consist of the same words."""
OWN = 0.15
"""A bonus on the similarity of a name and a setting, if the name misspells the setting's own name in xpc and not a name
from another tool.
"""


@record
class Meaning:
    """A setting that a name may stand for. `path` is the path of the setting, or `train` for the first line of a spec.
    `value` is the value that the name implies. `likeness` says how similar the names are.

    `own` is true if xpc itself or a trainer argument has exactly this name.
    """

    path: str
    value: str = ""
    likeness: float = 1.0
    own: bool = False


def word_likeness(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """How similar an unknown name (`one`) and a known name (`other`) are in their words, from 0 to 1.

    The result is 0 if the unknown name has an important word that the known name lacks, or if only the known name has a
    word such as `no`.
    """
    shared = 0.0
    if not (words_of("denying") | words_of("contrary")).isdisjoint(set(other).difference(one)):
        return 0.0
    for word in one:
        if word in other:
            shared += weight(word)
        elif begun := [name for name in other if begins(word, name) and name not in one]:
            shared += 0.8 * min(weight(word), weight(begun[0]))  # an abbreviation, such as `mixed_prec`
        elif weight(word) == 1.0 and _typos_of(word).isdisjoint(other):
            return 0.0
    if not shared:
        return 0.0
    return 2 * shared / (sum(map(weight, one)) + sum(map(weight, other)))


@cache
def _typos_of(word: str) -> frozenset[str]:
    """The words of setting names that `word` probably misspells."""
    alphabet = alphabet_of(word)
    return frozenset(
        one.letters
        for one in vocabulary()
        if may_be_near(word, alphabet, one) and letter_likeness(word, one.letters) >= 0.8
    )


@cache
def meaning(name: str, clause: str | None = None, exact: bool = False, valued: bool = False) -> Meaning | None:
    """The setting that a name most likely stands for, or None.

    If the name is in a clause, and two settings are equally similar to it, the setting of the clause is preferred. The
    name is also tried together with the clause's name: `interval` in `save` is tried as `save_interval`. If `exact` is
    true, a setting must have the same words or the same letters as the name. If `valued` is true, the name has a value,
    so it does not stand for a clause.
    """
    # words that are joined without separators, as in `enableligerkernel`
    name = re.sub("^(enable|use)(?=[a-z]{6,}$)", "", name[:80])
    ways = [name] if clause is None else [name, f"{clause} {name}"]
    best: Meaning | None = None
    rank = 0.0
    for number, way in enumerate(ways):
        typed, own = letters(way), words(way)
        name_words = frozenset(words(name))
        candidates = _candidates(typed, own, exact)
        begun = {one.path for one in candidates if one.own and begins(typed, one.letters)}
        for one in candidates:
            inside = clause is not None and (one.path == clause or one.path.startswith(clause + "."))
            if valued and one.own and one.path not in schema.BY_PATH:
                continue
            if number and (not inside or name_words.isdisjoint(one.words)):
                # `limit` in `save`, tried as `save_limit`, may stand only for a setting of `save` with `limit` in one
                # of its names
                continue
            like = 1.0 if typed == one.letters else 0.99 * word_likeness(own, one.words)
            part = len(own) == 1 and not (one.own or one.argument) and sum(map(weight, one.words)) >= 2
            if like < SAME and part:
                like = 0.0  # `skip` is only a part of another tool's name, such as `skip_truncated`
            like = max(like, SAME * _is_the_same(way, one))
            if like < SAME and not exact:
                typo = letter_likeness(typed, one.letters)
                if typo < ENOUGH or (typo > like and _is_another(parts(way), own, typed, one, typo)):
                    typo = 0.0
                like = max(like, typo, 0.8 * (one.own and begun == {one.path}))
            if like < (SAME if exact else ENOUGH):
                continue
            score = (
                like
                + 0.2 * (like >= SAME)
                # the bonus for an identical name is larger than any penalty, so such a name beats a synonym
                + 0.05 * (typed == one.letters)
                + 0.15 * inside
                + (0.04 if like >= SAME else OWN) * one.own
                + 0.01 * bool(one.value)
                - 0.02 * number
                - one.penalty
            )
            if score > rank:
                best, rank = Meaning(one.path, one.value, like, one.own or one.argument), score
    return best


def _is_another(way: tuple[str, ...], own: Sequence[str], typed: str, one: KnownName, typo: float) -> bool:
    """Whether a name is another one than the known name to which its letters are similar. `way` are its parts, `own`
    its words, `typed` its letters, and `typo` says how similar the letters are.
    """
    *before, last = way
    stem = last.rstrip("0123456789")
    # nor does `test_after_every`, whose words all are words of names, mean `state_every`
    shared = 2 * len({*own} & {*one.words}) >= len(own) or {*one.words} <= {*own} or typo > 0.9
    return (
        has_another_word(way, one.parts)
        or another_number(typed, one.letters)
        # `adam_epsilon2` is not a misspelt `adam_epsilon`
        or (last[-1].isdecimal() and one.parts[-1:] == ((stem,) if stem else tuple(before[-1:])))
        or (not shared and len(own) > 2 and known_words().issuperset(way))
        or _of_other_words(way, one.parts)
        or typed in words_of("empty")
        or not {"only", *words_of("denying")}.isdisjoint({*one.words} - {*own})
    )


def _of_other_words(typed: tuple[str, ...], known: tuple[str, ...]) -> bool:
    """Whether other words replace the words of a known name: `sft_regularizer` is no misspelt `l2_regularizer`."""
    own, rest = ([word for word in one if word not in other] for one, other in ((typed, known), (known, typed)))
    if not words_of("denying").isdisjoint(rest):
        return True  # `torch_compile_on` is no misspelt `no_torch_compile`
    both = [("".join(own), "".join(rest)), *((a, b) for a in own for b in rest)]
    near = (one_mistake(a, b) or a.startswith(b) or b.startswith(a) or a[:5] == b[:5] for a, b in both)
    return bool(own and rest) and known_words().issuperset(own) and not any(near)


COUNTERS = frozenset(("n", "num", "number", "count"))
"""Words that only say that something is counted: `n_hosts` is `hosts`."""


def _is_the_same(name: str, one: KnownName) -> bool:
    """Whether a name is a known name, except for words that only turn a flag on or that only count: `enable_dora` is
    `use_dora`, and `n_hosts` is `hosts`. A counted name has the same ending: `num_micro_batches` is no `micro_batch`.
    """
    row = schema.BY_PATH.get(one.path)
    if row is not None and row.kind is FLAG:
        return without_switches(words(name)) == without_switches(one.words)
    if row is None or row.kind.name != "int":
        return False
    typed, known = ([word for word in written if word not in COUNTERS] for written in (parts(name), one.parts))
    return typed == known and bool(typed)


@cache
def without_switches(name: tuple[str, ...]) -> frozenset[str]:
    """The words of a name without words that only turn it on: `enable_dora` and `use_dora` are equal."""
    return frozenset(name).difference(words_of("switches")) or frozenset(name)


def _candidates(typed: str, own: tuple[str, ...], exact: bool) -> list[KnownName]:
    """The known names that are worth comparing with a name, in the order of the table. These are names with the same
    letters, with mostly the same letters, or with a common word.
    """
    names, with_word, of_length = index()
    alphabet = alphabet_of(typed)
    found = {number for number in of_length.get(len(typed), ()) if names[number].letters == typed}
    found.update(number for word in own for number in with_word.get(word, ()))
    if not exact:
        for length, numbers in of_length.items():
            if length > len(typed):
                found.update(one for one in numbers if names[one].own and begins(typed, names[one].letters))
            if 2 * min(length, len(typed)) >= LETTERS * (length + len(typed)):
                found.update(one for one in numbers if may_be_near(typed, alphabet, names[one]))
    return [names[number] for number in sorted(found)]


def one_letter(one: str, other: str) -> bool:
    """Whether a name differs in a single letter from `other`, a name of three or four letters. Such short names are
    compared in this way, because a share of equal letters says little about them.
    """
    if not other.isalpha() or not 2 < len(other) < 5 or min(len(one), len(other)) < 2:
        return False
    if len(one) == len(other):
        return len(one) == 4 and sum(map(ne, one, other)) == 1
    short, long = sorted((one, other), key=len)
    return len(long) - len(short) == 1 and any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def name_of_four(name: str, names: Iterable[str]) -> str | None:
    """The only one of `names` with three or four letters that differs from `name` in one letter: `beta` for `bata`.
    None if none of them does, or if several do.
    """
    found = [one for one in names if one_letter(name, one)]
    return found[0] if len(found) == 1 else None


def _with_all_words(name: str) -> str | None:
    """The argument for `extra` whose name contains all words of `name`: `pad_to_multiple_of` for `pad_to_multiple`.
    None if there is no such argument, or if there are several.
    """
    from xpc.compiler.suggest import extra_form as passing

    typed = frozenset(words(name[:80]))
    if sum(map(weight, typed)) < 2:
        return None
    found = [one for one in passing.names() if typed <= frozenset(words(one))]
    least = min((len(words(one)) for one in found), default=0)
    nearest = [one for one in found if len(words(one)) == least]
    return nearest[0] if len(nearest) == 1 and least <= 3 * len(typed) else None


def is_known(name: str, loosely: bool = True) -> bool:
    """Whether xpc can say something about a name: the name stands for a setting, or there is advice for it, or it is
    known to have no equivalent.

    If `loosely` is true, two more kinds of names count as known to have no equivalent: names with a listed beginning
    such as `ema_`, and names that have the words of a listed name in another order.
    """
    reason = loose_reason(name) if loosely else own_reason(name)
    return reason is not None or meaning(name, exact=True) is not None or advice(name, "") is not None


def shares_word(name: str, path: str) -> bool:
    """Whether an unknown name and a known name of the setting `path` have a word in common. Similar spelling is not
    enough.
    """
    names, with_word, _ = index()
    own = [word for word in words(name[:80]) if weight(word) == 1.0]
    return any(names[number].path == path for word in own for number in with_word.get(word, ()))


@lru_cache(maxsize=64)
def nearest_other_name(name: str) -> tuple[str | None, float]:
    """Return a pair: the known name that is most similar to `name`, or None; and how similar it is. The known names are
    the arguments for `extra`, and names of other tools for which xpc has no setting.
    """
    typed = letters(name[:80])
    alphabet, best, rank = alphabet_of(typed), None, 0.84
    for one, other in _other_names():
        like = letter_likeness(typed, other.letters) if may_be_near(typed, alphabet, other) else 0.0
        if like > rank and not has_another_word(parts(name[:80]), other.parts, False):
            best, rank = one, like
    return (_with_all_words(name), 0.85) if best is None else (best, rank)


@cache
def known_words() -> frozenset[str]:
    """Every word that occurs in a known name, in a synonym of a known name, in a name without an equivalent, or in a
    usual name of a column.
    """
    names = (*by_letters().values(), *families(), *(one for names in usual_columns().values() for one in names))
    return frozenset(word for name in names for word in parts(name)) | mapped("same").keys()


def outcome(name: str) -> str:
    """A text that is equal for two names if both get the same answer. It is the first of these texts that exists: the
    reason why xpc has no such setting, the advice for the name, the path of the setting that the name stands for, the
    name itself.
    """
    guess = meaning(name, exact=True)
    return own_reason(name) or advice(name, "") or (guess.path if guess is not None else loose_reason(name) or name)


@cache
def by_letters() -> dict[str, str]:
    """Map every known name, reduced to its letters, to the name: settings, arguments for `extra`, and names without an
    equivalent.
    """
    from xpc.compiler.suggest import extra_form as passing

    out = dict(without.listed())
    for one in known():
        out.setdefault(one.letters, "_".join(one.parts))
    for name in (*passing.names(), *passing.aliases()):
        out.setdefault(letters(name), name)
    return out


@cache
def _other_names() -> tuple[tuple[str, KnownName], ...]:
    from xpc.compiler.suggest import extra_form as passing

    names = without.listed()
    found = (
        *((one, letters(one)) for one in (*passing.names(), *(one for one in passing.aliases() if len(one) > 15))),
        *((one, one) for one in (*without.reasons(), *without.advised())),
    )
    return tuple(
        (one, KnownName(typed, alphabet_of(typed), (), "", "", False, 0.0, False, parts(names.get(one, one))))
        for one, typed in found
    )
