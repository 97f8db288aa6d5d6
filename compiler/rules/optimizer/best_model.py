"""`extra trl`: the best checkpoint, the metric that it is chosen by, and evaluation before the first step (XP51x)."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from xpc.compiler.language.kinds import NEVER, Amount
from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve

WHEN = extra("trl")

LOAD = "load_best_model_at_end"
METRIC = "metric_for_best_model"
METRIC_SCHEDULES = ("reduce_lr_on_plateau", "greedy")
NAMES = {"epoch": "epochs", "steps": "steps"}
SPEED = ("loss", "runtime", "samples_per_second", "steps_per_second")
"""What every evaluation answers."""
SHOWN = 12
"""Metrics that a label lists."""
FUNCTIONS = {"cosine": "cosine_scaled_reward", "length": "len_reward"}
"""What the functions of registered rewards are called in metrics, where it is not the name and `_reward`."""


def reported(spec: Spec) -> tuple[str, ...] | None:
    """The metrics of an evaluation beside loss and speed; None where a function of the spec's own may log others."""
    known = spec.stack.facts.evaluation_metrics.get(spec.text("method"))
    if not known or not spec.method.grouped:
        return known
    functions = []
    for one in spec.weighted("method.rewards"):
        if one.file is not None:
            from xpc.compiler.rules.core.reward_files import head, may_log

            code = spec.bundled.get(one.file, b"")
            if one.function is None or head(code, one.function) is None or may_log(code):
                return None
        functions.append(one.function or FUNCTIONS.get(one.name, f"{one.name}_reward"))
    return (*(f"rewards/{name}/{value}" for name in functions for value in ("mean", "std")), *known)


def _loads_best(spec: Spec) -> bool:
    return spec.extra_value("trl", LOAD) is True


def _evaluates(spec: Spec) -> bool:
    return spec.amount("eval.every") != NEVER


def _typed(amount: Amount) -> str:
    return f"{amount.value * 100:g}%" if amount.unit == "share" else f"{amount.value}"


def _moments(amount: Amount) -> str:
    """What an interval is counted in, as transformers names it."""
    return amount.unit if amount.unit in ("never", "epoch") else "steps"


@rule("XP510", "best-without-its-evaluation")
def best_without_evaluation(spec: Spec) -> Iterator[Finding]:
    """The best checkpoint is one that was evaluated when it was saved, so both must come in epochs, or both in steps.

    Today: ValueError when the arguments are built; where neither is done, nothing at all, and the last weights are
    kept. Source: transformers 5.23 and 4.52.3 `training_args.py`, `trainer.py`; executed.
    """
    evaluated, saved = spec.amount("eval.every"), spec.amount("save.every")
    if not _loads_best(spec) or {"eval.every", "save.every"} & spec.wrong:
        return
    how, when = _moments(evaluated), _moments(saved)
    if how == when and saved != NEVER:
        return
    best = spec.extra_place("trl", LOAD)
    if saved == NEVER and evaluated != NEVER:
        every = _typed(evaluated) if how == "steps" else how
        yield Finding(
            spec.place("save.every"),
            "there are no checkpoints to choose the best of",
            write(f"every = {every}"),
            (evolve(best, text="loads the best of them"),),
        )
        return
    help = f"leave `{LOAD}` out"
    if saved != NEVER and spec.evaluates:
        help = f"write `eval(every={_typed(saved) if when == 'steps' else when})`, or {help}"
    message = "without an evaluation there is no best checkpoint"
    if evaluated != NEVER:
        message = f"saves at {NAMES[when]} and evaluates at {NAMES[how]}"
    yield Finding(best, message, help, (spec.label("save.every"), spec.label("eval.every")))


@rule("XP511", "best-between-evaluations")
def best_between_evaluations(spec: Spec) -> Iterator[Finding]:
    """Every checkpoint that may be the best needs an evaluation at its own step: `save` a multiple of `eval`.

    Shares of the run are compared with shares only, as floating point has them: trl-0.18 does not know that 30 % are
    three times 10 %. Today: ValueError when the arguments are built; where a number of steps is a multiple of a share
    by chance, nothing is raised. Source: transformers 5.23 and 4.52.3 `training_args.py`; executed.
    """
    evaluated, saved = spec.amount("eval.every"), spec.amount("save.every")
    if not _loads_best(spec) or not _moments(evaluated) == _moments(saved) == "steps":
        return
    here, other = _typed(saved), _typed(evaluated)
    remainder = saved.value % evaluated.value
    text, severity, nearest = "", "error", other
    rounded = saved.unit == "share" and not (saved.value * 1_000_000) % (evaluated.value * 1_000_000)
    if saved.unit != evaluated.unit:
        message = f"checkpoints every {here} and evaluations every {other} need not coincide"
        severity = "error" if remainder else "warning"
    elif not remainder or (rounded and spec.stack.facts.save_multiples_rounded):
        return
    else:
        message = f"not every checkpoint has an evaluation: saved every {here}, evaluated every {other}"
        if saved.unit == "count":
            times = int(saved.value // evaluated.value)
            text = f"{here} = {times} x {other} + {int(remainder)}"
            nearest = str(max(1, round(saved.value / evaluated.value)) * int(evaluated.value))
        elif rounded:
            text = f"{saved.value} is no multiple of {evaluated.value} in floating point"
    yield Finding(
        spec.place("save.every", text),
        message,
        write(f"every = {nearest}", " in `save`"),
        (spec.label("eval.every", "the evaluation"), spec.extra_place("trl", LOAD, "loads the best of them")),
        severity=severity,
    )


@rule("XP512", "metric-of-no-evaluation")
def metric_not_there(spec: Spec) -> Iterator[Finding]:
    """The metric that checkpoints are chosen by must be one that an evaluation of the method answers.

    Today: KeyError at the first evaluation, hours after the start. No trainer of a bundle has a function for more
    metrics, but in trl 1.16 a reward function of the spec's own may log any with `log_metric`. sft and grpo of trl 0.18
    show theirs and do not return them. Of an sft schedule that steps with a metric XP243 speaks, of one that names no
    set of several XP526. Source: transformers 5.23 and 4.52.3 `Trainer._determine_best_metric`; trl 1.16 and 0.18 `log`
    of each trainer, 1.16 `GRPOTrainer._log_metric`; executed for each method.
    """
    metric, method = spec.extra_value("trl", METRIC), spec.text("method")
    stepping = method == "sft" and spec.text("schedule") in METRIC_SCHEDULES
    if not isinstance(metric, str) or not _evaluates(spec) or stepping or spec.sets:
        return
    known = reported(spec)
    if known is None:
        return
    said = metric.removeprefix("eval_")
    if said not in (*SPEED, *known):
        from xpc.grammar.nearest import nearest  # only a wrong name pays for it

        meant = next((name for name in known if said and said in name), None) or nearest(said, known) or "loss"
        names = ["loss", *(name for name in known if name != "aux_loss")]
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} others" if len(names) > SHOWN else "")
        yield Finding(
            spec.extra_place("trl", METRIC, f"it reports {shown}"),
            f"an evaluation of {method} has no metric `{metric[:60]}`",
            write(f'{METRIC} = "{meant}"'),
            (spec.label("method", "the method"), spec.label("target", "the target")),
        )


@rule("XP514", "the-best-and-the-last", "warning")
def best_and_last(spec: Spec) -> Iterator[Finding]:
    """With `keep = 1` the best checkpoint stays beside the last one, so that disks need room for two.

    The last is what a stopped run goes on from; it is removed when the run ends. Nothing is said today. Source:
    transformers 5.23 `trainer_utils.py` `rotate_checkpoints`, 4.52.3 `Trainer._rotate_checkpoints`; executed.
    """
    if _loads_best(spec) and spec.get("save.keep") == 1 and spec.amount("save.every") != NEVER:
        yield Finding(
            spec.place("save.keep", "and the best"),
            "`keep = 1` keeps two checkpoints: the last and the best",
            write("keep = 2"),
            (spec.extra_place("trl", LOAD, "keeps the best"),),
        )


@rule("XP515", "best-on-one-machine", "note")
def best_on_one_machine(spec: Spec) -> Iterator[Finding]:
    """The first machine writes the checkpoints of ddp, and every machine looks for the best one in its own folder.

    A folder that all of them share is assumed. Where it is not shared, the others say that they cannot find the best
    model and keep their last weights; what is saved at the end is the first machine's, and right. Source: transformers
    5.23 and 4.52.3 `Trainer._load_best_model`.
    """
    alone = spec.text("strategy") == "ddp" and spec.extra_value("trl", "save_on_each_node") is not True
    if _loads_best(spec) and spec.integer("nodes") > 1 and alone:
        yield Finding(
            spec.extra_place("trl", LOAD, f"on {spec.integer('nodes')} machines"),
            "the machines are taken to share the folder of the checkpoints",
            "where they do not, write `save_on_each_node = true` beside it",
            (spec.label("nodes", "the machines"), spec.label("save", "the folder")),
        )


@rule("XP516", "evaluation-before-training-without-data")
def evaluation_at_start(spec: Spec) -> Iterator[Finding]:
    """An evaluation before the first step needs rows, whether or not there is one later.

    Today: ValueError once training begins, after the data is tokenized. Source: transformers 5.23 and 4.52.3
    `Trainer.evaluate` (`get_eval_dataloader`); executed.
    """
    if spec.extra_value("trl", "eval_on_start") is True and not spec.evaluates and not _evaluates(spec):
        yield Finding(
            spec.extra_place("trl", "eval_on_start", "on which rows?"),
            "the evaluation before training has no data",
            write("eval_on_start = false", ", or `data(holdout=5%)` beside the block"),
        )


@rule("XP517", "evaluations-after-the-end")
def evaluations_after_the_end(spec: Spec) -> Iterator[Finding]:
    """`eval_delay` counts what the evaluations count, steps or epochs; beyond the run's length none is ever made.

    Today: nothing is said. No best checkpoint is chosen, no schedule steps by its metric, and no run ends early.
    Source: transformers 5.23 and 4.52.3 `trainer_callback.py` (`DefaultFlowCallback`); executed.
    """
    delay, every = spec.extra_value("trl", "eval_delay"), _moments(spec.amount("eval.every"))
    length = spec.get("train.epochs" if every == "epoch" else "train.steps")
    if not isinstance(delay, int | float) or not isinstance(length, int | float) or every == "never":
        return
    if delay > ceil(length):
        name = "epochs" if every == "epoch" else "steps"
        yield Finding(
            spec.extra_place("trl", "eval_delay"),
            f"evaluations begin after {delay:g} {name}, and the run has {length:g}",
            write("eval_delay = 0"),
            (spec.label("eval.every", "the evaluations"),),
        )
