"""Context parallelism: several ranks share one sequence (XP414 to XP419, XP490, XP491)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.registry.windows import windowed
from xpc.compiler.rules.conditions import given
from xpc.compiler.rules.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = given("strategy.context_parallel")

SETTING: Final = "strategy.context_parallel"
FLATTENED: Final = ("batch.packing", "batch.padding_free")


@rule("XP414", "context-parallel-without-fsdp2")
def needs_fsdp2(spec: Spec) -> Iterator[Finding]:
    """Ranks share a sequence on FSDP2's device mesh, which accelerate 1.15 has and accelerate 1.4 has not.

    With another strategy `accelerate launch` starts all processes, and each raises ValueError; with ZeRO the mesh is
    never looked at. Source: accelerate 1.15 `state.py`, `commands/launch.py`; executed.
    """
    if spec.context_parallel == 1:
        return
    strategy = spec.text("strategy")
    if not spec.stack.facts.context_parallel:
        other = able(lambda one: one.facts.context_parallel)
        yield Finding(
            spec.place(SETTING),
            f"{spec.stack.name} has no context parallelism",
            f"write `target {other}` with `strategy fsdp`, or leave `context_parallel` out",
            (spec.label("target", "the target"),),
        )
    elif strategy not in ("fsdp", "hsdp"):
        yield Finding(
            spec.place(SETTING, "needs FSDP2"),
            f"{strategy} cannot share a sequence between ranks",
            f"write `strategy fsdp(context_parallel={spec.context_parallel})`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP415", "context-parallel-size")
def sizes(spec: Spec) -> Iterator[Finding]:
    """Groups that share a sequence must fill the processes, and under hsdp the groups that share a model.

    Two replicas of a model whose shards are one sequence group each are refused, too: accelerate composes replication
    with sharding only. Today: ValueError in every process, after the launch. Source: accelerate 1.15
    `parallelism_config.py` (`__post_init__`, `_validate_accelerator`); executed.
    """
    size, world, strategy = spec.context_parallel, spec.hardware.world, spec.text("strategy")
    if size == 1 or strategy not in ("fsdp", "hsdp") or not spec.stack.facts.context_parallel:
        return
    if world % size:
        from xpc.compiler.resolve.divisors import largest

        fitting = largest(size, world)
        yield Finding(
            spec.place(SETTING, f"{world} / {size} = {world / size:.2f}"),
            f"groups of {size} do not divide {world} processes",
            write(f"context_parallel = {fitting}"),
            (spec.label("hardware", "the hardware"),),
        )
        return
    shard = spec.integer("strategy.shard") if strategy == "hsdp" else world
    related = (spec.label("strategy.shard") or spec.label("strategy", f"{shard} processes share a model"),)
    if shard % size:
        yield Finding(
            spec.place(SETTING, f"{shard} / {size} = {shard / size:.2f}"),
            f"groups of {size} do not divide the {shard} processes that share a model",
            "write a `context_parallel` that divides `shard`",
            related,
        )
    elif shard == size < world:
        yield Finding(
            spec.place(SETTING, f"{shard} / {size} = 1 rank that shards"),
            f"each of {world // shard} replicas is one sequence group of {size}, in which no weight is sharded",
            f"write `shard = {2 * size}`, or `strategy fsdp(context_parallel={size})`",
            related,
        )


@rule("XP416", "context-parallel-attention")
def attention(spec: Spec) -> Iterator[Finding]:
    """Only sdpa hands the pieces of a sequence round; the trainer refuses another attention in the first step.

    Source: transformers 5.23 `Trainer._prepare_context_parallel_inputs`; torch 2.13
    `distributed/tensor/experimental/_context_parallel`; executed.
    """
    attn = spec.text("model.attn")
    if spec.context_parallel > 1 and attn != "sdpa":
        place = spec.place("model.attn", "sees its own piece of the sequence only")
        yield Finding(
            place,
            f"context parallelism with {attn} attention",
            "write `attn = sdpa`",
            (spec.label(SETTING, "the sequence is shared"),),
            place.typed.replace(attn, "sdpa") if spec.written("model.attn") else None,
        )


@rule("XP417", "context-parallel-packing")
def packing(spec: Spec) -> Iterator[Finding]:
    """Context parallelism drops the attention mask, which is all that keeps packed documents apart.

    TRL refuses `packing` when the trainer is built, after the model is loaded, and does not look at `padding_free`,
    whose rows would attend to each other in silence. Source: trl 1.16 `sft_trainer.py`; accelerate 1.15
    `big_modeling.py`; executed.
    """
    for path in FLATTENED:
        if spec.context_parallel > 1 and spec.flag(path):
            name = path.rpartition(".")[2]
            yield Finding(
                spec.place(path, "kept apart by the mask"),
                f"`{name}` where ranks share a sequence",
                f"leave `{name}` out, or `context_parallel`",
                (spec.label(SETTING, "drops the mask"),),
            )
            return


@rule("XP418", "context-parallel-window")
def window(spec: Spec) -> Iterator[Finding]:
    """Layers that see a window, a chunk or a state of the past cannot be expressed without their mask.

    accelerate refuses such a model inside `train()`, after it is loaded and the data tokenized. Source: accelerate 1.15
    `big_modeling._attach_context_parallel_hooks`; executed on Mistral, Gemma 2 and Gemma 3.
    """
    facts, config = spec.model.facts, spec.model.config
    if spec.context_parallel > 1 and (facts.windowed if facts is not None else windowed(config)):
        yield Finding(
            spec.place(SETTING),
            f"{spec.model.model_type} has layers that do not see the whole past",
            "leave `context_parallel` out",
            (spec.model.label,),
        )


@rule("XP419", "context-parallel-method")
def method(spec: Spec) -> Iterator[Finding]:
    """Only sft hands its whole batch to the splitting of sequences.

    grpo and rloo make their inputs after generation and say so; the preference trainers split the tokens and not the
    masks that belong to them, and a reward is read off the last token of one rank's piece. Source: trl 1.16
    `grpo_config.py`, `dpo_trainer.py`, `kto_trainer.py`, `reward_trainer.py`; transformers 5.23
    `Trainer._prepare_context_parallel_inputs`, which splits input_ids, labels, attention_mask and position_ids.
    """
    name = spec.text("method")
    if spec.context_parallel > 1 and name != "sft":
        yield Finding(
            spec.place(SETTING),
            f"{name} cannot share a sequence between ranks",
            "leave `context_parallel` out",
            (spec.label("method", "the method"),),
        )


@rule("XP490", "context-parallel-padding")
def padding(spec: Spec) -> Iterator[Finding]:
    """Ranks that share a sequence need pieces of one length, and two pieces each to have the same work.

    The bundle pads to twice the ranks. A multiple of the ranks alone leaves the first one with the early tokens, which
    attend to little (a warning); any other gives pieces of different lengths, which ring attention cannot exchange.
    Source: torch 2.13 `_context_parallel/_load_balancer.py`, `_attention.py`; executed: pieces of 17 and 16 tokens.
    """
    size, multiple = spec.context_parallel, spec.extra_value("trl", "pad_to_multiple_of")
    even = isinstance(multiple, int) and not isinstance(multiple, bool) and multiple > 0 and multiple % size == 0
    if size == 1 or multiple is None or (even and isinstance(multiple, int) and multiple % (2 * size) == 0):
        return
    fitting = 2 * size * max(1, -(-multiple // (2 * size))) if isinstance(multiple, int) else 2 * size
    yield Finding(
        spec.extra_place("trl", "pad_to_multiple_of", f"two pieces for each of {size} ranks"),
        f"sequences of a multiple of {multiple} tokens {'balance' if even else 'divide'} badly over {size} ranks",
        write(f"pad_to_multiple_of = {fitting}", ", or leave it out"),
        (spec.label(SETTING, "the sequence is shared"),),
        severity="warning" if even else "error",
    )
