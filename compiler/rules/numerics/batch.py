"""Rules about the sizes of the batch, the run's length and the learning rate schedule (XP2xx)."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from xpc.compiler.data.row_counts import steps_of_rows, trained
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.optimizers import reads
from xpc.compiler.language.setting import RealPath
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label


def _unit(spec: Spec) -> str:
    """The word for the devices that train: "GPU" or "process"."""
    return "process" if spec.on_cpu else "GPU"


@rule("XP201", "batch-does-not-divide")
def batch_does_not_divide(spec: Spec) -> Iterator[Finding]:
    """The global batch must be exactly micro-batch x accumulation x world size.

    Why it is bad: transformers has no setting for the global batch. It multiplies micro-batch, accumulation and
    processes, so a wrong accumulation trains with another batch size than intended.

    Without this rule: only DeepSpeed reports this, after the data is tokenized: it refuses a deepspeed.json in which
    the numbers do not match.

    Source: transformers 5.23 `Trainer.get_total_train_batch_size`; deepspeed 0.19.8 `runtime/config.py`.
    """
    world = spec.replicas
    gbs, micro, accum = spec.integer("batch.gbs"), spec.integer("batch.micro"), spec.integer("batch.accum")
    if micro * accum * world == gbs:
        return
    locations = f"{world} {_unit(spec)}{'' if world == 1 else _plural(spec)}"
    if spec.context_parallel > 1:
        locations = f"{world} group{'' if world == 1 else 's'} of {spec.context_parallel} {_unit(spec)}{_plural(spec)}"
    others = [spec.label("batch.micro"), spec.label("batch.accum")]
    if spec.written("batch.accum"):
        product = micro * accum * world
        text = f"{micro} x {accum} x {world} = {product}"
        help = f"write gbs={product}, the product, or leave `accum` out: xpc then computes it"
        message = f"gbs={gbs} is not micro={micro} x accum={accum} x {locations}"
        if not spec.written("batch.micro"):
            unit = accum * world
            message = f"gbs={gbs} is not micro x {accum} accumulation x {locations}"
            text = f"{gbs} / ({accum} x {world}) = {gbs / unit:.2f}"
            product = max(1, round(gbs / unit)) * unit
            help = f"the nearest global batch is gbs={product}"
        replace = product
    else:
        chosen = micro if spec.written("batch.micro") else 1
        unit = chosen * world
        text = f"{gbs} / ({chosen} x {world}) = {gbs / unit:.2f}"
        message = f"gbs={gbs} is not micro x accumulation x {locations}"
        low, high = gbs // unit, gbs // unit + 1
        replace = low * unit or unit
        help = (
            f"the nearest global batches are gbs={low * unit} (accumulation {low})"
            f" and gbs={high * unit} (accumulation {high})"
        )
        if low == 0:
            help = f"the nearest global batch is gbs={unit} (accumulation 1)"
    primary = spec.label("batch.gbs", text)
    if primary is not None:
        one_word = primary.typed
        head = one_word.partition("=")[0]
        yield Finding(
            primary,
            message,
            help,
            tuple(others) if len({o and o.span for o in others}) > 1 and _on_another_line(primary, others) else (),
            f"{head}= {replace}" if head.endswith(" ") else f"{head}={replace}",
        )
    else:
        yield Finding(spec.location("batch.micro", text), message, help)


def _plural(spec: Spec) -> str:
    """The ending that makes the word "GPU" or "process" plural: "s" or "es"."""
    return "es" if spec.on_cpu else "s"


def _on_another_line(primary: Label, others: list[Label | None]) -> bool:
    """Whether at least one label in `others` is on another line of the spec than the label `primary`. If all labels are
    on the line of `primary`, the snippet of the message shows this line anyway.
    """
    line = primary.source.position(primary.span.start)[0]
    return any(o is not None and o.source.position(o.span.start)[0] != line for o in others)


@rule("XP202", "nothing-to-train")
def nothing_to_train(spec: Spec) -> Iterator[Finding]:
    """A run needs more than 0 epochs.

    Why it is bad: no step is taken.

    Without this rule: transformers runs 0 steps and saves the initial model.

    Source: transformers 5.23 `Trainer.set_initial_training_values`; confirmed by running it.
    """
    if spec.get("train.epochs") == 0:
        yield Finding(
            spec.location("train.epochs", "takes no step"),
            "the run lasts 0 epochs",
            write("for 3 epochs"),
        )


def total_steps(spec: Spec) -> int | None:
    """The number of optimizer steps in the run. It is stated in the spec or computed from the number of rows. None if
    it is unknown.

    The number of steps is unknown with packing, because packed rows can be counted only after tokenization. It is also
    unknown for online methods, because these count prompts instead of rows.
    """
    steps = spec.get("train.steps")
    if isinstance(steps, int):
        return steps
    counted = any(one.rows is not None or one.sha256 or one.parts for one in spec.data)
    if spec.flag("batch.packing") or spec.online or not counted:
        return None

    rows = trained(spec)
    if rows is None:
        return None
    return steps_of_rows(spec, rows)


@rule("XP203", "warmup-past-the-end", "warning")
def warmup_past_the_end(spec: Spec) -> Iterator[Finding]:
    """The warm-up must be shorter than the run. A warm-up that is a share of the run is rounded up to complete steps.

    Why it is bad: the peak learning rate is never reached.

    Without this rule: nothing is reported (in one run with a peak of 2e-5, the highest rate was 6e-7). The polynomial
    schedule divides by the number of steps after the warm-up. If this number is 0, it raises ZeroDivisionError at the
    last step.

    Source: transformers 5.23 and 4.52 `get_scheduler`, `get_warmup_steps`; confirmed by running it.
    """
    warmup = spec.amount("schedule.warmup")
    if not warmup.value:
        return
    steps = total_steps(spec)
    long = warmup.steps(steps or 0)
    if steps is not None and 0 < steps <= long:
        exact = spec.text("schedule") == "polynomial" and steps == long
        better = "0" if steps <= 1 or ceil(steps * 0.03) >= steps else "3%"
        relation = "is the whole run" if steps == long else "ends after the run"
        yield Finding(
            spec.location("schedule.warmup", f"the run has {steps} step{'' if steps == 1 else 's'}"),
            f"the warm-up of {long} step{'' if long == 1 else 's'} {relation}",
            write(f"warmup = {better}"),
            severity="error" if exact else None,
        )
    elif steps is None and warmup.unit == "share" and warmup.value >= 1:
        yield Finding(
            spec.location("schedule.warmup", "all of the run"),
            "the warm-up lasts for the complete run",
            write("warmup = 3%"),
            severity="error" if spec.text("schedule") == "polynomial" else None,
        )


WITH_FLOOR = ("cosine", "wsd", "polynomial", "reduce_lr_on_plateau", "greedy")


@rule("XP204", "min-lr-without-a-tail")
def min_lr_without_a_tail(spec: Spec) -> Iterator[Finding]:
    """`min_lr` needs a schedule that has a final or a lowest learning rate. `min_lr` must not be above the peak
    learning rate; for polynomial, it must be below the peak. For greedy, it must not be above `max_lr` either.
    `warmup_lr`, the rate at which a warm-up begins, must not be above the peak.

    Why it is bad: schedules without a final rate do not accept `min_lr`.

    Without this rule: TypeError inside `train()`, after the model is loaded and the data tokenized; ValueError for a
    polynomial whose end is not below the peak. If a warm-up begins above the peak, nothing is reported, and the rate
    falls during the warm-up.

    Source: transformers 5.23 `optimization.get_scheduler`; confirmed by running it.
    """
    if not spec.written("schedule.min_lr"):
        return
    floor, name, lr = spec.amount("schedule.min_lr"), spec.text("schedule"), spec.real("optimizer.lr")
    if name not in WITH_FLOOR:
        help = "write `schedule cosine`, or leave `min_lr` out"
        if name == "linear":
            line = "write `schedule polynomial`, which falls linearly to `min_lr` if `power` is not set, or"
            help = f"{line} leave `min_lr` out" if floor.value else "leave `min_lr` out: `linear` ends at 0"
        yield Finding(
            spec.location("schedule.min_lr"),
            f"`schedule {name}` has no final learning rate",
            help,
            (spec.label("schedule", "the schedule"),),
        )
        return
    share = floor.value if floor.unit == "share" else floor.value / lr if lr else 0.0
    if share > 1 or (share == 1 and name == "polynomial"):
        sign = ">" if share > 1 else "="
        suggested = (
            f"{floor.value * 100:g}%" if floor.unit == "absolute" and 0 < floor.value < 1 and share > 1 else "10%"
        )
        yield Finding(
            spec.location("schedule.min_lr", f"{share * lr:g} {sign} {lr:g}"),
            f"`min_lr` is {'above' if share > 1 else 'no lower than'} the peak",
            write(f"min_lr = {suggested}", f" for a share of the peak, or a rate of at most {lr:g}"),
            (spec.label("optimizer.lr", "the peak learning rate"),),
        )
    highest = spec.get("schedule.max_lr")
    if name == "greedy" and isinstance(highest, Amount):
        most = highest.value if highest.unit == "absolute" else highest.value * lr
        if share * lr > most:
            yield Finding(
                spec.location("schedule.min_lr", f"{share * lr:g} > {most:g}"),
                "`min_lr` is above `max_lr`",
                write("min_lr = 0"),
                (spec.label("schedule.max_lr", "the highest rate"),),
            )
    yield from _begins_above(spec, lr)


def _begins_above(spec: Spec, lr: float) -> Iterator[Finding]:
    """Report a warm-up whose first learning rate is higher than the peak."""
    first = spec.get("schedule.warmup_lr")
    if isinstance(first, Amount) and (first.value if first.unit == "absolute" else first.value * lr) > lr:
        yield Finding(
            spec.location("schedule.warmup_lr", f"the peak is {lr:g}"),
            "`warmup_lr` is above the peak, so the rate falls during the warm-up",
            write("warmup_lr = 1%", ", a share of the peak"),
            (spec.label("optimizer.lr", "the peak learning rate"),),
        )


@rule("XP205", "wsd-decay")
def wsd_decay(spec: Spec) -> Iterator[Finding]:
    """The schedule `wsd` needs a `decay`, and other schedules cannot have one.

    Why it is bad: transformers cannot build the schedule `wsd` without the length of the decay.

    Without this rule: TypeError inside `train()`.

    Source: transformers 5.23 `get_wsd_schedule`; confirmed by running it.
    """
    decay, name = spec.get("schedule.decay"), spec.text("schedule")
    if name != "wsd":
        if decay is not None:
            yield Finding(
                spec.location("schedule.decay"),
                f"`schedule {name}` has no separate decay",
                "write `schedule wsd`, or leave `decay` out",
                (spec.label("schedule", "the schedule"),),
            )
    elif decay is None:
        location = spec.location("schedule", "no `decay` is written")
        yield Finding(location, "`wsd` needs the length of its decay", "write `decay = 100`")


NEUTRAL = {"optimizer.weight_decay": 0.0, "optimizer.clip": 0.0}
"""Maps each setting to the value that switches it off, such as a weight decay of 0. Every optimizer accepts this
value.
"""


@rule("XP206", "unused-moments", "warning")
def unused_moments(spec: Spec) -> Iterator[Finding]:
    """`betas`, `eps`, `weight_decay` and `clip` need an optimizer that reads them. Only Adam and its variants read
    `betas` and `eps`. A few optimizers use no weight decay, and a few cannot clip gradients.

    Why it is bad: a setting that the optimizer does not read has no effect.

    Without this rule: nothing is reported.

    Source: transformers 5.23 `trainer_optimizer.py`, 4.52 `Trainer.get_optimizer_cls_and_kwargs`; confirmed by running
    it.
    """
    name = spec.text("optimizer")
    if name in ("adamw", "adamw_torch", "adamw_fused"):
        return
    read = reads(name)
    for path in ("optimizer.betas", "optimizer.eps", "optimizer.weight_decay", "optimizer.clip"):
        if path[10:] in read or not spec.written(path) or spec.get(path) == NEUTRAL.get(path):
            continue
        yield Finding(
            spec.location(path, f"{name} does not read it"),
            f"`{path[10:]}` does nothing for {name}",
            f"leave `{path[10:]}` out",
            (spec.label("optimizer", "the optimizer"),),
        )


@rule("XP207", "learning-rate-zero")
def learning_rate_zero(spec: Spec) -> Iterator[Finding]:
    """The learning rate must be above 0.

    Why it is bad: at 0 every step leaves the weights unchanged.

    Without this rule: nothing is reported; the run goes to its end and saves the initial model.

    Source: neither transformers nor DeepSpeed checks the learning rate.
    """
    if spec.real("optimizer.lr") == 0:
        yield Finding(
            spec.location("optimizer.lr", "changes no weight"),
            "the learning rate is 0",
            "write a number above 0 and at most 1, such as `lr = 2e-5`",
        )


LEAST_RATE, LEAST_CLIP, LEAST_TEMPERATURE = 1e-15, 1e-8, 1e-2


@rule("XP585", "nothing-can-move", "warning")
def nothing_can_move(spec: Spec) -> Iterator[Finding]:
    """The learning rate must be large enough to change the weights, `clip` large enough to leave a gradient, and the
    temperature of sampled completions large enough to make them differ.

    Why it is bad: a learning rate below 1e-15, or gradients clipped below Adam's `eps`, change no weight; at a
    temperature below 0.01 the completions of a prompt are equal, so no completion is better than another.

    Without this rule: the libraries report nothing. After ten logged steps, the bundle's trainer notices some runs that
    learn nothing (`precision { idle }`).

    Source: torch `AdamW`; trl 1.16 `grpo_trainer.py` (advantages); confirmed by running it.
    """
    bounds = {"optimizer.lr": LEAST_RATE, "optimizer.clip": LEAST_CLIP, "method.temperature": LEAST_TEMPERATURE}
    paths: tuple[RealPath, ...] = ("optimizer.lr", "optimizer.clip", "method.temperature")
    for path in paths:
        value = spec.get(path)
        if isinstance(value, int | float) and 0 < value < bounds[path]:
            name = path.rpartition(".")[2]
            yield Finding(
                spec.location(path),
                f"at `{name} = {value:g}` nothing is learned",
                write(f"{name} = {'2e-5' if name == 'lr' else '1'}"),
            )


LARGEST_BF16_SUM = 256
"""A sum in bf16 stops growing after this many equal gradients, because bf16 has 8 significant bits."""


@rule("XP209", "gradients-summed-in-bf16", "warning")
def summed_in_bf16(spec: Spec) -> Iterator[Finding]:
    """Under DeepSpeed in bf16, a step can sum at most 256 micro-batches, unless ZeRO-2 or 3 is set to sum in fp32.

    Why it is bad: gradients are summed in the dtype of the model, and bf16 has 8 significant bits: from the 257th
    micro-batch on, a gradient is less than half of the sum's last bit and does not change the sum.

    Without this rule: nothing is reported.

    Source: deepspeed 0.19.8 and 0.16.8 `runtime/engine.py` (`get_data_types`); confirmed by running it.
    """
    accum, dtype = spec.integer("batch.accum"), spec.extra_value("deepspeed", "data_types.grad_accum_dtype")
    if not spec.zero_stage or spec.text("precision") != "bf16" or accum <= LARGEST_BF16_SUM or dtype == "fp32":
        return
    fp32 = ', or `data_types.grad_accum_dtype = "fp32"` in `extra deepspeed`' if spec.zero_stage > 1 else ""
    gbs = LARGEST_BF16_SUM * spec.integer("batch.micro") * spec.replicas
    yield Finding(
        spec.label("batch.accum") or spec.location("batch.gbs", f"{accum} micro-batches in a step"),
        f"{accum} gradients are summed in bf16, and those from the {LARGEST_BF16_SUM + 1}th on change nothing",
        f"write a larger `micro`, or `gbs={gbs}`{fp32}",
        (spec.label("precision", "8 significant bits"), spec.label("strategy", "the strategy")),
    )
