"""Evaluation after training, by lm-evaluation-harness (XP52x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.resolve.tasks import executes
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import harness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = written("eval.tasks", "eval.allow_code_execution")

TASKS: Final = "eval.tasks"
"""Names of tasks; one of a file is named by its copy."""
ALLOW: Final = "eval.allow_code_execution"
DATA = "DigitalLearningGmbH/MATH-lighteval"


def _running(spec: Spec) -> list[str]:
    return [task for task in spec.names(TASKS) if executes(task, spec.bundled)]


@rule("XP520", "code-execution-not-allowed")
def unsafe(spec: Spec) -> Iterator[Finding]:
    """A task that executes what the model writes is legal with `allow_code_execution` alone.

    There is no sandbox: the code runs as you, with your files and your network. Today the harness raises a ValueError
    once the model and the data of all tasks are loaded. Source: lm-eval 0.4.13, evaluator.py (`UNSAFE_CODE`).
    """
    running = _running(spec)
    if running and not spec.flag(ALLOW):
        shown = running[0].rpartition("/")[2]
        yield Finding(
            spec.place(TASKS, f"`{shown[:60]}` runs the model's code on this machine, as you"),
            "a task executes the code that the model writes",
            f"write `allow_code_execution` in `eval`, or leave `{shown[:60]}` out",
            (spec.label(ALLOW),),
        )


@rule("XP521", "nothing-to-execute", "warning")
def nothing_executed(spec: Spec) -> Iterator[Finding]:
    """`allow_code_execution` is for tasks that execute code; where none does, the permission is given for nothing.

    It would stand there for the task that somebody adds later, without being asked. Nothing is said today.
    """
    if spec.flag(ALLOW) and TASKS not in spec.wrong and not _running(spec):
        yield Finding(
            spec.place(ALLOW, "permits it"),
            "no task executes code" if spec.names(TASKS) else "code execution is allowed, and no tasks are written",
            "leave `allow_code_execution` out",
            (spec.label(TASKS),),
        )


@rule("XP522", "math-hard-left-out", "note")
def leaderboard(spec: Spec) -> Iterator[Finding]:
    """`leaderboard` is the groups of the Open LLM Leaderboard but for `leaderboard_math_hard`.

    Its data, a part of MATH, was withdrawn from the hub. The pinned harness reads a copy by somebody else, which may
    go, too, and then the harness would end before the first task of the other five. Source: lm-eval 0.4.13,
    tasks/leaderboard/leaderboard.yaml and math/_template_yaml.
    """
    tasks = spec.names(TASKS)
    if "leaderboard" in tasks and harness.MATH_HARD not in tasks:
        yield Finding(
            spec.place(TASKS, "five groups: bbh, gpqa, ifeval, mmlu_pro, musr"),
            "`leaderboard` is run without `leaderboard_math_hard`, whose data was withdrawn",
            "write `[leaderboard, leaderboard_math_hard]` to ask for the copy that is left",
        )


@rule("XP523", "data-withdrawn", "warning")
def withdrawn(spec: Spec) -> Iterator[Finding]:
    """`leaderboard_math_hard` reads a copy of data that its authors' host withdrew; what it measures may not be there.

    Today the harness ends with the loader's exception when the copy is gone. Source: lm-eval 0.4.13,
    tasks/leaderboard/math/_template_yaml.
    """
    tasks = [task for task in spec.names(TASKS) if task.startswith("leaderboard_math_")]
    if tasks:
        yield Finding(
            spec.place(TASKS, f"it reads the copy {DATA}"),
            f"the data of `{tasks[0]}` was withdrawn",
            f"leave `{tasks[0]}` out",
        )


@rule("XP524", "tasks-for-a-reward-model")
def scores(spec: Spec) -> Iterator[Finding]:
    """A reward model answers a score, not text: the harness's tasks ask for likelihoods of words.

    Today the harness loads it as a language model, and the new head that predicts words has random weights: chance
    results, without a word but transformers' list of missing weights. Source: lm-eval 0.4.13, models/huggingface.py
    (AutoModelForCausalLM).
    """
    if spec.names(TASKS) and spec.get("method") == "reward":
        yield Finding(
            spec.place(TASKS, "they need a text"),
            "a reward model cannot be evaluated by these tasks",
            "leave `tasks` out",
            (spec.label("method", "returns scores"),),
        )
