"""`extra deepspeed`: keys of DeepSpeed's configuration (XP44x and XP49x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec

ZERO = "zero_optimization"
OFFLOAD_OPTIMIZER, OFFLOAD_PARAM = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
HPZ = f"{ZERO}.zero_hpz_partition_size"
ONLY_STAGE3 = (
    f"{ZERO}.stage3_",
    f"{OFFLOAD_PARAM}.",
    f"{ZERO}.sub_group_size",
    HPZ,
    f"{ZERO}.zero_quantized_",
    f"{ZERO}.memory_efficient_linear",
    f"{ZERO}.override_module_apply",
    f"{OFFLOAD_OPTIMIZER}.super_offload",
    f"{OFFLOAD_OPTIMIZER}.cpuadam_cores_perc",
)
ONLY_STAGE1_AND_2 = (
    f"{ZERO}.parameter_alignment",
    f"{ZERO}.ignore_unused_parameters",
    f"{ZERO}.use_multi_rank_bucket_allreduce",
    f"{ZERO}.elastic_checkpoint",
)


def _names(spec: Spec, *heads: str) -> list[str]:
    """What `extra deepspeed` names under one of some beginnings."""
    return [name for name in spec.extra.get("deepspeed", {}) if name.startswith(heads)]


def _on(spec: Spec, name: str) -> bool:
    return spec.extra_value("deepspeed", name) is True


@rule("XP440", "deepspeed-not-used")
def deepspeed_not_used(spec: Spec) -> Iterator[Finding]:
    """Only the ZeRO strategies use DeepSpeed; under another there is no deepspeed.json that a key could stand in.

    Source: the compiler's own lowering; transformers 5.23 reads a DeepSpeed file only where `deepspeed` names one.
    """
    for name in spec.extra.get("deepspeed", {}) if not spec.zero_stage else ():
        yield Finding(
            spec.extra_place("deepspeed", name, "a key of DeepSpeed"),
            f"`{name}` does nothing for {spec.text('strategy')}",
            "write `strategy zero2`, or leave it out",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP441", "zero-key-of-another-stage", "warning")
def key_of_another_stage(spec: Spec) -> Iterator[Finding]:
    """Some keys are read by ZeRO-3 only, some by ZeRO-1 and 2 only; elsewhere DeepSpeed accepts and ignores them.

    Offloaded parameters are the costly one: under ZeRO-2 they stay on the GPU without a word. Source: deepspeed 0.19.8
    and 0.16.8 `runtime/engine.py` `_configure_zero_optimizer`; executed.
    """
    stage = spec.zero_stage
    wrong = _names(spec, *(ONLY_STAGE3 if stage in (1, 2) else ONLY_STAGE1_AND_2)) if stage else []
    for name in wrong:
        owner = "ZeRO-1 and 2" if stage == 3 else "ZeRO-3"
        yield Finding(
            spec.extra_place("deepspeed", name, f"read by {owner}"),
            f"`{name}` does nothing for zero{stage}",
            f"leave `{name}` out, or write `strategy {'zero2' if stage == 3 else 'zero3'}`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP442", "final-weights-not-gathered")
def weights_not_gathered(spec: Spec) -> Iterator[Finding]:
    """ZeRO-3 gathers its sharded weights when a model is saved, unless it is told not to: then no model is left.

    Today: a warning, and a folder with DeepSpeed's shards and a script in place of `model.safetensors`. Source:
    transformers 5.23 `Trainer.save_model`, accelerate 1.15 `get_state_dict`; executed.
    """
    name = f"{ZERO}.stage3_gather_16bit_weights_on_model_save"
    if spec.zero_stage == 3 and spec.extra_value("deepspeed", name) is False:
        yield Finding(
            spec.extra_place("deepspeed", name),
            "the final save would hold no weights",
            f"leave `{name}` out",
            (spec.label("strategy", "the strategy"),),
            f"{name} = true",
        )


@rule("XP443", "partial-offload")
def partial_offload(spec: Spec) -> Iterator[Finding]:
    """Only ZeRO-3 can offload a share of the optimizer's states.

    Today: ValidationError when DeepSpeed reads its configuration, inside `train()`. Source: deepspeed 0.19.8 and
    0.16.8 `DeepSpeedZeroConfig.offload_ratio_check`; executed.
    """
    name = f"{OFFLOAD_OPTIMIZER}.ratio"
    ratio = spec.extra_value("deepspeed", name)
    if spec.zero_stage in (1, 2) and isinstance(ratio, int | float) and ratio < 1:
        yield Finding(
            spec.extra_place("deepspeed", name, f"{ratio:g} of the states"),
            f"zero{spec.zero_stage} offloads all optimizer states or none",
            "write `strategy zero3`, or leave `ratio` out",
            (spec.label("strategy", "the strategy"),),
            f"{name} = 1.0",
        )


@rule("XP444", "offload-to-nvme")
def offload_to_nvme(spec: Spec) -> Iterator[Finding]:
    """`device = "nvme"` moves what `offload` keeps in host memory on to a disk: for ZeRO-3, with a path.

    Without a path DeepSpeed fails an assertion or a path operation when the model is sharded; ZeRO-1 and 2 take nvme
    for the CPU and say nothing. Which states are offloaded is decided by `strategy { offload }`. Source: deepspeed
    0.19.8 and 0.16.8 `zero/partition_parameters.py`, `zero/stage3.py`, `zero/stage_1_and_2.py`; executed.
    """
    offload = spec.text("strategy.offload")
    for block, wanted in ((OFFLOAD_OPTIMIZER, ("optimizer", "cpu")), (OFFLOAD_PARAM, ("cpu",))):
        name = f"{block}.device"
        device = spec.extra_value("deepspeed", name)
        if device is None or not spec.zero_stage or (block == OFFLOAD_PARAM and spec.zero_stage < 3):
            continue
        place = spec.extra_place("deepspeed", name)
        related = (spec.label("strategy.offload", "the offload") or spec.label("strategy", "the strategy"),)
        if device != "nvme":
            if device != ("cpu" if offload in wanted else "none"):  # else it says what stands there anyway
                yield Finding(
                    place,
                    f"`device = {device}` is what `offload` decides",
                    f"leave `device` out, and write `offload = {'cpu' if device == 'cpu' else 'none'}` in `strategy`",
                    related,
                )
        elif offload not in wanted:
            what = "optimizer states" if block == OFFLOAD_OPTIMIZER else "parameters"
            yield Finding(place, f"no {what} are offloaded", f"write `offload = {wanted[-1]}` in `strategy`", related)
        elif spec.zero_stage < 3:
            yield Finding(
                spec.extra_place("deepspeed", name, "taken for the CPU"),
                f"zero{spec.zero_stage} does not offload to a disk",
                "write `strategy zero3`, or leave `device` out",
                related,
            )
        elif spec.extra_value("deepspeed", f"{block}.nvme_path") is None:
            yield Finding(
                place,
                "the offload to a disk has no folder",
                f'write `{block}.nvme_path = "/local_nvme"` beside it',
                related,
            )


@rule("XP445", "half-precision-master-weights")
def half_precision_masters(spec: Spec) -> Iterator[Finding]:
    """Master weights in half precision need DeepSpeed's CPU Adam, so the optimizer must be offloaded.

    bf16 masters may stay on the GPU where the optimizer's states are bf16, too; those states in turn need bf16 masters.
    DeepSpeed 0.16 has fp16 masters for ZeRO-2 alone. Today: AssertionError inside `train()`. Source: deepspeed 0.19.8
    `runtime/config.py`, `runtime/base_optimizer.py`; 0.16.8 `runtime/config.py`; executed.
    """
    if not spec.zero_stage:
        return
    offloaded = spec.text("strategy.offload") != "none"
    states, related = "bf16.bf16_optimizer_states", (spec.label("strategy", "the strategy"),)
    for name in ("bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads"):
        kind, old = name.partition(".")[0], not spec.target.keys("deepspeed_removed")
        if not _on(spec, name) or (old and spec.text("precision") != kind):
            continue  # DeepSpeed 0.16 reads a block only where it is switched on
        if not offloaded and not (kind == "bf16" and _on(spec, states)):
            also = f", or `{states} = true` beside it" if kind == "bf16" else ""
            yield Finding(
                spec.extra_place("deepspeed", name, "needs DeepSpeed's CPU Adam"),
                f"{kind} master weights without an offloaded optimizer",
                f"write `offload = optimizer` in `strategy`{also}",
                related,
            )
        elif kind == "fp16" and old and spec.zero_stage != 2:
            yield Finding(
                spec.extra_place("deepspeed", name, "for ZeRO-2"),
                f"{spec.target.name} has fp16 master weights for zero2 only",
                "write `strategy zero2`",
                related,
            )
    if _on(spec, states) and not _on(spec, "bf16.bf16_master_weights_and_grads"):
        yield Finding(
            spec.extra_place("deepspeed", states, "needs bf16 master weights"),
            "bf16 optimizer states over fp32 master weights",
            "write `bf16.bf16_master_weights_and_grads = true` beside it",
        )


@rule("XP446", "gradients-summed")
def gradients_summed(spec: Spec) -> Iterator[Finding]:
    """`gradient_allreduce_op = "sum"` leaves out the division by the processes, and ZeRO-3 cannot do it at all.

    transformers scales the loss for a mean, so that summed gradients are as many times too large as there are processes
    (a warning); under ZeRO-3 DeepSpeed raises ValueError when it reads its configuration. Source: deepspeed 0.19.8
    `runtime/config.py`, `zero/stage_1_and_2.py`; executed.
    """
    operation = spec.extra_value("deepspeed", "gradient_allreduce_op")
    if not (isinstance(operation, str) and operation.lower() == "sum" and spec.zero_stage):
        return
    place = spec.extra_place("deepspeed", "gradient_allreduce_op", f"{spec.hardware.world} processes")
    if spec.zero_stage == 3:
        yield Finding(
            place,
            "zero3 cannot sum gradients",
            'write `gradient_allreduce_op = "mean"`, or `strategy zero2`',
            (spec.label("strategy", "the strategy"),),
            'gradient_allreduce_op = "mean"',
        )
    elif spec.hardware.world > 1:
        yield Finding(
            place,
            f"gradients are {spec.hardware.world} times those of the mean",
            'write `gradient_allreduce_op = "mean"`',
            replace='gradient_allreduce_op = "mean"',
            severity="warning",
        )


@rule("XP447", "scaled-before-reduce-scatter")
def scaled_before_reduction(spec: Spec) -> Iterator[Finding]:
    """ZeRO-2 and 3 reduce-scatter gradients as they are: no division before, and none by another factor.

    Today: AssertionError inside `train()`, after the model is loaded. Source: deepspeed 0.19.8 and 0.16.8
    `zero/stage_1_and_2.py`, `zero/stage3.py`; executed.
    """
    summed = str(spec.extra_value("deepspeed", "gradient_allreduce_op")).lower() == "sum"
    if spec.zero_stage < 2 or spec.get("strategy.reduce_scatter") is False or (summed and spec.zero_stage == 2):
        return
    factor = spec.extra_value("deepspeed", "gradient_predivide_factor")
    for name, wrong, neutral in (
        ("prescale_gradients", _on(spec, "prescale_gradients"), "false"),
        ("gradient_predivide_factor", factor is not None and factor != 1, "1.0"),
    ):
        if wrong:
            yield Finding(
                spec.extra_place("deepspeed", name),
                f"zero{spec.zero_stage} scatters gradients without scaling them first",
                f"write `{name} = {neutral}`, or `reduce_scatter = false` in `strategy`",
                (spec.label("strategy", "the strategy"), spec.label("strategy.reduce_scatter")),
                f"{name} = {neutral}",
            )


@rule("XP448", "gradient-norm-off")
def gradient_norm_off(spec: Spec) -> Iterator[Finding]:
    """Without the gradient's norm nothing can be clipped, and only ZeRO-1 and 2 on the GPU can do without it.

    Today: ValueError inside `train()`, or ValidationError under ZeRO-3. Source: deepspeed 0.19.8
    `DeepSpeedZeroConfig.compute_grad_norm_valid`, `zero/stage_1_and_2.py`, `runtime/engine.py`; executed.
    """
    name = f"{ZERO}.compute_grad_norm"
    if not spec.zero_stage or spec.extra_value("deepspeed", name) is not False:
        return
    place, clip = spec.extra_place("deepspeed", name), spec.real("optimizer.clip")
    sums = str(spec.extra_value("deepspeed", "data_types.grad_accum_dtype")).lower()
    if spec.zero_stage == 3:
        why, help, label = "zero3 always computes it", "write `strategy zero2`", spec.label("strategy", "the strategy")
    elif clip > 0:
        why, help, label = (
            f"clipping at {clip:g} needs it",
            "write `clip = 0`",
            spec.label("optimizer.clip", "the clipping"),
        )
    elif spec.text("strategy.offload") != "none":
        why, help = "an offloaded optimizer needs it", "leave `offload` out"
        label = spec.label("strategy.offload", "the offload")
    elif spec.zero_stage == 1 and spec.text("precision") == "bf16" and sums == "fp32":
        why, help = "zero1 needs it where bf16 gradients are summed in fp32", "leave `data_types.grad_accum_dtype` out"
        label = spec.extra_place("deepspeed", "data_types.grad_accum_dtype")
    else:
        return
    yield Finding(
        place,
        f"the gradient's norm cannot be left out: {why}",
        f"write `{name} = true`, or {help}",
        (label,),
        f"{name} = true",
    )


@rule("XP449", "old-zero1")
def old_zero1(spec: Spec) -> Iterator[Finding]:
    """DeepSpeed still knows the name of its first ZeRO-1, and raises where it is asked for.

    Today: an Exception inside `train()`, after the model is loaded, on every stage. Source: deepspeed 0.19.8 and 0.16.8
    `runtime/engine.py` `_configure_zero_optimizer`; executed.
    """
    name = f"{ZERO}.legacy_stage1"
    if spec.zero_stage and _on(spec, name):
        yield Finding(
            spec.extra_place("deepspeed", name),
            "DeepSpeed has no second ZeRO-1 any more",
            f"leave `{name}` out",
            replace=f"{name} = false",
        )


@rule("XP492", "offload-key-without-offload")
def offload_key(spec: Spec) -> Iterator[Finding]:
    """The keys of an offload say how; whether anything is offloaded is said by `strategy { offload }` alone.

    DeepSpeed accepts the block and offloads nothing, because its device is none. Source: deepspeed 0.19.8 and 0.16.8
    `zero/offload_config.py`; executed.
    """
    offload = spec.text("strategy.offload")
    for block, wanted in ((OFFLOAD_OPTIMIZER, ("optimizer", "cpu")), (OFFLOAD_PARAM, ("cpu",))):
        if not spec.zero_stage or offload in wanted or (block == OFFLOAD_PARAM and spec.zero_stage < 3):
            continue
        for name in _names(spec, block + "."):
            if not name.endswith(".device"):
                yield Finding(
                    spec.extra_place("deepspeed", name, "nothing is offloaded"),
                    f"`{name}` without an offload",
                    f"write `offload = {wanted[-1]}` in `strategy`, or leave it out",
                    (spec.label("strategy", "the strategy"),),
                )


@rule("XP493", "key-of-another-precision", "warning")
def key_of_another_precision(spec: Spec) -> Iterator[Finding]:
    """DeepSpeed reads its `bf16` block in bf16 and its `fp16` block in fp16; the other lies unread.

    Loss scaling is the usual case: bf16 has none. Source: deepspeed 0.19.8 `runtime/precision_config.py`, 0.16.8
    `runtime/config.py`.
    """
    precision = spec.text("precision")
    for kind in ("bf16", "fp16"):
        for name in _names(spec, kind + ".") if spec.zero_stage and precision != kind else ():
            yield Finding(
                spec.extra_place("deepspeed", name, f"read in {kind}"),
                f"`{name}` does nothing in {precision}",
                f"leave `{name}` out",
                (spec.label("precision", "the precision"),),
            )


@rule("XP494", "gpu-storage-on-the-cpu")
def gpu_storage(spec: Spec) -> Iterator[Finding]:
    """`aio.use_gds` reads a disk straight into a GPU's memory, which a run on the CPU has not.

    Today: AssertionError when DeepSpeed reads its configuration, whether or not anything is offloaded to a disk.
    Source: deepspeed 0.19.8 and 0.16.8 `swap_tensor/aio_config.py`; executed.
    """
    if spec.zero_stage and spec.on_cpu and _on(spec, "aio.use_gds"):
        yield Finding(
            spec.extra_place("deepspeed", "aio.use_gds", "a disk and a GPU"),
            "there is no GPU to read a disk into",
            "write `aio.use_gds = false`",
            (spec.label("hardware", "the hardware"),),
            "aio.use_gds = false",
        )


@rule("XP476", "secondary-shards-do-not-divide")
def secondary_shards(spec: Spec) -> Iterator[Finding]:
    """ZeRO-3's second copy of the weights is spread over `zero_hpz_partition_size` processes, which divide all of them.

    A size beyond the processes is taken for their number. Today: AssertionError, "is not divisible by", when the model
    is sharded. Source: deepspeed 0.19.8 and 0.16.8 `utils/groups.py` `_create_zero_param_parallel_group`; executed.
    """
    name, world = HPZ, spec.hardware.world
    size = spec.extra_value("deepspeed", name)
    sound = spec.target.facts["secondary_shards"] is True
    if sound and spec.zero_stage == 3 and isinstance(size, int) and 1 < size < world and world % size:
        better = next(one for one in range(size, 0, -1) if world % one == 0)
        yield Finding(
            spec.extra_place("deepspeed", name, f"{world} / {size} is no whole number"),
            f"copies over {size} processes do not fill {world}",
            f"write `{name} = {better}`",
            (spec.label("hardware", f"{world} processes"),),
            f"{name} = {better}",
        )


@rule("XP478", "secondary-shards-not-written")
def unwritten_shards(spec: Spec) -> Iterator[Finding]:
    """DeepSpeed 0.16 reads the second copy of the weights that `zero_hpz_partition_size` keeps before it has any in it.

    Today, silently: the first losses are too high, or nan, and the weights with them. Source: deepspeed 0.16.8
    `zero/partition_parameters.py` `_partition_param_sec`, DeepSpeed issue 7606 (mended by #7707); executed (all weights
    nan after two steps on two processes). deepspeed 0.19.8 computes what it computes without.
    """
    size = spec.extra_value("deepspeed", HPZ)
    wanted = spec.zero_stage == 3 and spec.hardware.world > 1 and isinstance(size, int) and size > 1
    if wanted and spec.target.facts["secondary_shards"] is False:
        yield Finding(
            spec.extra_place("deepspeed", HPZ, f"DeepSpeed {spec.target.pins['deepspeed']}"),
            "the second copy of the weights is read before it is written",
            f"write `{HPZ} = 1`",
            (spec.label("target", "the target"),),
            f"{HPZ} = 1",
        )


RULES = (
    secondary_shards,
    unwritten_shards,
    gpu_storage,
    deepspeed_not_used,
    key_of_another_stage,
    weights_not_gathered,
    partial_offload,
    offload_to_nvme,
    half_precision_masters,
    gradients_summed,
    scaled_before_reduction,
    gradient_norm_off,
    old_zero1,
    offload_key,
    key_of_another_precision,
)
