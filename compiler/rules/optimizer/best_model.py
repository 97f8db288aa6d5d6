"""Rules about arguments in `extra trl` that concern the best checkpoint, its metric, or an evaluation before the first
step (XP51x).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from xpc.compiler.language.kinds import NEVER, Amount
from xpc.compiler.language.optimizers import METRIC_SCHEDULES
from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.nearest import nearest
from xpc.grammar.record import evolve

WHEN = extra("trl")

LOAD = "load_best_model_at_end"
METRIC = "metric_for_best_model"
HIGHER_IS_BETTER = "greater_is_better"
NAMES = {"epoch": "epochs", "steps": "steps"}
SPEED = ("loss", "runtime", "samples_per_second", "steps_per_second")
"""The loss and the metrics of speed, which every evaluation reports."""
NO_QUALITY = ("runtime", "samples_per_second", "steps_per_second", "num_tokens")
"""Metrics of speed and of length, which say nothing about the model's quality."""
LOWER = ("loss", "kl", "rewards/rejected", "logps/rejected", "completions/clipped_ratio")
HIGHER = (
    "accuracy",
    "accuracies",
    "reward",
    "rewards/margins",
    "rewards/chosen",
    "margin",
    "mean_reward",
    "log_odds_chosen",
    "log_odds_ratio",
    "logps/chosen",
)
"""Metrics for which lower values are better (LOWER), and metrics for which higher values are better (HIGHER). An entry
may also be the last part of a name: `loss` stands for `eval_loss`, too.
"""
SHOWN = 12
"""A diagnostic lists at most this many metrics."""
FUNCTIONS = {"cosine": "cosine_scaled_reward", "length": "len_reward"}
"""Maps the name of a reward to its name in metrics: `cosine` is reported as `cosine_scaled_reward`. For a reward that
is not listed, the name in metrics is its own name with the ending `_reward`.
"""


def reported(spec: Spec) -> tuple[str, ...] | None:
    """The metrics that an evaluation of the method reports in addition to loss and speed. None if they are unknown, for
    example because a user's reward function may log further metrics.
    """
    known = spec.stack.facts.evaluation_metrics.get(spec.text("method"))
    if not known or not spec.method.grouped:
        return known
    functions = []
    for one in spec.weighted("method.rewards"):
        if one.file is not None:
            from xpc.compiler.rules.core.reward_files import may_log, signature

            code = spec.bundled.get(one.file, b"")
            if one.function is None or signature(code, one.function) is None or may_log(code):
                return None
        functions.append(one.function or FUNCTIONS.get(one.name, f"{one.name}_reward"))
    return (*(f"rewards/{name}/{value}" for name in functions for value in ("mean", "std")), *known)


def _loads_best(spec: Spec) -> bool:
    """Whether the run loads its best checkpoint at the end."""
    return spec.extra_value("trl", LOAD) is True


def _evaluates(spec: Spec) -> bool:
    """Whether the run evaluates while it trains."""
    return spec.amount("eval.every") != NEVER


def _typed(amount: Amount) -> str:
    """Write an interval as in a spec: `30%` for a share of the run, otherwise the number."""
    return f"{amount.value * 100:g}%" if amount.unit == "share" else f"{amount.value}"


def _unit(amount: Amount) -> str:
    """The unit of an interval: `epoch` or `steps`, as in transformers' `eval_strategy`, or `never`."""
    return amount.unit if amount.unit in ("never", "epoch") else "steps"


@rule("XP510", "best-without-its-evaluation")
def best_without_evaluation(spec: Spec) -> Iterator[Finding]:
    """With `load_best_model_at_end`, the run must evaluate and save checkpoints in the same unit: both in epochs, or
    both in steps.

    Why it is bad: the best checkpoint is chosen among the checkpoints that were evaluated when they were saved.

    Without this rule: building the arguments raises ValueError. If the run has neither evaluations nor checkpoints,
    nothing is reported, and the last weights are kept.

    Source: transformers 5.23 and 4.52.3 `training_args.py`, `trainer.py`; confirmed by running it.
    """
    evaluated, saved = spec.amount("eval.every"), spec.amount("save.every")
    if not _loads_best(spec):
        return
    how, when = _unit(evaluated), _unit(saved)
    if how == when and saved != NEVER:
        return
    best = spec.extra_location("trl", LOAD)
    if saved == NEVER and evaluated != NEVER:
        every = _typed(evaluated) if how == "steps" else how
        yield Finding(
            spec.location("save.every"),
            "there are no checkpoints to choose the best from",
            write(f"every = {every}"),
            (evolve(best, text="loads the best checkpoint"),),
        )
        return
    help = f"leave `{LOAD}` out"
    if saved != NEVER and spec.evaluates:
        help = f"write `eval(every={_typed(saved) if when == 'steps' else when})`, or {help}"
    message = "without an evaluation there is no best checkpoint"
    if evaluated != NEVER:
        message = f"`{LOAD}` needs one unit: the run saves in {NAMES[when]} and evaluates in {NAMES[how]}"
    yield Finding(best, message, help, (spec.label("save.every"), spec.label("eval.every")))


@rule("XP511", "best-between-evaluations")
def best_between_evaluations(spec: Spec) -> Iterator[Finding]:
    """With `load_best_model_at_end`, the interval of `save` must be a multiple of the interval of `eval`. If one
    interval is a share of the run, the other must be a share, too. trl-0.18 refuses even some exact multiples, such as
    30 % and 10 %, because it divides them as floating-point numbers.

    Why it is bad: every checkpoint that may be the best needs an evaluation at its own step.

    Without this rule: building the arguments raises ValueError. If one interval is a number of steps and the other a
    share of the run, transformers does not always notice the error.

    Source: transformers 5.23 and 4.52.3 `training_args.py`; confirmed by running it.
    """
    evaluated, saved = spec.amount("eval.every"), spec.amount("save.every")
    if not _loads_best(spec) or not _unit(evaluated) == _unit(saved) == "steps":
        return
    here, other = _typed(saved), _typed(evaluated)
    remainder = saved.value % evaluated.value
    text, severity, steps = "", "error", other
    rounded = saved.unit == "share" and not (saved.value * 1_000_000) % (evaluated.value * 1_000_000)
    if saved.unit != evaluated.unit:
        message = f"checkpoints every {here} and evaluations every {other} may not coincide"
        severity = "error" if remainder else "warning"
    elif not remainder or (rounded and spec.stack.facts.save_multiples_rounded):
        return
    else:
        message = f"not every checkpoint has an evaluation: saved every {here}, evaluated every {other}"
        if saved.unit == "count":
            times = int(saved.value // evaluated.value)
            text = f"{here} = {times} x {other} + {int(remainder)}"
            steps = str(max(1, round(saved.value / evaluated.value)) * int(evaluated.value))
        elif rounded:
            text = f"{saved.value} is not a multiple of {evaluated.value} in floating point"
    yield Finding(
        spec.location("save.every", text),
        message,
        write(f"every = {steps}", " in `save`"),
        (spec.label("eval.every", "the evaluation"), spec.extra_location("trl", LOAD, "loads the best checkpoint")),
        severity=severity,
    )


@rule("XP512", "metric-of-no-evaluation")
def metric_not_there(spec: Spec) -> Iterator[Finding]:
    """`metric_for_best_model` must be a metric that the method's evaluation reports. If a reward function of the user
    logs metrics of its own (`log_metric` of trl 1.16), any name is accepted. Other rules check schedules that follow a
    metric (XP243) and several evaluation sets (XP526).

    Why it is bad: the run looks for a metric that no evaluation reports. A bundle has no `compute_metrics`, so an
    evaluation reports only the metrics of TRL's trainer. On trl 0.18, sft and grpo log some metrics that `evaluate`
    does not return, and these cannot be used either.

    Without this rule: KeyError at the first evaluation, hours after the start.

    Source: transformers 5.23 and 4.52.3 `Trainer._determine_best_metric`; trl 1.16 and 0.18 `log` of each trainer, 1.16
    `GRPOTrainer._log_metric`; confirmed by running it for each method.
    """
    metric, method = spec.extra_value("trl", METRIC), spec.text("method")
    stepping = method == "sft" and spec.text("schedule") in METRIC_SCHEDULES
    if not isinstance(metric, str) or not _evaluates(spec) or stepping or spec.sets:
        return
    known = reported(spec)
    if known is None:
        return
    bare = metric.removeprefix("eval_")
    if bare not in (*SPEED, *known):
        suggested = next((name for name in known if bare and bare in name), None) or nearest(bare, known) or "loss"
        names = ["loss", *(name for name in known if name != "aux_loss")]
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} others" if len(names) > SHOWN else "")
        yield Finding(
            spec.extra_location("trl", METRIC, f"an evaluation reports {shown}"),
            f"an evaluation of {method} has no metric `{metric[:60]}`",
            write(f'{METRIC} = "{suggested}"'),
            (spec.label("method", "the method"), spec.label("target", "the target")),
        )


@rule("XP583", "best-is-the-worst")
def best_is_the_worst(spec: Spec) -> Iterator[Finding]:
    """`greater_is_better` must fit the metric: false for a loss, and true for an accuracy, reward or margin. By default
    it is true, unless the metric's name ends with `loss`.

    Why it is bad: the worst checkpoint is kept as the best, and with `patience` the run is stopped although the metric
    improves.

    Without this rule: nothing is reported.

    Source: transformers 5.23 and 4.52.3 `training_args.py` (`greater_is_better`); confirmed by running it.
    """
    higher, metric = spec.extra_value("trl", HIGHER_IS_BETTER), spec.extra_value("trl", METRIC)
    used = _loads_best(spec) or spec.get("eval.patience") is not None or spec.text("schedule") in METRIC_SCHEDULES
    if not isinstance(metric, str) and not (isinstance(higher, bool) and used):
        return
    name = metric if isinstance(metric, str) else "loss"
    lower = _better_when_lower(name)
    maximized = higher if isinstance(higher, bool) else not name.endswith("loss")
    if lower is None or lower != maximized:
        return
    right = f"{HIGHER_IS_BETTER} = {'false' if lower else 'true'}"
    yield Finding(
        spec.extra_location("trl", HIGHER_IS_BETTER if isinstance(higher, bool) else METRIC),
        f"the {'highest' if lower else 'lowest'} {name[:60]} would count as the best, although that value is the worst",
        write(right) if isinstance(higher, bool) else f"write `{right}` next to it",
    )


def _better_when_lower(metric: str) -> bool | None:
    """Whether a lower value of the metric is better; None for an unknown metric."""
    name = metric.removeprefix("eval_")
    if name.endswith("/mean") and name.startswith("rewards/"):
        return False
    for lower, ends in ((True, LOWER), (False, HIGHER)):
        if any(name == end or name.endswith(("_" + end, "/" + end)) for end in ends):
            return lower
    return None


@rule("XP584", "best-by-its-speed")
def best_by_its_speed(spec: Spec) -> Iterator[Finding]:
    """`metric_for_best_model` must not be a metric of speed or length, such as `eval_runtime`.

    Why it is bad: a metric of speed says nothing about the model's quality, so a random checkpoint is kept as the best.

    Without this rule: nothing is reported.

    Source: transformers 5.23 and 4.52.3 `trainer_utils.py` (`speed_metrics`); confirmed by running it.
    """
    metric = spec.extra_value("trl", METRIC)
    if isinstance(metric, str) and any(metric == one or metric.endswith("_" + one) for one in NO_QUALITY):
        yield Finding(
            spec.extra_location("trl", METRIC, "the same for a good and a bad model"),
            f"`{metric[:60]}` does not show which checkpoint is the best",
            write(f'{METRIC} = "eval_loss"'),
        )


@rule("XP514", "the-best-and-the-last", "warning")
def best_and_last(spec: Spec) -> Iterator[Finding]:
    """With `load_best_model_at_end`, `keep` should be at least 2.

    Why it is bad: `keep = 1` suggests that the disk needs room for a single checkpoint. But the run keeps the best
    checkpoint and the last one, from which a stopped run continues.

    Without this rule: nothing is reported.

    Source: transformers 5.23 `trainer_utils.py` `rotate_checkpoints`, 4.52.3 `Trainer._rotate_checkpoints`; confirmed
    by running it.
    """
    if _loads_best(spec) and spec.get("save.keep") == 1 and spec.amount("save.every") != NEVER:
        yield Finding(
            spec.location("save.keep", "plus the best"),
            "`keep = 1` keeps two checkpoints: the last and the best",
            write("keep = 2"),
            (spec.extra_location("trl", LOAD, "keeps the best"),),
        )


@rule("XP515", "best-on-one-machine", "note")
def best_on_one_machine(spec: Spec) -> Iterator[Finding]:
    """With `load_best_model_at_end` under ddp on several machines, all machines must share the folder of the
    checkpoints. xpc cannot check this, so it reports such a run.

    Why it is bad: the first machine writes the checkpoints, and every machine looks for the best checkpoint in its own
    folder.

    Without this rule: machines that do not share the folder report that they cannot find the best model, and keep their
    last weights. The first machine has the best checkpoint and saves the final model, so the saved model is correct.

    Source: transformers 5.23 and 4.52.3 `Trainer._load_best_model`.
    """
    alone = spec.text("strategy") == "ddp" and spec.extra_value("trl", "save_on_each_node") is not True
    if _loads_best(spec) and spec.integer("nodes") > 1 and alone:
        yield Finding(
            spec.extra_location("trl", LOAD, f"on {spec.integer('nodes')} machines"),
            "the machines are assumed to share the folder of the checkpoints",
            "if each machine has its own folder, write `save_on_each_node = true` in `extra trl`",
            (spec.label("nodes", "the machines"), spec.label("save", "the folder")),
        )


@rule("XP516", "evaluation-before-training-without-data")
def evaluation_at_start(spec: Spec) -> Iterator[Finding]:
    """`eval_on_start`, an evaluation before the first step, needs evaluation rows, even if there are no later
    evaluations.

    Why it is bad: the run cannot start without data for its first evaluation.

    Without this rule: ValueError when training begins, after the data is tokenized.

    Source: transformers 5.23 and 4.52.3 `Trainer.evaluate` (`get_eval_dataloader`); confirmed by running it.
    """
    if spec.extra_value("trl", "eval_on_start") is True and not spec.evaluates and not _evaluates(spec):
        yield Finding(
            spec.extra_location("trl", "eval_on_start", "needs rows to evaluate on"),
            "the evaluation before training has no data",
            write("eval_on_start = false", ", or add `data(holdout=5%)`"),
        )


@rule("XP517", "evaluations-after-the-end")
def evaluations_after_the_end(spec: Spec) -> Iterator[Finding]:
    """`eval_delay` must not be longer than the run. It is counted in steps if the evaluations are counted in steps, and
    in epochs if they are counted in epochs.

    Why it is bad: the run never evaluates. So it chooses no best checkpoint, a schedule that follows a metric never
    changes the rate, and `patience` never ends the run.

    Without this rule: nothing is reported.

    Source: transformers 5.23 and 4.52.3 `trainer_callback.py` (`DefaultFlowCallback`); confirmed by running it.
    """
    delay, every = spec.extra_value("trl", "eval_delay"), _unit(spec.amount("eval.every"))
    length = spec.get("train.epochs" if every == "epoch" else "train.steps")
    if not isinstance(delay, int | float) or not isinstance(length, int | float) or every == "never":
        return
    if delay > ceil(length):
        name = "epochs" if every == "epoch" else "steps"
        yield Finding(
            spec.extra_location("trl", "eval_delay"),
            f"evaluations begin after {delay:g} {name}, but the run has only {length:g}",
            write("eval_delay = 0"),
            (spec.label("eval.every", "the evaluations"),),
        )
