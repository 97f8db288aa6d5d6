"""Rules about rows of prompts, for methods that generate the answers (XP569, XP578)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.rules.core.conditions import generates
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.data.structure import have
from xpc.compiler.rules.method.rewards import WITH_SOLUTION
from xpc.compiler.spec import Spec

WHEN = generates


@rule("XP569", "solution-without-text", "warning")
def no_solution(spec: Spec) -> Iterator[Finding]:
    """The column `solution` must contain text if the rewards `accuracy`, `cosine` or `len` are used: they compare each
    completion with it. If `solution` is null or a number, these rewards return None for every completion of the row.

    Why it is bad: without a solution in the row, completions are generated, but nothing is learned from them.

    Without this rule: `accuracy` silently returns None for each completion.

    Source: trl 1.16 `accuracy_reward`, which parses the solution with math_verify; confirmed by running it.
    """
    reward = next((one.name for one in spec.weighted("method.rewards") if one.name in WITH_SOLUTION), None)
    for source in spec.files if reward is not None else ():
        found = rows.survey(source)
        one = None if found is None or "solution" not in found.columns else found.tallies.get("no_solution")
        if found is not None and one is not None:
            yield Finding(
                source.label,
                f"{have(one, found, source)} no text in `solution`, which the reward `{reward}` needs",
                'write the solution as a text, such as `"solution": "$4$"`, or leave such rows out of the data',
            )


@rule("XP578", "answered-prompt", "warning")
def answered_prompt(spec: Spec) -> Iterator[Finding]:
    """A prompt in the form of a conversation should end with a turn of the user or a tool's result, because the model
    answers the last turn.

    Why it is bad: if the prompt already ends with an answer, the model has to write a second answer, or to continue the
    first.

    Without this rule: trl 1.16 silently begins another turn of the assistant; trl 0.24 and 0.18 silently let the model
    continue the last turn.

    Source: trl 1.16, 0.24 and 0.18 `grpo_trainer.py`; confirmed by running them.
    """
    for source in spec.files:
        found = rows.survey(source)
        one = None if found is None else found.tallies.get("answered_prompt")
        if found is not None and one is not None and source.shape == "prompt":
            yield Finding(
                source.label,
                f"{have(one, found, source)} a prompt that ends with an answer of the assistant",
                "leave the last turn out of the prompt, or put it into another column, which rewards can read",
            )
