"""Find the setting of a clause that a name describes by its words: `taints` in `launch k8s` is `tolerations`, whose
description is "Taints of nodes that the pods tolerate". Imported only for an unknown name in a clause.
"""

from __future__ import annotations

from functools import cache

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.components import head_word
from xpc.compiler.suggest.known_names import NEVER_LEGAL, known
from xpc.compiler.suggest.likeness import parts, weight, words
from xpc.compiler.suggest.tables import words_of
from xpc.compiler.suggest.typed_form import intended_value
from xpc.grammar.record import record
from xpc.grammar.tree import Number

LEAST = 4
"""Two words that have at least this many letters and differ only in their endings count as the same word: `tolerate`
and `tolerations`.
"""
MOST = 7
"""A name with more words than this is not compared with descriptions."""
ENDING = 3
"""If two words count as the same word, each may have at most this many letters after their common beginning."""


@record
class Described:
    """A setting of a clause that an unknown name describes. If `named` is true, all words of the name also occur in
    names of the setting (in xpc or in other tools); otherwise some occur only in its description. `complete` is true if
    the setting has all words of the name. `partial` is true if the name is one word of a longer name, as `tasks` is of
    `cpus_per_task`.
    """

    row: Setting
    named: bool
    complete: bool
    partial: bool


def described(unknown: UnknownName, clause: str) -> Described | None:
    """The setting of a clause that an unknown name describes. None if no setting has the words of the name, if several
    settings fit equally well, or if the setting cannot have the user's value.
    """
    excluded = {*words(clause), *words(head_word(unknown, clause)), *words_of("fillers")}
    typed = [word for word in words(unknown.name[:80]) if weight(word) == 1.0 and word not in excluded]
    typed = [word for word in typed if word not in words_of("loose")]
    rows = [row for row in settings_read(unknown, clause) if _takes(row, unknown)]
    if not typed or len(typed) > MOST:
        return None
    ranked = sorted(((_score(row, typed, rows), number) for number, row in enumerate(rows)), reverse=True)
    if not ranked or ranked[0][0] == 0.0 or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < 0.2):
        return None
    row = rows[ranked[0][1]]
    complete = all(_has(_names(row.path) | _description(row.path), word) for word in typed)
    named = all(_has(_names(row.path), word) for word in typed)
    phrases = [one for one in _phrases(row.path, excluded) if named and len(typed) == 1 and _has(one, typed[0])]
    return Described(row, named, complete, bool(phrases) and all(len(one) > 1 for one in phrases))


def _score(row: Setting, typed: list[str], rows: list[Setting]) -> float:
    """How well a setting fits the words of a name, from 0 to the number of words. A word that only one setting of the
    clause has counts more than a word that several settings have.

    If the setting lacks a word of the name, the result is 0, with one exception: at least half of the words fit, the
    last word occurs in a name of the setting, and no other setting of the clause has it. So the name `reduction_factor`
    finds the setting `factor`.
    """
    found = [word for word in typed if _has(_names(row.path) | _description(row.path), word)]
    if len(found) < len(typed):
        last = typed[-1]
        strange = set(typed) - set(found)
        if not words_of("contrary").isdisjoint(strange) or any(one[-1].isdecimal() for one in strange):
            return 0.0
        if 2 * len(found) < len(typed) or not _has(_names(row.path), last):
            return 0.0
        if sum(_has(_names(one.path) | _description(one.path), last) for one in rows) > 1:
            return 0.0
    return sum(
        (1.0 if _has(_names(row.path), word) else 0.8)
        / sum(_has(_names(one.path) | _description(one.path), word) for one in rows)
        for word in found
    )


def settings_read(unknown: UnknownName, clause: str) -> list[Setting]:
    """The settings of a clause that the spec's method or launch engine reads. For `launch k8s`, for example,
    `partition` is not among them.
    """
    head = head_word(unknown, clause)
    return [
        row
        for row in schema.children(clause)
        if row.path not in NEVER_LEGAL
        and (not row.methods or not head or head in row.methods)
        and (not row.engines or not head or head in row.engines)
    ]


def _takes(row: Setting, unknown: UnknownName) -> bool:
    """Whether a setting accepts the user's value. A setting whose value is a text does not accept a number."""
    if unknown.node is None:
        return row.kind in (FLAG, BLOCK)
    value = None if row.kind is BLOCK else intended_value(row, unknown)
    return value is not None and not (isinstance(unknown.node, Number) and value.startswith('"'))


def _has(known_words: frozenset[str], word: str) -> bool:
    """Whether a set of words contains a word, or the same word with another ending."""
    return word in known_words or (len(word) >= LEAST and any(_is_inflected(word, one) for one in known_words))


@cache
def _is_inflected(one: str, other: str) -> bool:
    """Whether two words differ only in their endings, as `tolerate` and `tolerations` do."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return same >= LEAST and max(len(one), len(other)) - same <= ENDING


def _phrases(path: str, excluded: set[str]) -> list[frozenset[str]]:
    """The names of a setting, each as the set of its words. Words in `excluded` and common words are left out."""
    return [
        frozenset(one for one in name.words if weight(one) == 1.0) - excluded for name in known() if name.path == path
    ]


@cache
def _names(path: str) -> frozenset[str]:
    """The words of all names that a setting has in xpc and in other tools. The words of its clause's name are
    left out.
    """
    clause = {*words(path.partition(".")[0])}
    return frozenset(
        word for one in known() if one.path == path for word in one.words if weight(word) == 1.0 and word not in clause
    )


@cache
def _description(path: str) -> frozenset[str]:
    """The words of a setting's description, without words such as `the` that say nothing about the setting."""
    text = " ".join(one for one in parts(schema.BY_PATH[path].doc) if one not in words_of("fillers"))
    return frozenset(word for word in words(text) if weight(word) == 1.0)
