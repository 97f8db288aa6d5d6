"""Find the known name for a name in plain words: `save_every` for `how_often_to_save`."""

from __future__ import annotations

import re
from functools import cache

from xpc.compiler.suggest.likeness import parts, words
from xpc.compiler.suggest.meaning import COUNTERS, by_letters, outcome
from xpc.compiler.suggest.tables import mapped, words_of

ENDING = re.compile(r"(?<=\w{3})(?:ements?|ations?|ings?|ed|es|ly|s|e)$")
"""The endings that one word may have in different names: `improvement`, `improves`, `improving`."""


def asks(name: str) -> bool:
    """Whether a name is a question: `which_gpu`, `should_i_shuffle`."""
    first, *rest = parts(name[:80]) or ("",)
    return first in words_of("asking") and bool(rest)


def in_plain_words(name: str, clause: str) -> str | None:
    """The known name that has the same words as `name`, or as the clause's name and `name`, apart from words such as
    `how` and `the`. None if there is no such name, or if several such names have different meanings. A single word
    must be the name itself, unless the name is a question: `n_jobs` is not the `job` of a cluster.
    """
    ways = [name[:80], *([f"{clause} {name[:80]}"] if clause else [])]
    for way in reversed(ways) if asks(name) else ways:
        content = _content(way)
        for names, own in zip(_by_content(), (content, content - COUNTERS), strict=True):
            found = names.get(own, [])
            if len(content - COUNTERS) == 1 and not asks(name):
                found = [one for one in found if {one, f"{one}s"} & {*_phrased(way)} and one not in words_of("general")]
            found = [one for one in found if one == without_question(way)] or found
            fewest = min((len(parts(one)) for one in found), default=0)
            shortest = [one for one in found if len(parts(one)) == fewest]
            if len({*map(outcome, shortest)}) == 1:
                return shortest[0]
    return None


def is_a_phrase(name: str) -> bool:
    """Whether a name has words that only make a phrase of it, and at least two others: `limit_for_the_gradient`."""
    short = without_question(name)
    return asks(name) or ("_" in short and short != "_".join(parts(name[:80])))


def without_question(name: str) -> str:
    """A name without the words that make it a phrase: `num_turns` for `how_many_turns`."""
    return "_".join(word for word in _phrased(name[:80]) if word not in words_of("phrase_words"))


@cache
def _by_content() -> tuple[dict[frozenset[str], list[str]], dict[frozenset[str], list[str]]]:
    """The known names by their words, and by their words without those such as `num`. An entry of no_equivalent.txt
    that is about the value is no name.
    """
    counted: dict[frozenset[str], list[str]] = {}
    others: dict[frozenset[str], list[str]] = {}
    for name in by_letters().values():
        if parts(name)[-1] not in ("number", "pair"):
            content = _content(name)
            counted.setdefault(content, []).append(name)
            others.setdefault(content - COUNTERS, []).append(name)
    return counted, others


def _content(name: str) -> frozenset[str]:
    """The words of a name without their endings, and without words that only make a phrase of it."""
    typed = (re.sub("is(?=e|ing|ation)", "iz", word) for word in words(" ".join(_phrased(name))))
    return frozenset(ENDING.sub("", word) for word in typed if word not in words_of("phrase_words"))


@cache
def _phrases() -> re.Pattern[str]:
    return re.compile("|".join(f" {phrase} " for phrase in mapped("phrases")))


def _phrased(name: str) -> list[str]:
    """The words of a name, in which phrases such as `how often` are replaced by a word of names."""
    typed = f" {' '.join(parts(name))} "
    if _phrases().search(typed):
        for phrase, word in mapped("phrases").items():
            typed = typed.replace(f" {phrase} ", f" {word} ")
    digits = " ".join(mapped("numbers").get(one, one) for one in typed.split())
    return re.sub(r"\b(\d+) bits?\b", r"\1bit", digits).split()
