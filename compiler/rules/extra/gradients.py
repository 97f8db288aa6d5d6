"""Rules about those keys of `extra deepspeed` that concern gradients or the precision of optimizer states (XP44x, XP491
and XP493).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.extra.deepspeed import ZERO, is_on, keys_under
from xpc.compiler.spec import Spec

WHEN = extra("deepspeed")


@rule("XP445", "half-precision-master-weights")
def half_precision_masters(spec: Spec) -> Iterator[Finding]:
    """Master weights in half precision (`bf16_master_weights_and_grads`, `fp16_master_weights_and_grads`) need an
    offloaded optimizer, because only DeepSpeed's CPU Adam supports them. bf16 master weights may stay on the GPU if the
    optimizer's states are bf16, too. bf16 states need bf16 master weights. Before DeepSpeed 0.19, fp16 master weights
    work under ZeRO-2 only. DeepSpeed 0.18 and later read both keys in every precision.

    Why it is bad: the run fails before its first step.

    Without this rule: AssertionError inside `train()`.

    Source: deepspeed 0.19.8 `runtime/config.py`, `runtime/base_optimizer.py`; 0.18.2 and 0.16.8 `runtime/config.py`;
    confirmed by running it.
    """
    if not spec.zero_stage:
        return
    offloaded = spec.text("strategy.offload") != "none"
    states, related = "bf16.bf16_optimizer_states", (spec.label("strategy", "the strategy"),)
    for name in ("bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads"):
        kind, facts = name.partition(".")[0], spec.stack.facts
        if not is_on(spec, name) or (spec.text("precision") != kind and not facts.idle_precision_read):
            continue
        if kind == "fp16" and spec.zero_stage not in facts.fp16_masters_under:
            yield Finding(
                spec.extra_location("deepspeed", name, "for ZeRO-2"),
                f"{spec.stack.name} has fp16 master weights for zero2 only",
                "write `strategy zero2`" if offloaded else "write `strategy zero2(offload=optimizer)`",
                related,
            )
        elif not offloaded and not (kind == "bf16" and is_on(spec, states)):
            also = f", or `{states} = true` in `extra deepspeed`" if kind == "bf16" else ""
            yield Finding(
                spec.extra_location("deepspeed", name, "needs DeepSpeed's CPU Adam"),
                f"{kind} master weights need an offloaded optimizer",
                f"write `offload = optimizer` in `strategy`{also}",
                related,
            )
    if is_on(spec, states) and not is_on(spec, "bf16.bf16_master_weights_and_grads"):
        yield Finding(
            spec.extra_location("deepspeed", states, "the master weights are fp32"),
            "bf16 optimizer states need bf16 master weights",
            "write `bf16.bf16_master_weights_and_grads = true` next to it",
        )


@rule("XP446", "gradients-summed")
def gradients_summed(spec: Spec) -> Iterator[Finding]:
    """`gradient_allreduce_op = "sum"` should not be set: it adds up the gradients of all processes without dividing by
    the number of processes, and ZeRO-3 does not support it.

    Why it is bad: transformers scales the loss for a mean over the processes. So summed gradients are too large, by a
    factor of the number of processes. For ZeRO-1 and ZeRO-2 this rule only warns.

    Without this rule: under ZeRO-1 and ZeRO-2 the run silently trains on gradients that are too large. Under ZeRO-3
    DeepSpeed raises ValueError when it reads its configuration.

    Source: deepspeed 0.19.8 `runtime/config.py`, `zero/stage_1_and_2.py`; confirmed by running it.
    """
    operation = spec.extra_value("deepspeed", "gradient_allreduce_op")
    if not (isinstance(operation, str) and operation.lower() == "sum" and spec.zero_stage):
        return
    location = spec.extra_location("deepspeed", "gradient_allreduce_op", f"{spec.hardware.world} processes")
    if spec.zero_stage == 3:
        yield Finding(
            location,
            "zero3 cannot sum gradients",
            write('gradient_allreduce_op = "mean"', ", or `strategy zero2`"),
            (spec.label("strategy", "the strategy"),),
        )
    elif spec.hardware.world > 1:
        yield Finding(
            location,
            f"gradients are {spec.hardware.world} times as large as their mean",
            write('gradient_allreduce_op = "mean"'),
            severity="warning",
        )


@rule("XP447", "scaled-before-reduce-scatter")
def scaled_before_reduction(spec: Spec) -> Iterator[Finding]:
    """`prescale_gradients`, or a `gradient_predivide_factor` other than 1, cannot be used with ZeRO-2 and 3, because
    ZeRO-2 and 3 do not scale gradients before the reduce-scatter.

    Why it is bad: the run fails before its first step.

    Without this rule: AssertionError inside `train()`, after the model is loaded.

    Source: deepspeed 0.19.8 and 0.16.8 `zero/stage_1_and_2.py`, `zero/stage3.py`; confirmed by running it.
    """
    summed = str(spec.extra_value("deepspeed", "gradient_allreduce_op")).lower() == "sum"
    if spec.zero_stage < 2 or spec.get("strategy.reduce_scatter") is False or (summed and spec.zero_stage == 2):
        return
    factor = spec.extra_value("deepspeed", "gradient_predivide_factor")
    for name, wrong, neutral in (
        ("prescale_gradients", is_on(spec, "prescale_gradients"), "false"),
        ("gradient_predivide_factor", factor is not None and factor != 1, "1.0"),
    ):
        if wrong:
            yield Finding(
                spec.extra_location("deepspeed", name),
                f"zero{spec.zero_stage} reduce-scatters gradients without scaling them first",
                write(f"{name} = {neutral}", ", or `reduce_scatter = false` in `strategy`"),
                (spec.label("strategy", "the strategy"), spec.label("strategy.reduce_scatter")),
            )


@rule("XP491", "accumulation-left-to-the-caller")
def accumulation_left(spec: Spec) -> Iterator[Finding]:
    """`managed_gradient_accumulation` cannot be false. With true, accelerate tells DeepSpeed before each backward pass
    whether this pass completes a step. With false, DeepSpeed does not accept this information, but accelerate sends it
    anyway.

    Why it is bad: the run fails in its first step.

    Without this rule: AssertionError in the first step, after the model is loaded.

    Source: deepspeed 0.19.8 `runtime/engine.py` `set_gradient_accumulation_boundary`, accelerate 1.15
    `utils/deepspeed.py` `DeepSpeedEngineWrapper.backward`; confirmed by running it.
    """
    name: Final = "managed_gradient_accumulation"
    if spec.zero_stage and spec.extra_value("deepspeed", name) is False:
        yield Finding(
            spec.extra_location("deepspeed", name, "accelerate marks the boundary"),
            "accelerate leaves the accumulation of gradients to DeepSpeed",
            write(f"{name} = true"),
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP448", "gradient-norm-off")
def gradient_norm_off(spec: Spec) -> Iterator[Finding]:
    """`compute_grad_norm = false`, which skips the gradient's norm, needs ZeRO-1 or 2 on a GPU, and a run without
    clipping.

    Why it is bad: the run fails before its first step.

    Without this rule: ValueError inside `train()`, or ValidationError under ZeRO-3.

    Source: deepspeed 0.19.8 `DeepSpeedZeroConfig.compute_grad_norm_valid`, `zero/stage_1_and_2.py`,
    `runtime/engine.py`; confirmed by running it.
    """
    name = f"{ZERO}.compute_grad_norm"
    if not spec.zero_stage or spec.extra_value("deepspeed", name) is not False:
        return
    location, clip = spec.extra_location("deepspeed", name), spec.real("optimizer.clip")
    sums = str(spec.extra_value("deepspeed", "data_types.grad_accum_dtype")).lower()
    if spec.zero_stage == 3:
        why, help = "zero3 always computes the norm", "write `strategy zero2`"
        label = spec.label("strategy", "the strategy")
    elif clip > 0:
        why = f"clipping at {clip:g} needs the norm"
        help = "write `clip = 0`"
        label = spec.label("optimizer.clip", "the clipping")
    elif spec.text("strategy.offload") != "none":
        why, help = "an offloaded optimizer needs the norm", "leave `offload` out"
        label = spec.label("strategy.offload", "the offload")
    elif spec.zero_stage == 1 and spec.text("precision") == "bf16" and sums == "fp32":
        why = "zero1 needs the norm if it sums bf16 gradients in fp32"
        help = "leave `data_types.grad_accum_dtype` out"
        label = spec.extra_location("deepspeed", "data_types.grad_accum_dtype")
    else:
        return
    yield Finding(
        location,
        f"`{name}` cannot be false: {why}",
        write(f"{name} = true", f", or {help}"),
        (label,),
    )


@rule("XP493", "key-of-another-precision", "warning")
def key_of_another_precision(spec: Spec) -> Iterator[Finding]:
    """Keys of DeepSpeed's `bf16` block need a run in bf16, and keys of its `fp16` block a run in fp16. The rule XP445
    checks the keys for master weights, because in some versions they have an effect in every precision.

    Why it is bad: a key of the block `fp16` has no effect in a run in bf16, and a key of the block `bf16` has none in
    fp16. Most keys of the block `fp16` set loss scaling, which bf16 does not need.

    Without this rule: DeepSpeed silently ignores the block of the other precision, such as `fp16` in a run in bf16.

    Source: deepspeed 0.19.8 `runtime/precision_config.py`, 0.16.8 `runtime/config.py`; read, not run.
    """
    precision, read = spec.text("precision"), spec.stack.facts.idle_precision_read
    for kind in ("bf16", "fp16"):
        for name in keys_under(spec, kind + ".") if spec.zero_stage and precision != kind else ():
            if read and name.endswith("master_weights_and_grads"):
                continue
            yield Finding(
                spec.extra_location("deepspeed", name, f"read in {kind}"),
                f"`{name}` has no effect in {precision}",
                f"leave `{name}` out",
                (spec.label("precision", "the precision"),),
            )
