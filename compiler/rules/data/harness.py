"""Rules about the evaluation after training with lm-evaluation-harness (XP52x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import FlagPath, NamesPath
from xpc.compiler.resolve.tasks import executes
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import harness

WHEN = written("eval.tasks", "eval.allow_code_execution")

TASKS: NamesPath = "eval.tasks"
"""The setting that lists the tasks. In its value, a task file is named by the path of its copy in the bundle."""
ALLOW: FlagPath = "eval.allow_code_execution"
DATA = "DigitalLearningGmbH/MATH-lighteval"


def _running(spec: Spec) -> list[str]:
    return [task for task in spec.names(TASKS) if executes(task, spec.bundled)]


@rule("XP520", "code-execution-not-allowed")
def unsafe(spec: Spec) -> Iterator[Finding]:
    """A task that executes code written by the model needs `allow_code_execution`.

    Why it is bad: the model's code runs without a sandbox, with your permissions, your files and your network.

    Without this rule: lm-eval raises ValueError once the model and the data of all tasks are loaded.

    Source: lm-eval 0.4.13 `evaluator.py` (`UNSAFE_CODE`); read, not run.
    """
    running = _running(spec)
    if running and not spec.flag(ALLOW):
        shown = running[0].rpartition("/")[2]
        yield Finding(
            spec.location(TASKS, f"`{shown[:60]}` runs code that the model writes, with your permissions"),
            "a task executes the code that the model writes",
            f"write `allow_code_execution` in `eval`, or leave `{shown[:60]}` out",
            (spec.label(ALLOW),),
        )


@rule("XP521", "nothing-to-execute", "warning")
def nothing_executed(spec: Spec) -> Iterator[Finding]:
    """`allow_code_execution` needs a task that executes code.

    Why it is bad: `allow_code_execution` permits something that no task does now. If a task that executes code is added
    later, it has this permission unnoticed.

    Without this rule: nothing is reported.

    Source: only xpc reads the setting; lm-eval accepts its flag even if no task executes code.
    """
    if spec.flag(ALLOW) and not _running(spec):
        yield Finding(
            spec.location(ALLOW, "allows it"),
            "no task executes code" if spec.names(TASKS) else "code execution is allowed, and there are no tasks",
            "leave `allow_code_execution` out",
            (spec.label(TASKS),),
        )


@rule("XP522", "math-hard-left-out", "note")
def leaderboard(spec: Spec) -> Iterator[Finding]:
    """`leaderboard` runs all groups of the Open LLM Leaderboard except `leaderboard_math_hard`. Its data, which is a
    part of MATH, was withdrawn from the hub.

    Why it is bad: the result is not the complete leaderboard.

    Without this rule: lm-eval itself runs all six groups, and reads a copy of the withdrawn data by another author. If
    the copy disappears, lm-eval ends before the first task of the other five groups.

    Source: lm-eval 0.4.13 `tasks/leaderboard/leaderboard.yaml` and `math/_template_yaml`; read, not run.
    """
    tasks = spec.names(TASKS)
    if "leaderboard" in tasks and harness.MATH_HARD not in tasks:
        yield Finding(
            spec.location(TASKS, "five groups: bbh, gpqa, ifeval, mmlu_pro, musr"),
            "`leaderboard` runs without `leaderboard_math_hard`, whose data was withdrawn",
            "write `[leaderboard, leaderboard_math_hard]` to run that task on another author's copy of the data",
        )


@rule("XP523", "data-withdrawn", "warning")
def withdrawn(spec: Spec) -> Iterator[Finding]:
    """The data of `leaderboard_math_hard` was withdrawn by its host, so the task reads a copy of the data.

    Why it is bad: a copy of withdrawn data may differ from the original, or disappear.

    Without this rule: lm-eval ends with an exception when the copy is gone.

    Source: lm-eval 0.4.13 `tasks/leaderboard/math/_template_yaml`; read, not run.
    """
    tasks = [task for task in spec.names(TASKS) if task.startswith("leaderboard_math_")]
    if tasks:
        yield Finding(
            spec.location(TASKS, f"reads the copy {DATA}"),
            f"the data of `{tasks[0]}` was withdrawn",
            f"leave `{tasks[0]}` out",
        )


@rule("XP524", "tasks-for-a-reward-model")
def scores(spec: Spec) -> Iterator[Finding]:
    """A reward model cannot run lm-eval's tasks: it returns a score, and the tasks need likelihoods of words.

    Why it is bad: the results of a reward model would be as bad as random guesses.

    Without this rule: lm-eval loads the reward model as a language model with a new head of random weights. Only a
    message of transformers about newly initialized weights shows the error.

    Source: lm-eval 0.4.13 `models/huggingface.py` (AutoModelForCausalLM); read, not run.
    """
    if spec.names(TASKS) and spec.get("method") == "reward":
        yield Finding(
            spec.location(TASKS, "need a model that generates text"),
            "a reward model cannot run these tasks",
            "leave `tasks` out",
            (spec.label("method", "returns scores"),),
        )
