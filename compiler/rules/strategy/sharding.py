"""Strategies: what shards, where it runs, and which settings belong to it (XP4xx)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.optimizers import CPU_OPTIMIZERS, package
from xpc.compiler.language.schema import path_of
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
TORCH_OPTIMIZERS = ("adafactor", "adagrad", "rmsprop", "sgd")
"""Optimizers that step wherever their parameters lie."""


@rule("XP401", "fsdp-activation-checkpointing")
def fsdp_activation_checkpointing(spec: Spec) -> Iterator[Finding]:
    """FSDP has an activation checkpointing of its own; with the trainer's it recomputes twice, or is refused.

    `memory { checkpointing }` is the one way to ask, on every strategy. Today: ValueError after the model is loaded,
    because TRL turns its own on by default. Source: transformers 5.23 `trainer.py`; executed.
    """
    if spec.get("strategy.activation_checkpointing") is not None:
        yield Finding(
            spec.place("strategy.activation_checkpointing", "FSDP's own"),
            "FSDP's own activation checkpointing is never used",
            "write `memory(checkpointing)` instead",
            (spec.label("memory.checkpointing", "the setting for it"),),
        )
    name = "fsdp_activation_checkpointing"
    if spec.extra_value("accelerate", name) is True:
        yield Finding(
            spec.extra_place("accelerate", name),
            "FSDP's own activation checkpointing is never used",
            write(
                "fsdp_activation_checkpointing = false", ", or leave it out; `memory(checkpointing)` does it everywhere"
            ),
            (spec.label("memory.checkpointing", "the setting for it"),),
        )


@rule("XP437", "family-not-loaded-under-zero3")
def not_loaded(spec: Spec) -> Iterator[Finding]:
    """transformers 4.57 cannot load gemma 3 under ZeRO-3: it draws the embedding anew, and holds a share of it.

    The embedding has a buffer beside its weight that no checkpoint holds, so that the whole is taken for missing.
    Today: IndexError while the model is loaded. Source: transformers 4.57 `modeling_utils.py`
    (`_initialize_missing_keys`); executed.
    """
    if spec.zero_stage == 3 and not spec.bits and spec.model.model_type in spec.stack.facts.zero3_cannot_draw:
        other = able(lambda one: spec.model.model_type not in one.facts.zero3_cannot_draw)
        yield Finding(
            spec.place("strategy"),
            f"{spec.stack.name} cannot load {spec.model.model_type} under zero3",
            f"write `strategy zero2`, or `target {other}`",
            (spec.model.label, spec.label("target", "the target")),
            "zero2",
        )


@rule("XP402", "fsdp-on-cpu")
def fsdp_on_cpu(spec: Spec) -> Iterator[Finding]:
    """accelerate turns FSDP on a CPU into plain DDP without a word, so nothing is sharded.

    Source: accelerate 1.15 `state.py`; executed (the model was a DistributedDataParallel).
    """
    if spec.on_cpu and spec.sharded_by_fsdp:
        place = spec.place("strategy", "becomes ddp on a CPU")
        yield Finding(
            place,
            f"{spec.text('strategy')} on the CPU shards nothing",
            "write `strategy zero3`",
            (spec.label("hardware", "the hardware"),),
            "zero3" if place.typed.isalnum() else None,
        )


@rule("XP403", "fsdp-one-process")
def fsdp_one_process(spec: Spec) -> Iterator[Finding]:
    """FSDP needs more than one process; transformers refuses it after the model is loaded.

    Source: transformers 5.23 `trainer.py`; executed.
    """
    if spec.sharded_by_fsdp and spec.hardware.world == 1 and not spec.on_cpu:
        yield Finding(
            spec.place("strategy", "one process has nobody to share with"),
            f"{spec.text('strategy')} on one GPU",
            "write `strategy ddp`, or more hardware",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP404", "setting-of-another-strategy")
def setting_of_another_strategy(spec: Spec) -> Iterator[Finding]:
    """Buckets and gradient copies are DeepSpeed's, resharding and state dicts FSDP's; the other would ignore them.

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
                spec.place(path, f"a setting of {owner}"),
                f"`{name}` does nothing for {strategy}",
                f"leave `{name}` out",
                (spec.label("strategy", "the strategy"),),
            )
    if strategy == "zero3" and spec.flag("strategy.round_robin_gradients"):
        yield Finding(
            spec.place("strategy.round_robin_gradients", "a setting of ZeRO 1 and 2"),
            "`round_robin_gradients` does nothing for zero3",
            "leave `round_robin_gradients` out",
            (spec.label("strategy", "the strategy"),),
            severity="warning",
        )


@rule("XP405", "offload-without-sharding")
def offload_without_sharding(spec: Spec) -> Iterator[Finding]:
    """Offload moves sharded states to host memory: ZeRO and FSDP have it, ddp does not, and a CPU run has no need.

    FSDP2 offloads parameters, gradients and optimizer states together. Source: deepspeed 0.19.8 `zero/config.py`;
    accelerate 1.15 `FullyShardedDataParallelPlugin.cpu_offload`.
    """
    where, strategy = spec.text("strategy.offload"), spec.text("strategy")
    if where == "none":
        return
    place, related = spec.place("strategy.offload"), (spec.label("strategy", "the strategy"),)
    if strategy == "ddp":
        yield Finding(place, "ddp has nothing to offload", "write `strategy zero2` or `strategy fsdp`", related)
    elif spec.on_cpu:
        yield Finding(
            place,
            "on the CPU everything is in host memory already",
            "leave `offload` out",
            (spec.label("hardware", "the hardware"),),
        )
    elif spec.sharded_by_fsdp and where == "optimizer":
        yield Finding(
            place,
            "FSDP does not offload the optimizer alone",
            write("offload = cpu"),
            related,
        )


@rule("XP406", "offload-replaces-the-optimizer")
def offload_replaces_optimizer(spec: Spec) -> Iterator[Finding]:
    """With ZeRO offload accelerate swaps the optimizer for one of DeepSpeed's CPU optimizers, silently.

    AdamW and Lion of 32 bits have one of their own; what is paged is no longer paged (a warning). Everything else
    becomes an Adam without decoupled weight decay; Adagrad fails with a TypeError. In `extra deepspeed`,
    `zero_force_ds_cpu_optimizer = false` keeps torch's own optimizers. Source: accelerate 1.15 and 1.4
    `utils/deepspeed.py` `map_pytorch_optim_to_deepspeed`, `accelerator.py`; executed.
    """
    name = spec.text("optimizer")
    if not spec.zero_stage or spec.text("strategy.offload") == "none" or name in CPU_OPTIMIZERS:
        return
    torch = name in TORCH_OPTIMIZERS
    if torch and spec.extra_value("deepspeed", "zero_force_ds_cpu_optimizer") is False:
        return
    keep = ", or `zero_force_ds_cpu_optimizer = false` in `extra deepspeed`" if torch else ""
    related = (spec.label("strategy.offload", "the offload"),)
    if name in ("paged_adamw", "paged_lion"):
        plain = name.removeprefix("paged_")
        yield Finding(
            spec.place("optimizer", f"replaced by DeepSpeedCPU{'Adam' if plain == 'adamw' else 'Lion'}"),
            "an offloaded optimizer pages nothing",
            f"write `optimizer {plain}`",
            related,
            severity="warning",
        )
    else:
        yield Finding(
            spec.place("optimizer", "replaced by DeepSpeedCPUAdam"),
            f"offload replaces {name} by Adam" if name != "adagrad" else "offload cannot replace adagrad",
            f"write `optimizer adamw`, or leave `offload` out{keep}",
            related,
        )


@rule("XP407", "sharded-8bit-optimizer")
def sharded_8bit(spec: Spec) -> Iterator[Finding]:
    """bitsandbytes' optimizers have no rule for sharded tensors: NotImplementedError at the first step under FSDP2.

    That is all of 8 bits, the paged ones, and Lion, which transformers takes from bitsandbytes at 32 bits, too. Under
    FSDP1 with offloaded parameters they would have to step on the CPU, where their kernels are not. Source:
    transformers 5.23 `trainer_optimizer.py`; bitsandbytes issues 89 and 1633; executed.
    """
    name, strategy = spec.text("optimizer"), spec.text("strategy")
    if package(name) != "bitsandbytes" and name != "galore_adamw8bit":
        return
    fsdp2 = strategy in ("fsdp", "hsdp") and spec.stack.facts.fsdp2
    offloaded = spec.sharded_by_fsdp and spec.text("strategy.offload") == "cpu"
    if fsdp2 or offloaded:
        yield Finding(
            spec.place("optimizer", "of bitsandbytes"),
            f"{name} cannot step {'sharded' if fsdp2 else 'offloaded'} parameters",
            "write `optimizer adamw`",
            (spec.label("strategy" if fsdp2 else "strategy.offload", "the strategy" if fsdp2 else "the offload"),),
        )


@rule("XP408", "hybrid-mesh")
def hybrid_mesh(spec: Spec) -> Iterator[Finding]:
    """hsdp shards over groups of equal size and keeps a copy of the model in each: there must be at least two groups.

    Source: accelerate 1.15 `parallelism_config.py`; torch 2.13 `fully_shard` on a 2-D mesh.
    """
    if spec.text("strategy") != "hsdp":
        return
    world, shard = spec.hardware.world, spec.integer("strategy.shard")
    if world % shard:
        from xpc.compiler.plan.divisors import largest

        fitting = largest(shard, world)
        yield Finding(
            spec.place("strategy.shard", f"{world} / {shard} = {world / shard:.2f}"),
            f"groups of {shard} do not divide {world} processes",
            write(f"shard = {fitting}"),
        )
    elif shard == world:
        yield Finding(
            spec.place("strategy", f"{world} processes make one group of {shard}"),
            "hsdp with one group is fsdp",
            "write `strategy fsdp`, `shard`, or more `nodes`",
            (spec.label("nodes"), spec.label("strategy.shard")),
        )
    elif shard == 1:
        yield Finding(
            spec.place("strategy.shard"), "groups of one shard nothing", "write `strategy ddp` without `shard`"
        )


@rule("XP488", "accumulation-lost-by-zero2")
def accumulation_lost(spec: Spec) -> Iterator[Finding]:
    """DeepSpeed 0.18.2 steps by the last micro-batch of an accumulation under ZeRO-2, and forgets those before it.

    Each backward pass writes its gradients over the last one's until the step is taken. Today, silently: the norm of
    two micro-batches is half of what it is, of four a quarter. With the optimizer on the host the sum is kept there.
    Source: deepspeed 0.18.2 `zero/stage_1_and_2.py` `independent_gradient_partition_epilogue` (`averaged_gradients` is
    asked for, and is None until the step); executed. ZeRO-1 and 3 add up, and so do deepspeed 0.16.8 and 0.19.8.
    """
    lost = not spec.stack.facts.zero2_accumulates and spec.text("strategy.offload") == "none"
    if spec.zero_stage == 2 and spec.integer("batch.accum") > 1 and lost:
        steps = spec.integer("batch.accum")
        yield Finding(
            spec.place("strategy", f"{steps} micro-batches a step, and {steps - 1} are lost"),
            f"{spec.text('strategy')} of {spec.stack.name} learns from the last micro-batch alone",
            "write `strategy zero1`, or a `micro` that makes the accumulation 1",
            (spec.label("batch.micro"), spec.label("target", "the target")),
        )


@rule("XP409", "strategy-not-in-the-target")
def strategy_target(spec: Spec) -> Iterator[Finding]:
    """FSDP2 came to accelerate 1.6; trl-0.18 pins accelerate 1.4, which would silently use FSDP1.

    Source: accelerate 1.4.0 `FullyShardedDataParallelPlugin` (no `fsdp_version`).
    """
    strategy, legal = spec.text("strategy"), spec.stack.facts.strategies
    if strategy not in legal:
        other = "fsdp1" if strategy == "fsdp" else "zero3"
        yield Finding(
            spec.place("strategy"),
            f"{spec.stack.name} has no {strategy}",
            f"write `strategy {other}`",
            (spec.label("target", "the target"),),
        )


@rule("XP410", "fsdp1-deprecated", "warning")
def fsdp1_deprecated(spec: Spec) -> Iterator[Finding]:
    """transformers 5 announces the end of FSDP1; FSDP2 is `strategy fsdp`.

    Source: transformers 5.23 `training_args.py` (a warning); executed.
    """
    if spec.text("strategy") == "fsdp1" and spec.stack.facts.fsdp2:
        yield Finding(spec.place("strategy"), "FSDP1 is about to be removed from transformers", "write `strategy fsdp`")


@rule("XP411", "sharded-weights-only")
def sharded_weights_only(spec: Spec) -> Iterator[Finding]:
    """Sharded checkpoints hold weights and states together; the weights alone cannot be asked for.

    Today: ValueError after the model is loaded. Source: transformers 5.23 `trainer.py`; executed.
    """
    if spec.sharded_by_fsdp and spec.get("strategy.state_dict") == "sharded" and not spec.flag("save.full_state"):
        yield Finding(
            spec.place("strategy.state_dict"),
            "sharded checkpoints need the full state",
            write("state_dict = full"),
            (spec.label("save.full_state", "asked for here"),),
        )


@rule("XP413", "checkpointing-not-in-the-family")
def checkpointing_family(spec: Spec) -> Iterator[Finding]:
    """A few families recompute nothing: their classes do not support activation checkpointing.

    Unwritten, it is off for them. Today: ValueError when it is switched on, after the model is loaded and the data
    tokenized. Source: `supports_gradient_checkpointing` of every causal model of transformers 5.23 and 4.52; executed.
    """
    if spec.flag("memory.checkpointing") and spec.model.model_type in spec.stack.facts.no_checkpointing:
        yield Finding(
            spec.place("memory.checkpointing"),
            f"{spec.model.model_type} has no activation checkpointing",
            "write `memory(checkpointing=false)`",
            (spec.model.label,),
        )


@rule("XP570", "reference-of-routed-experts", reads=("method.beta", "method.precompute", "method.reference_free"))
def reference_of_experts(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO-3 a mixture whose layers call only the experts of their tokens has no reference model beside it.

    Processes whose tokens go to other experts gather other weights, and wait for each other: the run hangs, or ends
    with a connection that is reset. DeepSpeed must be told to gather such a layer as one. The bundle does that for the
    model that is trained (`deepspeed_moe_layer_cls_names`); TRL makes the reference an engine of its own, which nobody
    tells. Adapters need no second model. Source: transformers 4.52.3 and 4.57.6 `modeling_mixtral.py` (`expert_hit`),
    deepspeed `set_z3_leaf_modules`, TRL's `prepare_deepspeed`; executed.
    """
    if spec.zero_stage != 3 or spec.lora or not spec.method.references(spec.get):
        return
    if (spec.model.model_type or "") in spec.stack.facts.expert_blocks:
        place = spec.place("strategy", "gathers each expert by itself")
        yield Finding(
            place,
            f"a reference model of {spec.model.model_type} hangs under ZeRO-3",
            "write `lora`: adapters need no second model",
            (spec.place("method", "compares with a reference model"),),
        )
