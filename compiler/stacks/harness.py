"""Facts about lm-evaluation-harness: the names of its tasks, and which of them are unsafe to run.

This module is loaded only for a spec with `tasks`. The table of tasks, lm-eval.json, is written by
`compiler/stacks/harness_names.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from xpc.grammar.package_data import read_json

MATH_HARD = "leaderboard_math_hard"
LEADERBOARD = (
    "leaderboard_bbh", "leaderboard_gpqa", "leaderboard_ifeval", "leaderboard_mmlu_pro", "leaderboard_musr",
)  # fmt: skip
"""The groups of tasks in the Open LLM Leaderboard. The group `leaderboard_math_hard` is left out, because its data was
withdrawn.
"""
PARTS = {"ifeval": ("ifeval", "instruction_following"), "math": ("leaderboard_math", "minerva_math")}
"""Maps each extra of the package lm-eval to parts of task names. A task needs the extra if its name contains one of
these parts.
"""


def _table() -> dict[str, Any]:
    return read_json(__file__, "lm-eval.json")


def version() -> str:
    """The version of lm-evaluation-harness that bundles pin. The names of tasks come from the same version."""
    return str(_table()["version"])


@cache
def names() -> frozenset[str]:
    """The names of all tasks, groups and tags."""
    out, before = [], ""
    for entry in _table()["names"]:
        shared, _, rest = entry.partition(" ")
        before = before[: int(shared)] + rest
        out.append(before)
    return frozenset(out)


@cache
def unsafe() -> frozenset[str]:
    """The names of tasks, groups and tags that execute code written by the model."""
    return frozenset(_table()["unsafe"])


def is_file(task: str) -> bool:
    """Whether an entry of `tasks` is a task file and not the name of a task."""
    return task.endswith((".yaml", ".yml"))


def nearest_task(name: str) -> str | None:
    """The name of the task that is most similar to a misspelt name. To save time, only names that have two consecutive
    letters in common with the misspelt name are compared.
    """
    from difflib import SequenceMatcher  # imported here, because only a misspelt task needs it
    from heapq import nsmallest

    pairs = _letter_pairs(name)
    ranked = []
    for one, others in _pairs_of_names():
        shared = len(pairs & others)
        ranked.append((-shared / (len(pairs) + len(others) - shared), len(one), one))
    near = [one for _, _, one in nsmallest(40, ranked)]
    swapped = [one for one in near if sorted(one) == sorted(name)]
    alike = [(SequenceMatcher(None, one, name[:80]).ratio(), one) for one in near]
    best = max(alike, key=lambda each: each[0])  # of several equally similar names, the first is returned
    return swapped[0] if swapped else best[1] if best[0] >= 0.75 else None


def expanded(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks to pass to lm-evaluation-harness. `leaderboard` is replaced by its groups, except the group whose data
    was withdrawn.
    """
    out: list[str] = []
    for task in tasks:
        out += LEADERBOARD if task == "leaderboard" else [task]
    return tuple(dict.fromkeys(out))


def requirement(tasks: tuple[str, ...]) -> str:
    """The requirement for pip: lm-eval in its pinned version, with the extras that the given tasks import."""
    wanted = {extra for extra, parts in PARTS.items() if any(part in task for part in parts for task in tasks)}
    return f"lm-eval[{','.join(sorted({'hf', *wanted}))}]=={version()}"


@cache
def _pairs_of_names() -> tuple[tuple[str, frozenset[str]], ...]:
    """All names of tasks, each with the set of its pairs of neighbouring letters."""
    return tuple((name, _letter_pairs(name)) for name in names())


def _letter_pairs(name: str) -> frozenset[str]:
    plain = f" {name[:80].lower()} "
    return frozenset(plain[i : i + 2] for i in range(len(plain) - 1))
