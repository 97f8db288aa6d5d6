"""Rules about `extra deepspeed`, which sets keys of DeepSpeed's configuration (XP44x and XP49x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = extra("deepspeed")

ZERO = "zero_optimization"
OFFLOAD_OPTIMIZER, OFFLOAD_PARAM = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
HPZ, QGZ = f"{ZERO}.zero_hpz_partition_size", f"{ZERO}.zero_quantized_gradients"
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


def keys_under(spec: Spec, *prefixes: str) -> list[str]:
    """The keys of `extra deepspeed` that begin with one of the prefixes, such as `zero_optimization.`."""
    return [name for name in spec.extra.get("deepspeed", {}) if name.startswith(prefixes)]


def is_on(spec: Spec, name: str) -> bool:
    """Whether `extra deepspeed` sets a key to true."""
    return spec.extra_value("deepspeed", name) is True


@rule("XP440", "deepspeed-not-used")
def deepspeed_not_used(spec: Spec) -> Iterator[Finding]:
    """Keys of DeepSpeed need a ZeRO strategy, because only these strategies have a deepspeed.json.

    Why it is bad: without a ZeRO strategy, keys of DeepSpeed have no effect.

    Without this rule: keys of DeepSpeed are ignored, because transformers reads a DeepSpeed configuration only if the
    argument `deepspeed` names its file.

    Source: compiler/lower/deepspeed.py; transformers 5.23.
    """
    for name in spec.extra.get("deepspeed", {}) if not spec.zero_stage else ():
        yield Finding(
            spec.extra_location("deepspeed", name, "a key of DeepSpeed"),
            f"`{name}` has no effect with {spec.text('strategy')}",
            f"write `strategy zero2`, or leave `{name}` out",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP441", "zero-key-of-another-stage", "warning")
def key_of_another_stage(spec: Spec) -> Iterator[Finding]:
    """A ZeRO key must belong to the ZeRO stage of the run: only ZeRO-3 reads some keys, and only ZeRO-1 and ZeRO-2 read
    some others.

    Why it is bad: a key of another ZeRO stage has no effect. With `offload_param` under ZeRO-2, parameters stay on the
    GPU.

    Without this rule: DeepSpeed silently accepts and ignores a key of another ZeRO stage.

    Source: deepspeed 0.19.8 and 0.16.8 `runtime/engine.py` `_configure_zero_optimizer`; confirmed by running it.
    """
    stage = spec.zero_stage
    wrong = keys_under(spec, *(ONLY_STAGE3 if stage in (1, 2) else ONLY_STAGE1_AND_2)) if stage else []
    for name in wrong:
        owner = "ZeRO-1 and 2" if stage == 3 else "ZeRO-3"
        yield Finding(
            spec.extra_location("deepspeed", name, f"read by {owner}"),
            f"`{name}` has no effect with zero{stage}",
            f"leave `{name}` out, or write `strategy {'zero2' if stage == 3 else 'zero3'}`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP424", "elastic-checkpoint")
def elastic_checkpoint(spec: Spec) -> Iterator[Finding]:
    """`elastic_checkpoint` of ZeRO-1 and ZeRO-2 must be off if checkpoints contain the optimizer's states. Bundles
    resume with another number of processes without it.

    Why it is bad: no run can resume from such a checkpoint.

    Without this rule: AssertionError when the run resumes, because DeepSpeed expects a step count that torch's
    optimizers do not have. With deepspeed 0.16, most optimizers raise IndexError at the first checkpoint.

    Source: deepspeed 0.19.8, 0.18.2 and 0.16.8 `zero/stage_1_and_2.py` (`_restore_step_from_elastic_checkpoint`,
    `_get_state_without_padding`); confirmed by running it.
    """
    name, saves = f"{ZERO}.elastic_checkpoint", spec.flag("save.full_state") and spec.get("save.every") != NEVER
    if spec.zero_stage in (1, 2) and is_on(spec, name) and saves:
        yield Finding(
            spec.extra_location("deepspeed", name),
            "no run can resume from an elastic checkpoint of DeepSpeed",
            write(f"{name} = false", ", or leave it out"),
            (spec.label("save.every", "checkpoints"),),
        )


@rule("XP442", "final-weights-not-gathered")
def weights_not_gathered(spec: Spec) -> Iterator[Finding]:
    """ZeRO-3 must gather its sharded weights when it saves a model, so `stage3_gather_16bit_weights_on_model_save`
    cannot be false.

    Why it is bad: the run saves no model that can be loaded.

    Without this rule: transformers warns, and saves a folder with DeepSpeed's shards and a script instead of
    `model.safetensors`.

    Source: transformers 5.23 `Trainer.save_model`, accelerate 1.15 `get_state_dict`; confirmed by running it.
    """
    name = f"{ZERO}.stage3_gather_16bit_weights_on_model_save"
    if spec.zero_stage == 3 and spec.extra_value("deepspeed", name) is False:
        yield Finding(
            spec.extra_location("deepspeed", name),
            "the final save would contain no weights",
            f"leave `{name}` out",
            (spec.label("strategy", "the strategy"),),
            f"{name} = true",
        )


@rule("XP443", "partial-offload")
def partial_offload(spec: Spec) -> Iterator[Finding]:
    """Only ZeRO-3 can offload a fraction of the optimizer's states.

    Why it is bad: the run fails before its first step.

    Without this rule: ValidationError when DeepSpeed reads its configuration, inside `train()`.

    Source: deepspeed 0.19.8 and 0.16.8 `DeepSpeedZeroConfig.offload_ratio_check`; confirmed by running it.
    """
    name = f"{OFFLOAD_OPTIMIZER}.ratio"
    ratio = spec.extra_value("deepspeed", name)
    if spec.zero_stage in (1, 2) and isinstance(ratio, int | float) and ratio < 1:
        yield Finding(
            spec.extra_location("deepspeed", name, f"{ratio:g} of the states"),
            f"zero{spec.zero_stage} offloads all optimizer states or none",
            "write `strategy zero3`, or leave `ratio` out",
            (spec.label("strategy", "the strategy"),),
            f"{name} = 1.0",
        )


@rule("XP444", "offload-to-nvme")
def offload_to_nvme(spec: Spec) -> Iterator[Finding]:
    """`device = "nvme"`, which offloads states to a disk, needs ZeRO-3, the path of a folder (`nvme_path`), and
    `strategy { offload }`.

    Why it is bad: the run fails, or the states stay in host memory.

    Without this rule: if ZeRO-3 gets no path, DeepSpeed raises an error when it shards the model. ZeRO-1 and ZeRO-2
    silently offload to host memory instead of the disk.

    Source: deepspeed 0.19.8 and 0.16.8 `zero/partition_parameters.py`, `zero/stage3.py`, `zero/stage_1_and_2.py`;
    confirmed by running it.
    """
    offload = spec.text("strategy.offload")
    for block, wanted in ((OFFLOAD_OPTIMIZER, ("optimizer", "cpu")), (OFFLOAD_PARAM, ("cpu",))):
        name = f"{block}.device"
        device = spec.extra_value("deepspeed", name)
        if device is None or not spec.zero_stage or (block == OFFLOAD_PARAM and spec.zero_stage < 3):
            continue
        location = spec.extra_location("deepspeed", name)
        related = (spec.label("strategy.offload", "the offload") or spec.label("strategy", "the strategy"),)
        if device != "nvme":
            # the bundle writes `device` as the setting `offload` says, so a stated `device` (cpu or none) must agree
            # with this setting
            if device != ("cpu" if offload in wanted else "none"):
                yield Finding(
                    location,
                    f"`device = {device}` contradicts `offload`, which decides it",
                    f"leave `device` out, and write `offload = {'cpu' if device == 'cpu' else 'none'}` in `strategy`",
                    related,
                )
        elif offload not in wanted:
            what = "optimizer states" if block == OFFLOAD_OPTIMIZER else "parameters"
            yield Finding(
                location, f"no {what} are offloaded", f"write `offload = {wanted[-1]}` in `strategy`", related
            )
        elif spec.zero_stage < 3:
            yield Finding(
                spec.extra_location("deepspeed", name, "read as an offload to the CPU"),
                f"zero{spec.zero_stage} does not offload to a disk",
                "write `strategy zero3`, or leave `device` out",
                related,
            )
        elif spec.extra_value("deepspeed", f"{block}.nvme_path") is None:
            yield Finding(
                location,
                "the offload to a disk needs a folder",
                f'write `{block}.nvme_path = "/local_nvme"` next to it',
                related,
            )


@rule("XP449", "old-zero1")
def old_zero1(spec: Spec) -> Iterator[Finding]:
    """`legacy_stage1` cannot be used: it asks for DeepSpeed's first ZeRO-1, which has been removed.

    Why it is bad: the run fails before its first step.

    Without this rule: an Exception inside `train()`, after the model is loaded, on every stage.

    Source: deepspeed 0.19.8 and 0.16.8 `runtime/engine.py` `_configure_zero_optimizer`; confirmed by running it.
    """
    name = f"{ZERO}.legacy_stage1"
    if spec.zero_stage and is_on(spec, name):
        yield Finding(
            spec.extra_location("deepspeed", name),
            "DeepSpeed has removed its old implementation of ZeRO-1",
            f"leave `{name}` out",
            replace=f"{name} = false",
        )


@rule("XP492", "offload-key-without-offload")
def offload_key(spec: Spec) -> Iterator[Finding]:
    """DeepSpeed's keys of an offload, such as `zero_optimization.offload_optimizer.pin_memory`, need `strategy {
    offload }`, because only this setting decides whether anything is offloaded.

    Why it is bad: without `strategy { offload }`, nothing is offloaded.

    Without this rule: DeepSpeed accepts the offload block and offloads nothing, because the `device` in this block is
    none.

    Source: deepspeed 0.19.8 and 0.16.8 `zero/offload_config.py`; confirmed by running it.
    """
    offload = spec.text("strategy.offload")
    for block, wanted in ((OFFLOAD_OPTIMIZER, ("optimizer", "cpu")), (OFFLOAD_PARAM, ("cpu",))):
        if not spec.zero_stage or offload in wanted or (block == OFFLOAD_PARAM and spec.zero_stage < 3):
            continue
        for name in keys_under(spec, block + "."):
            if not name.endswith(".device"):
                yield Finding(
                    spec.extra_location("deepspeed", name, "nothing is offloaded"),
                    f"`{name}` needs an offload",
                    f"write `offload = {wanted[-1]}` in `strategy`, or leave the key out",
                    (spec.label("strategy", "the strategy"),),
                )


@rule("XP571", "quantized-messages-on-the-cpu")
def quantized_messages(spec: Spec) -> Iterator[Finding]:
    """ZeRO++'s quantized weights and gradients need a GPU: DeepSpeed has their kernels for GPUs only. A single process
    quantizes no gradients (XP428).

    Why it is bad: the run cannot start on a CPU.

    Without this rule: ValueError ("not been implemented on CPU backend") while the model is loaded.

    Source: deepspeed 0.19.8, 0.18.2 and 0.16.8 `op_builder/cpu/no_impl.py`, `zero/partition_parameters.py`
    (`CUDAQuantizer`); confirmed by running it.
    """
    for name in keys_under(spec, f"{ZERO}.zero_quantized_"):
        unused = name == QGZ and spec.hardware.world == 1
        if spec.zero_stage == 3 and spec.on_cpu and is_on(spec, name) and not unused:
            short = name.rpartition(".")[2]
            yield Finding(
                spec.extra_location("deepspeed", name, "DeepSpeed's kernels are for GPUs"),
                f"`{short}` needs a GPU",
                write(f"{name} = false"),
                (spec.label("hardware", "the hardware"),),
            )


@rule("XP428", "quantized-gradients-on-one-node", "warning")
def quantized_gradients(spec: Spec) -> Iterator[Finding]:
    """ZeRO++'s quantized gradients need several nodes: DeepSpeed quantizes gradients only between nodes.

    Why it is bad: on one node, `zero_quantized_gradients` has no effect.

    Without this rule: nothing is reported, and gradients are sent in full precision.

    Source: deepspeed 0.19.8, 0.18.2 and 0.16.8 `zero/stage3.py` `__avg_scatter_grads` (`num_nodes > 1`); confirmed by
    running it with one CPU process.
    """
    single = spec.hardware.world == 1 if spec.on_cpu else spec.hardware.nodes == 1
    if spec.zero_stage == 3 and single and is_on(spec, QGZ):
        yield Finding(
            spec.extra_location("deepspeed", QGZ, "gradients are quantized only between nodes"),
            "`zero_quantized_gradients` has no effect on one node",
            write(f"{QGZ} = false", ", or leave it out"),
            (spec.label("hardware", "one node"),),
        )


@rule("XP494", "gpu-storage-on-the-cpu")
def gpu_storage(spec: Spec) -> Iterator[Finding]:
    """`aio.use_gds` needs a GPU: it reads a disk directly into a GPU's memory.

    Why it is bad: the run cannot start on a CPU.

    Without this rule: AssertionError when DeepSpeed reads its configuration, whether or not anything is offloaded to a
    disk.

    Source: deepspeed 0.19.8 and 0.16.8 `swap_tensor/aio_config.py`; confirmed by running it.
    """
    if spec.zero_stage and spec.on_cpu and is_on(spec, "aio.use_gds"):
        yield Finding(
            spec.extra_location("deepspeed", "aio.use_gds", "this option reads a disk directly into a GPU's memory"),
            "`aio.use_gds` needs a GPU",
            write("aio.use_gds = false"),
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP476", "secondary-shards-do-not-divide")
def secondary_shards(spec: Spec) -> Iterator[Finding]:
    """`zero_hpz_partition_size` must divide the number of processes. With this key, ZeRO-3 keeps a second copy of the
    weights in each group of that many processes. A size above the number of processes has the same effect as the number
    of processes.

    Why it is bad: the model cannot be sharded over groups of different sizes.

    Without this rule: AssertionError, "is not divisible by", when the model is sharded.

    Source: deepspeed 0.19.8 and 0.16.8 `utils/groups.py` `_create_zero_param_parallel_group`; confirmed by running it.
    """
    name, world = HPZ, spec.hardware.world
    size = spec.extra_value("deepspeed", name)
    sound = spec.stack.facts.secondary_shards is True
    if sound and spec.zero_stage == 3 and isinstance(size, int) and 1 < size < world and world % size:
        better = next(one for one in range(size, 0, -1) if world % one == 0)
        yield Finding(
            spec.extra_location("deepspeed", name, f"{world} / {size} is not an integer"),
            f"{world} processes cannot be divided into groups of {size}",
            write(f"{name} = {better}"),
            (spec.label("hardware", f"{world} processes"),),
        )


@rule("XP478", "secondary-shards-not-written")
def unwritten_shards(spec: Spec) -> Iterator[Finding]:
    """`zero_hpz_partition_size` cannot be above 1 on DeepSpeed 0.16. With this key, each group of GPUs keeps a second
    copy of the weights, and DeepSpeed 0.16 reads this copy before it has written it.

    Why it is bad: the model trains with undefined weights.

    Without this rule: the first losses are silently too high or NaN, and the weights are lost. On two processes, all
    weights were NaN after two steps. With deepspeed 0.19.8, `zero_hpz_partition_size` changes neither losses nor
    weights.

    Source: deepspeed 0.16.8 `zero/partition_parameters.py` `_partition_param_sec`, DeepSpeed issue 7606 (fixed by
    #7707); confirmed by running it.
    """
    size = spec.extra_value("deepspeed", HPZ)
    wanted = spec.zero_stage == 3 and spec.hardware.world > 1 and isinstance(size, int) and size > 1
    if wanted and spec.stack.facts.secondary_shards is False:
        yield Finding(
            spec.extra_location("deepspeed", HPZ, f"DeepSpeed {spec.stack.pins['deepspeed']}"),
            f"with `{HPZ}`, DeepSpeed reads the second copy of the weights before it writes this copy",
            write(f"{HPZ} = 1"),
            (spec.label("target", "the target"),),
        )
