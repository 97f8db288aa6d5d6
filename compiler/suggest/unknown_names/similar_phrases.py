"""Find the answer that the words of an unknown name suggest, if no other step recognized the name. For each answer, all
names with this answer are one class: the names of a setting, or the names of no_equivalent.txt with the same text. As
in a naive Bayes classifier, a word counts for a class if more of its names have the word than of all names.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion
from xpc.compiler.suggest.known_names import known
from xpc.compiler.suggest.likeness import parts, weight, words
from xpc.compiler.suggest.meaning import Meaning
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, advice, phrases, with_words_of_family
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.tables import words_of
from xpc.compiler.suggest.typed_form import intended_value, typed, written
from xpc.compiler.suggest.unknown_names.case import Case, settings_of
from xpc.compiler.suggest.unknown_names.setting import of_guess
from xpc.grammar.record import evolve

LEAST = 4.0
"""The least score of an answer."""
LEAD = 1.0
"""Answers whose scores differ by less than this are equally likely. Of names whose answer has this lead, about nine in
ten get the right setting, and eight in ten rightly have no equivalent, if each name is scored without itself.
"""
INSTEAD = "instead"
"""The path of an answer that is a phrase of no_equivalent.txt with a text about what to write instead."""


def by_its_words(case: Case) -> Suggestion | None:
    """Handle a name that none of the tables has, but whose words they have: `ckpt_without_optim = true` is
    `full_state=false`. If two settings are equally likely, the help has both.
    """
    if len(parts(case.name[:80])) < 2:
        return None
    ranked = [one for one in _likely_answers(f"{case.clause} {case.name}") if _is_possible(case, one[1])]
    near = [one for score, one in ranked if score >= LEAST and score > ranked[0][0] - LEAD]
    paths = list(dict.fromkeys(one.path for one in near))
    if len(paths) == 2 and schema.BY_PATH.keys() >= {*paths}:
        values = {one.path: one.value for one in reversed(near)}
        rows = [schema.BY_PATH[path] for path in paths]
        forms = [typed(row, values[row.path]) if values[row.path] else written(row, case.unknown) for row in rows]
        return case.says(f"write {either(forms)}")
    if len(paths) not in (1, 2) or (len(ranked) > 1 and paths[0] == INSTEAD and ranked[0][0] - ranked[1][0] < 2 * LEAD):
        why = with_words_of_family(case.name)
        return None if why is None else case.says(NO_EQUIVALENT + why)
    if paths[0] == INSTEAD:
        return case.says(advice(near[0].value, case.typed) or settings_of(case.clause))
    if not paths[0]:
        return case.says(NO_EQUIVALENT + near[0].value)
    return evolve(of_guess(case.unknown, near[0]), edit=None)


def _is_possible(case: Case, answer: Meaning) -> bool:
    """Whether an answer is possible: a setting must accept the user's value, and differ from the clause."""
    row = schema.BY_PATH.get(answer.path)
    fits = row is None or bool(answer.value) or not case.typed or intended_value(row, case.unknown) is not None
    return fits and answer.path not in ("train", case.clause or "train")


def _likely_answers(name: str) -> list[tuple[float, Meaning]]:
    """The answers that the words of a name suggest, each with its score; the best is first. An answer with the path ""
    has as its value the reason why there is no equivalent, and one with the path `INSTEAD` a phrase of
    no_equivalent.txt.
    """
    counts, classes, sizes = _counts()
    total, own = sum(sizes.values()) + 1, [word for word in words(name[:80]) if word in counts]
    important = {word for word in words(name[:80]) if weight(word) == 1.0} - words_of("loose") - words_of("fillers")
    out: list[tuple[float, Meaning]] = []
    for answer in {answer: None for word in own for answer in classes[word]}:
        found = {word: classes[word][answer] for word in own}
        if not all(found.get(word) for word in important):
            continue  # the names with this answer lack an important word
        shares = ((word, (counts[word] + 0.5) / total) for word in own)
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
    for row, answer in rows:
        sizes[answer] += 1
        counts.update(row)
        for word in row:
            classes.setdefault(word, Counter())[answer] += 1
    return counts, classes, sizes
