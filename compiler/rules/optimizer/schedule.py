"""Rules about schedules: which targets, settings, evaluations, strategies and run lengths each schedule needs (XP240 to
XP248).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from xpc.compiler.language.kinds import NEVER, Amount
from xpc.compiler.language.optimizers import METRIC_SCHEDULES as METRIC
from xpc.compiler.language.optimizers import WARM_UP
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import any_of, chosen, written
from xpc.compiler.rules.core.rule import Finding, rule, unsupported_choice, write
from xpc.compiler.rules.numerics.batch import total_steps
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Stack, able

WHEN = any_of(
    chosen("schedule", "wsd", "polynomial", "reduce_lr_on_plateau", "greedy"),
    written(
        "schedule.max_lr", "schedule.warmup_lr", "schedule.decay_type", "schedule.cycles", "schedule.power",
        "schedule.timescale", "schedule.factor", "schedule.patience",
    ),
)  # fmt: skip

READ_BY: Mapping[Path, tuple[str, ...]] = {
    "schedule.cycles": ("cosine_with_restarts",),
    "schedule.power": ("polynomial",),
    "schedule.timescale": ("inverse_sqrt",),
    "schedule.factor": METRIC,
    "schedule.patience": METRIC,
    "schedule.max_lr": ("greedy",),
    "schedule.warmup_lr": ("cosine",),
    "schedule.decay_type": ("wsd",),
}
MEASURED = ("loss", "runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
"""Metrics that every evaluation reports (transformers 5.23 and 4.52)."""


@rule("XP240", "schedule-not-in-the-target")
def schedule_of_the_target(spec: Spec) -> Iterator[Finding]:
    """The transformers of the chosen stack (`target`) must have the schedule. For example, transformers 4.52 does not
    have greedy.

    Why it is bad: a schedule that is missing cannot be built.

    Without this rule: building the arguments raises ValueError.

    Source: `SchedulerType` of transformers 5.23 and 4.52; confirmed by running it.
    """
    yield from unsupported_choice(spec, "schedule", "{} schedule", "write `schedule cosine`, or `target {}`")


@rule("XP241", "setting-of-another-schedule")
def setting_of_another_schedule(spec: Spec) -> Iterator[Finding]:
    """A setting of a schedule needs a schedule that reads the setting. For example, `warmup_lr` needs the cosine
    schedule with a `min_lr` and a warm-up. transformers 4.52 has neither `warmup_lr` nor `timescale`.

    Why it is bad: a schedule ignores the settings of other schedules.

    Without this rule: transformers 4.52 raises ValueError for `warmup_lr` and ignores `timescale`.

    Source: transformers 5.23 and 4.52 `optimization.get_scheduler`.
    """
    name, related = spec.text("schedule"), (spec.label("schedule", "the schedule"),)
    for path, schedules in READ_BY.items():
        setting = path[9:]
        if not spec.written(path):
            continue
        if name not in schedules:
            yield Finding(
                spec.location(path, f"only {' and '.join(schedules)} {'has' if len(schedules) == 1 else 'have'} it"),
                f"`schedule {name}` has no `{setting}`",
                f"leave `{setting}` out, or write `schedule {schedules[0]}`",
                related,
            )
        elif setting in ("timescale", "warmup_lr") and not _reaches(setting, spec.stack):
            yield Finding(
                spec.location(path),
                f"the schedule of {spec.stack.name} does not read `{setting}`",
                f"leave `{setting}` out, or write `target {able(partial(_reaches, setting))}`",
                (spec.label("target", "the target"),),
            )
        elif setting == "warmup_lr" and (
            spec.get("schedule.min_lr") is None or not spec.amount("schedule.warmup").value
        ):
            lacking = "min_lr" if spec.get("schedule.min_lr") is None else "warmup"
            yield Finding(
                spec.location(path, f"without `{lacking}`"),
                f"`warmup_lr` does nothing without `{lacking}`",
                f"leave `warmup_lr` out, or write `{lacking} = 10%`",
                related,
            )


def _reaches(setting: str, stack: Stack) -> bool:
    """Whether the stack's transformers has an argument for `setting`, which is `timescale` or `warmup_lr`."""
    schedule, keyword = {
        "timescale": ("inverse_sqrt", "timescale"),
        "warmup_lr": ("cosine_warmup_with_min_lr", "warmup_lr_rate"),
    }[setting]
    optional = stack.schedulers.get(schedule, {}).get("optional")
    return isinstance(optional, dict) and keyword in optional


@rule("XP242", "metric-schedule-without-evaluation")
def metric_without_evaluation(spec: Spec) -> Iterator[Finding]:
    """The schedules reduce_lr_on_plateau and greedy need a run that evaluates.

    Why it is bad: reduce_lr_on_plateau and greedy change the learning rate after an evaluation, according to its
    metric. Without evaluations, the rate never changes.

    Without this rule: building the arguments raises ValueError.

    Source: transformers 5.23 and 4.52 `training_args.py`; confirmed by running it.
    """
    name = spec.text("schedule")
    if name in METRIC and spec.get("eval.every") == NEVER:
        yield Finding(
            spec.location("schedule", "this schedule changes the rate after an evaluation, by its metric"),
            f"`schedule {name}` needs evaluations",
            "write `eval(every=100)` with `data(holdout=5%)`, or `schedule cosine`",
            (spec.label("eval.every", "never"),),
        )


@rule("XP243", "metric-schedule-of-a-missing-metric")
def metric_missing(spec: Spec) -> Iterator[Finding]:
    """A schedule that follows a metric needs a metric that evaluations report. Evaluations of sft report the loss, the
    speed, and on trl 1.16 a few numbers about tokens.

    Why it is bad: the schedule cannot read a metric that is not reported.

    Without this rule: KeyError at the first evaluation, so all steps up to this evaluation are lost.

    Source: transformers 5.23 and 4.52 `trainer.py` (`_evaluate`); trl 1.16 and 0.18 `sft_trainer.py` (`log`); confirmed
    by running it.
    """
    name, metric = spec.text("schedule"), spec.extra_value("trl", "metric_for_best_model")
    if name not in METRIC or not isinstance(metric, str) or spec.get("eval.every") == NEVER or spec.sets:
        return
    known = (*MEASURED, *spec.stack.facts.evaluation_metrics["sft"])
    if spec.get("method") == "sft" and metric.removeprefix("eval_") not in known:
        yield Finding(
            spec.extra_location("trl", "metric_for_best_model", "not computed by an evaluation"),
            f"`schedule {name}` cannot step with the metric `{metric[:40]}`",
            write('metric_for_best_model = "eval_loss"'),
            (spec.label("schedule", "the schedule"),),
        )


@rule("XP244", "factor-of-the-rate")
def factor(spec: Spec) -> Iterator[Finding]:
    """`factor`, by which the learning rate is multiplied, must be above 0 and below 1.

    Why it is bad: a factor of 1 does not change the learning rate, and a factor of 0 sets it to 0.

    Without this rule: a factor of 1 raises ValueError, after the model is loaded and the data tokenized; with a factor
    of 0, greedy divides by 0 when the metric improves.

    Source: torch 2.13 `ReduceLROnPlateau`; transformers 5.23 `optimization.GreedyLR`; confirmed by running it.
    """
    if spec.written("schedule.factor") and spec.text("schedule") in METRIC and spec.real("schedule.factor") in (0, 1):
        value = spec.real("schedule.factor")
        yield Finding(
            spec.location("schedule.factor", "changes nothing" if value else "leaves a rate of 0"),
            f"the learning rate would be multiplied by {value:g}",
            write("factor = 0.5"),
        )


@rule("XP245", "peak-not-known-under-zero")
def peak_under_zero(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO, the polynomial schedule needs `optimizer adamw`. DeepSpeed creates AdamW itself, and passes it to the
    schedule without a wrapper. Every other optimizer is wrapped.

    Why it is bad: the schedule reads the peak learning rate from the optimizer's attribute `defaults`. DeepSpeed 0.19
    wraps every optimizer except AdamW in an object that lacks this attribute; the wrapper of DeepSpeed 0.16.8 has it.

    Without this rule: AttributeError ('defaults') in train(), after the data is tokenized.

    Source: transformers 5.23 `optimization.get_polynomial_decay_schedule_with_warmup`; deepspeed 0.19.8; confirmed by
    running it on trl-1.16 and trl-0.18.
    """
    name, hides_peak = spec.text("optimizer"), not spec.stack.facts.wrapped_optimizer_has_defaults
    if spec.text("schedule") == "polynomial" and spec.zero_stage and not spec.owns_optimizer and hides_peak:
        yield Finding(
            spec.location("schedule", f"DeepSpeed wraps {name}"),
            f"`schedule polynomial` cannot read the peak learning rate of {name} under {spec.text('strategy')}",
            "write `optimizer adamw`, or `schedule linear`",
            (spec.label("optimizer", "the optimizer"), spec.label("strategy", "the strategy")),
        )


@rule("XP246", "warm-up-of-a-metric-schedule")
def metric_warmup(spec: Spec) -> Iterator[Finding]:
    """The schedules reduce_lr_on_plateau and greedy cannot have a warm-up.

    Why it is bad: the run would begin at the peak learning rate, without the warm-up that the spec states.

    Without this rule: nothing is reported; transformers passes no warm-up to reduce_lr_on_plateau and greedy.

    Source: transformers 5.23 and 4.52 `optimization.get_scheduler`; confirmed by running it.
    """
    name = spec.text("schedule")
    if name in METRIC and spec.amount("schedule.warmup").value and spec.text("optimizer") not in WARM_UP:
        yield Finding(
            spec.location("schedule.warmup", "this warm-up is ignored: the first step uses the peak learning rate"),
            f"`schedule {name}` does not warm up",
            write("warmup = 0", ", or `schedule cosine`"),
            (spec.label("schedule", "the schedule"),),
        )


@rule("XP247", "stages-longer-than-the-run", "warning")
def stages(spec: Spec) -> Iterator[Finding]:
    """The warm-up and the decay of `wsd` together must not be longer than the run.

    Why it is bad: the peak is never reached, and the learning rate jumps down from the end of the warm-up into the
    middle of the decay.

    Without this rule: nothing is reported.

    Source: transformers 5.23 and 4.52 `optimization.get_wsd_schedule` (the number of stable steps becomes negative);
    confirmed by running it.
    """
    decay, steps, warmup = spec.get("schedule.decay"), total_steps(spec), spec.amount("schedule.warmup")
    if spec.text("schedule") != "wsd" or not isinstance(decay, Amount):
        return
    if decay.unit == warmup.unit == "share":
        if decay.value + warmup.value > 1:
            yield Finding(
                spec.location("schedule.decay", f"{warmup.value:.0%} + {decay.value:.0%} > 100%"),
                "the warm-up and the decay are longer than the run",
                write(f"decay = {max(0.01, 1 - warmup.value):.0%}"),
                (spec.label("schedule.warmup", f"{warmup.value:.0%}"),),
            )
        return
    if steps is None:
        return
    first = warmup.steps(steps)
    last = int(decay.value * steps) if decay.unit == "share" else int(decay.value)
    if first + last > steps:
        fitting = max(1, steps - first)
        yield Finding(
            spec.location("schedule.decay", f"{first} + {last} > {steps}"),
            f"the warm-up and the decay are longer than the run of {steps} steps",
            write(f"decay = {fitting}"),
            (spec.label("schedule.warmup", f"{first} steps"),),
        )


@rule("XP248", "restarts-of-a-step", "warning")
def restarts(spec: Spec) -> Iterator[Finding]:
    """The cycles of `cosine_with_restarts` must have several steps each: a run of 100 steps cannot restart 1,000 times.

    Why it is bad: if a cycle is only one step long, every step is the start of a cycle. So every step uses the peak
    rate, or a rate that depends on rounding, and the rate never decays.

    Without this rule: nothing is reported.

    Source: transformers 5.23 `get_cosine_with_hard_restarts_schedule_with_warmup` (the progress times the cycles,
    modulo 1); confirmed by running it.
    """
    cycles, steps = spec.get("schedule.cycles"), total_steps(spec)
    if spec.text("schedule") != "cosine_with_restarts" or not isinstance(cycles, int) or steps is None:
        return
    rest = steps - spec.amount("schedule.warmup").steps(steps)
    if cycles > 1 and rest > 0 and cycles * 2 > rest:
        yield Finding(
            spec.location("schedule.cycles", f"{rest} / {cycles} = {rest / cycles:.2g} steps"),
            f"a cycle of the schedule lasts {rest / cycles:.2g} steps",
            write("cycles = 2" if rest >= 4 else "cycles = 1"),
        )
