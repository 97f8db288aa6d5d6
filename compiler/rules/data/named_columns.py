"""The rule about columns whose names do not fit their place in `columns` or in `data.prompt` (XP545)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data.shapes import KEPT
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource

PROMPTS = ("prompt", "question", "query", "instruction", "problem", "source", "input")
SWAPPED = (
    (
        PROMPTS,
        ("completion", "answer", "response", "output", "reply", "solution", "target", "chosen", "rejected"),
    ),
    (("chosen",), ("rejected",)),
)
"""Usual names of the columns that come first and second in a format: a prompt and its answer, or a chosen and a
rejected answer. If `columns` states an answer before a prompt, or a rejected before a chosen answer, the rule
`columns_swapped` reports it.
"""
WORSE = ("rejected", "rejected_response", "rejected_answer", "negative", "bad", "bad_answer", "wrong_answer", "worse")
"""Usual names of columns with the rejected answer of a preference pair."""
NUMBERS = ("id", "_id", "uid", "uuid", "guid", "idx", "index", "row_id", "prompt_id", "question_id", "qid")
"""Usual names of columns that number the rows."""


@rule("XP545", "columns-swapped", "warning")
def columns_swapped(spec: Spec) -> Iterator[Finding]:
    """`columns` must list the names of the dataset's columns in the order of the format, such as first the prompt and
    then the answer, or first the chosen answer and then the rejected one. If the names suggest the opposite order, such
    as `columns = [answer, question]`, they are probably swapped. `prompt`, the column with the prompt, should not be a
    column of answers, such as `solution`, and none of the columns should number the rows, such as `id`. With sft, the
    answers should not be the `rejected` answers of preference pairs. A column that is named twice is an error.

    Why it is bad: the model would learn the question from the answer, or to prefer the worse answer. If the prompt is
    the solution, the model only has to copy it to be rewarded.

    Without this rule: nothing is reported, and the loss falls as in any run.

    Source: the runtime's `prompts.py` maps names by their order; confirmed by running it.
    """
    prompt = spec.get("data.prompt")
    if isinstance(prompt, str) and prompt.lower() in SWAPPED[0][1]:
        yield Finding(
            spec.location("data.prompt", "usually the answer"),
            f"the prompts are read from the column `{prompt}`",
            "write `prompt = problem`, or the name of the column with the question",
        )
    for source in spec.sources:
        given = [name for name in source.columns or () if source.only and name not in KEPT]
        found = _misplaced(spec, source, given) or _swapped(source, given)
        if found is not None:
            yield found


def _misplaced(spec: Spec, source: DataSource, given: list[str]) -> Finding | None:
    """A finding if `columns` names a column twice, or names a column that contains row numbers or (for sft) the
    rejected answers of preference pairs.
    """
    name = f"`{source.name[:80]}`"
    twice = next((one for one in given if given.count(one) > 1), None)
    if twice is not None:
        return Finding(
            source.label,
            f"`columns` of {name} names `{twice}` twice",
            "name a column for each part of the format: the prompt, then the answer",
            severity="error",
        )
    number = next((one for one in given if one.lower() in NUMBERS), None)
    if number is not None and source.shape != "tokens":
        return Finding(
            source.label,
            f"`columns` of {name} uses `{number}` as a text, but a column of this name usually numbers the rows",
            "name the column with the text, such as `question`",
        )
    if spec.text("method") == "sft" and given and given[-1].lower() in WORSE:
        return Finding(
            source.label,
            f"`columns` of {name} uses `{given[-1]}` as the answer, but this column usually has a pair's worse answer",
            "name the column with the better answer, such as `chosen`; `method dpo` with `format=preference` compares "
            "both answers",
        )
    return None


def _swapped(source: DataSource, given: list[str]) -> Finding | None:
    for earlier, later in SWAPPED:
        first = next((i for i, name in enumerate(given) if name.lower() in later), None)
        last = next((i for i, name in enumerate(given) if name.lower() in earlier), None)
        if first is None or last is None or first > last or source.shape == "prompt":
            continue
        swapped = list(given)
        swapped[first], swapped[last] = swapped[last], swapped[first]
        return Finding(
            source.label,
            f"`columns` of `{source.name[:80]}` uses `{given[first]}` as the "
            f"{'prompt' if earlier is PROMPTS else 'chosen answer'}",
            f"write `columns = [{', '.join(swapped)}]`, in the order of the format",
        )
    return None
