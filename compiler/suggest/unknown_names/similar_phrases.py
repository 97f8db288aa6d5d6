"""Find the answer that the words of an unknown name suggest, if no other step recognized the name. For each answer, all
names with this answer are one class: the names of a setting, or the names of no_equivalent.txt with the same text. As
in a naive Bayes classifier, a word counts for a class if more of its names have the word than of all names.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

from xpc.compiler.suggest.known_names import known
from xpc.compiler.suggest.likeness import weight, words
from xpc.compiler.suggest.meaning import Meaning
from xpc.compiler.suggest.no_equivalent import phrases
from xpc.compiler.suggest.tables import words_of

LEAST = 4.0
"""The least score of an answer."""
LEAD = 1.0
"""Answers whose scores differ by less than this are equally likely. Of names whose answer has this lead, about nine in
ten get the right setting, and eight in ten rightly have no equivalent, if each name is scored without itself.
"""
COVERED = 0.6
"""The least share of the important words of a name that must occur in the names without an equivalent. A setting must
have all of them.
"""
INSTEAD = "instead"
"""The path of an answer that is a phrase of no_equivalent.txt with a text about what to write instead."""


def likely_answers(name: str) -> list[tuple[float, Meaning]]:
    """The answers that the words of a name suggest, each with its score; the best is first. An answer with the path ""
    has as its value the reason why there is no equivalent, and one with the path `INSTEAD` a phrase of
    no_equivalent.txt.
    """
    counts, classes, sizes = _counts()
    total, typed = sum(sizes.values()) + 1, [word for word in words(name[:80]) if word in counts]
    important = {word for word in words(name[:80]) if weight(word) == 1.0} - words_of("loose") - words_of("fillers")
    out: list[tuple[float, Meaning]] = []
    for answer in {answer: None for word in typed for answer in classes[word]}:
        found = {word: classes[word][answer] for word in typed}
        covered = sum(1 for word in important if found.get(word))
        if covered < (1.0 if answer.path else COVERED) * len(important):
            continue
        shares = ((word, (counts[word] + 0.5) / total) for word in typed)
        scores = (
            weight(word) * math.log((found[word] + 2 * share) / (sizes[answer] + 2) / share) for word, share in shares
        )
        out.append((sum(scores), answer))
    return sorted(out, key=lambda one: -one[0])


@cache
def _counts() -> tuple[Counter[str], dict[str, Counter[Meaning]], Counter[Meaning]]:
    """How many names have each word; the same for each class; and the number of names in each class."""
    rows: dict[tuple[frozenset[str], Meaning], None] = {}
    for kind in ("none", "left", "instead"):
        first: dict[str, str] = {}
        for phrase, text in phrases(kind):
            instead = kind == INSTEAD
            answer = Meaning(INSTEAD * instead, first.setdefault(text, phrase) if instead else text)
            rows[frozenset(words(phrase)), answer] = None
    for one in known():
        rows[frozenset(one.words), Meaning(one.path, one.value)] = None
    counts, classes, sizes = Counter[str](), dict[str, Counter[Meaning]](), Counter[Meaning]()
    for typed, answer in rows:
        sizes[answer] += 1
        counts.update(typed)
        for word in typed:
            classes.setdefault(word, Counter())[answer] += 1
    return counts, classes, sizes
