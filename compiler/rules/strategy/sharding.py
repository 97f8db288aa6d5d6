"""Rules about strategies: which hardware, settings and models each strategy supports (XP4xx)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.optimizers import package
from xpc.compiler.language.schema import path_of
from xpc.compiler.language.setting import Path
from xpc.compiler.plan.divisors import largest
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

ZERO_ONLY = (
    "overlap_comm",
    "allgather_bucket",
    "reduce_bucket",
    "round_robin_gradients",
    "reduce_scatter",
    "contiguous_gradients",
)
FSDP_ONLY = ("reshard", "state_dict")


@rule("XP401", "fsdp-activation-checkpointing")
def fsdp_activation_checkpointing(spec: Spec) -> Iterator[Finding]:
    """FSDP's own activation checkpointing (`fsdp_activation_checkpointing`) must stay off. `memory { checkpointing }`
    turns on the checkpointing of the trainer, which works with every strategy.

    Why it is bad: if both kinds of checkpointing are on, activations are recomputed twice, or the trainer refuses the
    combination.

    Without this rule: ValueError after the model is loaded, because TRL turns its own checkpointing on by default.

    Source: transformers 5.23 `trainer.py`; confirmed by running it.
    """
    if spec.get("strategy.activation_checkpointing") is not None:
        yield Finding(
            spec.location("strategy.activation_checkpointing", "FSDP's own"),
            "FSDP's own activation checkpointing is never used",
            "write `memory(checkpointing)` instead",
            (spec.label("memory.checkpointing", "the setting for it"),),
        )
    name = "fsdp_activation_checkpointing"
    if spec.extra_value("accelerate", name) is True:
        yield Finding(
            spec.extra_location("accelerate", name),
            "FSDP's own activation checkpointing is never used",
            write(
                "fsdp_activation_checkpointing = false", ", or leave it out; `memory(checkpointing)` works everywhere"
            ),
            (spec.label("memory.checkpointing", "the setting for it"),),
        )


@rule("XP437", "family-not-loaded-under-zero3")
def not_loaded(spec: Spec) -> Iterator[Finding]:
    """transformers 4.57 cannot load gemma 3 under ZeRO-3.

    Why it is bad: gemma 3's embedding has a buffer that no checkpoint contains. Because of this buffer, transformers
    treats the complete embedding as missing and tries to initialize it, although each process has only a shard of it.

    Without this rule: IndexError while the model is loaded.

    Source: transformers 4.57 `modeling_utils.py` (`_initialize_missing_keys`); confirmed by running it.
    """
    if spec.zero_stage == 3 and not spec.bits and spec.model.model_type in spec.stack.facts.zero3_cannot_draw:
        other = able(lambda one: spec.model.model_type not in one.facts.zero3_cannot_draw)
        yield Finding(
            spec.location("strategy"),
            f"{spec.stack.name} cannot load {spec.model.model_type} under zero3",
            f"write `strategy zero2`, or `target {other}`",
            (spec.model.label, spec.label("target", "the target")),
            "zero2",
        )


@rule("XP402", "fsdp-on-cpu")
def fsdp_on_cpu(spec: Spec) -> Iterator[Finding]:
    """FSDP needs GPUs.

    Why it is bad: accelerate turns FSDP on a CPU into plain DDP, so nothing is sharded.

    Without this rule: nothing is reported, and the model is wrapped in DistributedDataParallel.

    Source: accelerate 1.15 `state.py`; confirmed by running it.
    """
    if spec.on_cpu and spec.sharded_by_fsdp:
        location = spec.location("strategy", "becomes ddp on a CPU")
        yield Finding(
            location,
            f"{spec.text('strategy')} on the CPU shards nothing",
            "write `strategy zero3`",
            (spec.label("hardware", "the hardware"),),
            "zero3" if location.typed.isalnum() else None,
        )


@rule("XP403", "fsdp-one-process")
def fsdp_one_process(spec: Spec) -> Iterator[Finding]:
    """FSDP needs more than one process.

    Why it is bad: one process has nothing to shard over.

    Without this rule: transformers refuses FSDP in a single process, after the model is loaded.

    Source: transformers 5.23 `trainer.py`; confirmed by running it.
    """
    if spec.sharded_by_fsdp and spec.hardware.world == 1 and not spec.on_cpu:
        yield Finding(
            spec.location("strategy", "one process has nothing to shard over"),
            f"{spec.text('strategy')} needs more than one GPU",
            "write `strategy ddp`, or more hardware",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP404", "setting-of-another-strategy")
def setting_of_another_strategy(spec: Spec) -> Iterator[Finding]:
    """A setting of DeepSpeed needs a ZeRO strategy, and a setting of FSDP needs an FSDP strategy. Buckets and copies of
    gradients are settings of DeepSpeed; resharding and state dicts are settings of FSDP; `shard` is a setting of hsdp.

    Why it is bad: a setting of FSDP has no effect under ZeRO, and a setting of DeepSpeed has none under FSDP.

    Without this rule: nothing is reported, and the setting is ignored, such as a bucket size of DeepSpeed under FSDP.

    Source: deepspeed 0.19.8 `runtime/zero/config.py`; accelerate 1.15 `FullyShardedDataParallelPlugin`.
    """
    strategy = spec.text("strategy")
    wrong: list[tuple[str, str]] = []
    if not spec.zero_stage:
        wrong += [(name, "ZeRO") for name in ZERO_ONLY]
    if not spec.sharded_by_fsdp:
        wrong += [(name, "FSDP") for name in FSDP_ONLY]
    if strategy != "hsdp":
        wrong.append(("shard", "hsdp"))
    for name, owner in wrong:
        path = path_of(f"strategy.{name}")
        if spec.written(path):
            yield Finding(
                spec.location(path, f"a setting of {owner}"),
                f"`{name}` does nothing for {strategy}",
                f"leave `{name}` out",
                (spec.label("strategy", "the strategy"),),
            )
    if strategy == "zero3" and spec.flag("strategy.round_robin_gradients"):
        yield Finding(
            spec.location("strategy.round_robin_gradients", "a setting of ZeRO-1 and 2"),
            "`round_robin_gradients` does nothing for zero3",
            "leave `round_robin_gradients` out",
            (spec.label("strategy", "the strategy"),),
            severity="warning",
        )


@rule("XP407", "sharded-8bit-optimizer")
def sharded_8bit(spec: Spec) -> Iterator[Finding]:
    """Optimizers of bitsandbytes cannot be used under FSDP2, nor under FSDP1 with offloaded parameters. bitsandbytes
    implements all paged optimizers, all 8-bit optimizers except those of torchao, and some 32-bit optimizers, such as
    Lion.

    Why it is bad: bitsandbytes' optimizers cannot step sharded tensors, and have no kernels for a CPU.

    Without this rule: NotImplementedError at the first step under FSDP2.

    Source: transformers 5.23 `trainer_optimizer.py`; bitsandbytes issues 89 and 1633; confirmed by running it.
    """
    name, strategy = spec.text("optimizer"), spec.text("strategy")
    if package(name) != "bitsandbytes" and name != "galore_adamw8bit":
        return
    fsdp2 = strategy in ("fsdp", "hsdp") and spec.stack.facts.fsdp2
    offloaded = spec.sharded_by_fsdp and spec.text("strategy.offload") == "cpu"
    if fsdp2 or offloaded:
        yield Finding(
            spec.location("optimizer", "an optimizer of bitsandbytes"),
            f"{name} cannot step {'sharded' if fsdp2 else 'offloaded'} parameters",
            "write `optimizer adamw`",
            (spec.label("strategy" if fsdp2 else "strategy.offload", "the strategy" if fsdp2 else "the offload"),),
        )


@rule("XP408", "hybrid-mesh")
def hybrid_mesh(spec: Spec) -> Iterator[Finding]:
    """hsdp needs at least two groups of equal size, each of more than one process. On trl-0.18, whose hsdp is FSDP1's,
    the processes of a node are a group.

    Why it is bad: hsdp divides the processes into groups. Each group keeps a copy of the model, and shards this copy
    over its processes.

    Without this rule: if the processes cannot be divided into equal groups, the device mesh cannot be built. A single
    group is the same as fsdp, and groups of one process shard nothing. FSDP1 silently ignores `shard`.

    Source: accelerate 1.15 `parallelism_config.py`; torch 2.13 `fully_shard` on a 2-D mesh, `fsdp/_init_utils.py`
    (`_init_process_group_state_for_hybrid_shard`).
    """
    if spec.text("strategy") != "hsdp":
        return
    world, shard = spec.hardware.world, spec.integer("strategy.shard")
    if world % shard:
        fitting = largest(shard, world)
        yield Finding(
            spec.location("strategy.shard", f"{world} / {shard} = {world / shard:.2f}"),
            f"{world} processes cannot be divided into groups of {shard}",
            write(f"shard = {fitting}"),
        )
    elif shard == world:
        yield Finding(
            spec.location("strategy", f"{world} processes make one group of {shard}"),
            "hsdp with one group is the same as fsdp",
            "write `strategy fsdp`, a smaller `shard`, or more `nodes`",
            (spec.label("nodes"), spec.label("strategy.shard")),
        )
    elif shard == 1:
        yield Finding(
            spec.location("strategy.shard"),
            "groups of one process shard nothing",
            "write `strategy ddp` without `shard`",
        )
    elif spec.by_fsdp1 and shard != spec.hardware.processes:
        other = f"write `target {able(lambda one: one.facts.hsdp != 'fsdp1')}`"
        yield Finding(
            spec.location("strategy.shard"),
            f"hsdp on {spec.stack.name} shards over the {spec.hardware.processes} processes of a node",
            f"leave `shard` out, or {other}" if spec.hardware.nodes > 1 else f"{other}, or `strategy fsdp1` alone",
            (spec.label("target", "the target"),),
        )


@rule("XP488", "accumulation-lost-by-zero2")
def accumulation_lost(spec: Spec) -> Iterator[Finding]:
    """On DeepSpeed 0.18.2, ZeRO-2 cannot be combined with accumulation. An offloaded optimizer is exempt, because
    offloading keeps the sum of the gradients. ZeRO-1 and ZeRO-3 sum gradients correctly, and so does ZeRO-2 of
    deepspeed 0.16.8 and 0.19.8.

    Why it is bad: each backward pass overwrites the gradients of the pass before, so a step uses only the gradients of
    the last micro-batch.

    Without this rule: nothing is reported. In one run, the gradient norm was half of the correct norm with two
    micro-batches, and a quarter of it with four.

    Source: deepspeed 0.18.2 `zero/stage_1_and_2.py` `independent_gradient_partition_epilogue` (it would add to
    `averaged_gradients`, but this is None until the step); confirmed by running it.
    """
    lost = not spec.stack.facts.zero2_accumulates and spec.text("strategy.offload") == "none"
    if spec.zero_stage == 2 and spec.integer("batch.accum") > 1 and lost:
        steps = spec.integer("batch.accum")
        yield Finding(
            spec.location("strategy", f"{steps} micro-batches a step, and {steps - 1} are lost"),
            f"{spec.text('strategy')} on {spec.stack.name} learns only from the last micro-batch of a step",
            "write `strategy zero1`, or a `micro` that makes the accumulation 1",
            (spec.label("batch.micro"), spec.label("target", "the target")),
        )


@rule("XP409", "strategy-not-in-the-target")
def strategy_target(spec: Spec) -> Iterator[Finding]:
    """The stack that `target` names must support the `strategy`. FSDP2 came with accelerate 1.6, and trl-0.18 pins
    accelerate 1.4.

    Why it is bad: the run would use another strategy than the spec states.

    Without this rule: accelerate 1.4 silently uses FSDP1.

    Source: accelerate 1.4.0 `FullyShardedDataParallelPlugin` (no `fsdp_version`).
    """
    strategy, legal = spec.text("strategy"), spec.stack.facts.strategies
    if strategy not in legal:
        other = "fsdp1" if strategy == "fsdp" else "zero3"
        yield Finding(
            spec.location("strategy"),
            f"{spec.stack.name} has no {strategy}",
            f"write `strategy {other}`",
            (spec.label("target", "the target"),),
        )


@rule("XP410", "fsdp1-deprecated", "warning")
def fsdp1_deprecated(spec: Spec) -> Iterator[Finding]:
    """`strategy fsdp1` should not be used; `strategy fsdp` is FSDP2, its successor.

    Why it is bad: transformers 5 announces that it will remove FSDP1.

    Without this rule: transformers only warns.

    Source: transformers 5.23 `training_args.py`; confirmed by running it.
    """
    # the rule XP582 already reports a run in which FSDP1 would lose adapters
    if spec.text("strategy") == "fsdp1" and spec.stack.facts.fsdp2 and not _adapter_lost(spec):
        yield Finding(
            spec.location("strategy"), "FSDP1 is about to be removed from transformers", "write `strategy fsdp`"
        )


@rule("XP411", "sharded-weights-only")
def sharded_weights_only(spec: Spec) -> Iterator[Finding]:
    """Sharded checkpoints need `full_state`.

    Why it is bad: sharded checkpoints contain weights and states together; this format cannot store weights alone.

    Without this rule: ValueError after the model is loaded.

    Source: transformers 5.23 `trainer.py`; confirmed by running it.
    """
    if spec.sharded_by_fsdp and spec.get("strategy.state_dict") == "sharded" and not spec.flag("save.full_state"):
        yield Finding(
            spec.location("strategy.state_dict"),
            "a sharded checkpoint cannot contain only the weights, as `full_state = false` requires",
            write("state_dict = full"),
            (spec.label("save.full_state", "set here"),),
        )


@rule("XP582", "adapter-lost-on-resume")
def adapter_lost_on_resume(spec: Spec) -> Iterator[Finding]:
    """Adapters under FSDP need a kind of checkpoint from which the complete adapter can be restored. On trl-1.16, every
    checkpoint of FSDP2 is of this kind. On trl-0.24, only a checkpoint with `state_dict = sharded` is; this is the
    default for adapters on trl-0.24. With a device mesh (hsdp, or `context_parallel`), trl-0.24 cannot save adapters at
    all.

    Why it is bad: a resumed run continues with an adapter that is partly or completely untrained, at the learning rate
    and with the optimizer states of a later step.

    Without this rule: nothing is reported, except by a run with a device mesh, which ends at its first checkpoint
    (RuntimeError, because transformers 4.57 lets peft save weights that are sharded). accelerate before 1.15 writes
    only the shard of the first process into a full checkpoint of FSDP2; peft 0.21 does not recognize the names of
    weights under FSDP1, and loads none of them.

    Source: accelerate pull request 4206; peft 0.21 `utils/save_and_load.py`; confirmed by running it with two processes
    (`tests/faults/test_fsdp_states.py`).
    """
    lost, meshed = _adapter_lost(spec), spec.text("strategy") == "hsdp" or spec.context_parallel > 1
    if spec.lora and meshed and spec.sharded_by_fsdp and "mesh" in spec.stack.facts.fsdp_adapters_lost:
        path: Path = "strategy" if spec.text("strategy") == "hsdp" else "strategy.context_parallel"
        yield Finding(
            spec.location(path, "needs a device mesh"),
            f"{spec.stack.name} cannot save adapters of a run with a device mesh",
            f"write `target {able(lambda one: 'mesh' not in one.facts.fsdp_adapters_lost)}`, or `strategy fsdp`",
            (spec.label("lora", "the adapter"), spec.label("target", "the target")),
        )
    elif lost == "fsdp1":
        yield Finding(
            spec.location("strategy"),
            f"on {spec.stack.name}, a checkpoint of FSDP1 does not restore the adapter",
            "write `strategy fsdp`, or `save(resume=never)`",
            (spec.label("lora", "the adapter"),),
        )
    elif lost:
        yield Finding(
            spec.location("strategy.state_dict"),
            f"on {spec.stack.name}, a full checkpoint contains only one process's shard of the adapter",
            write("state_dict = sharded"),
            (spec.label("lora", "the adapter"),),
        )


def _adapter_lost(spec: Spec) -> str:
    """The kind of the run's checkpoints, `fsdp1` or `fsdp2_full`, if its adapter cannot be restored from them. Empty if
    the adapter can be restored, or if the run never loads a checkpoint.
    """
    loads = spec.text("save.resume") == "auto" and spec.flag("save.full_state")
    loads = loads or spec.extra_value("trl", "load_best_model_at_end") is True
    if not spec.sharded_by_fsdp or not spec.lora or not loads or spec.amount("save.every").unit == "never":
        return ""
    full = spec.text("strategy.state_dict") == "full"
    kind = "fsdp1" if spec.by_fsdp1 else "fsdp2_full" if full else ""
    return kind if kind in spec.stack.facts.fsdp_adapters_lost else ""


@rule("XP413", "checkpointing-not-in-the-family")
def checkpointing_family(spec: Spec) -> Iterator[Finding]:
    """Activation checkpointing (`memory { checkpointing }`) needs a model family that supports it. If a family does
    not, xpc leaves checkpointing off unless the spec turns it on.

    Why it is bad: the model classes of a few families cannot recompute their layers.

    Without this rule: if the spec turns checkpointing on, ValueError after the model is loaded and the data tokenized.

    Source: `supports_gradient_checkpointing` of every causal model of transformers 5.23 and 4.52; confirmed by running
    it.
    """
    if spec.flag("memory.checkpointing") and spec.model.model_type in spec.stack.facts.no_checkpointing:
        yield Finding(
            spec.location("memory.checkpointing"),
            f"{spec.model.model_type} has no activation checkpointing",
            "write `memory(checkpointing=false)`",
            (spec.model.label,),
        )
