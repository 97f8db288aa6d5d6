"""Context parallelism: several ranks share one sequence (XP414 to XP419, XP490, XP495 to XP498).

FSDP2 passes the keys and values of a piece round; under ZeRO each process gets all tokens of some heads for attention
(DeepSpeed's Ulysses).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.registry.windows import windowed
from xpc.compiler.rules.core.conditions import given
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = given("strategy.context_parallel")

SETTING: Final = "strategy.context_parallel"
FLATTENED: Final = ("batch.packing", "batch.padding_free")
WHOLE_HEADS: Final = ("sdpa", "flash2", "flash3")
"""Kinds of attention that DeepSpeed gives all tokens of some heads."""


@rule("XP414", "context-parallel-without-fsdp2")
def needs_fsdp2(spec: Spec) -> Iterator[Finding]:
    """Ranks share a sequence on FSDP2's device mesh, which accelerate 1.15 has and accelerate 1.4 has not, or in
    DeepSpeed's groups, which accelerate makes since 1.12.

    With another strategy `accelerate launch` starts all processes, and each raises ValueError. Source: accelerate 1.15
    `state.py`, `commands/launch.py`, `parallelism_config.py`; executed.
    """
    if spec.context_parallel == 1:
        return
    size, strategy, facts = spec.context_parallel, spec.text("strategy"), spec.stack.facts
    if not facts.context_parallel or (spec.ulysses and not facts.sequence_parallel):
        other = able(lambda one: one.facts.context_parallel and (not spec.ulysses or bool(one.facts.sequence_parallel)))
        yield Finding(
            spec.place(SETTING),
            f"{spec.stack.name} has no context parallelism" + " under ZeRO" * facts.context_parallel,
            f"write `target {other}`{'' if spec.ulysses else ' with `strategy fsdp`'}, or leave `context_parallel` out",
            (spec.label("target", "the target"),),
        )
    elif strategy not in ("fsdp", "hsdp") and not spec.ulysses:
        yield Finding(
            spec.place(SETTING, "needs FSDP2 or ZeRO"),
            f"{strategy} cannot share a sequence between ranks",
            f"write `strategy fsdp(context_parallel={size})`, or `strategy zero3(context_parallel={size})`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP415", "context-parallel-size")
def sizes(spec: Spec) -> Iterator[Finding]:
    """Groups that share a sequence must fill the processes, and under hsdp the groups that share a model.

    Two replicas of a model whose shards are one sequence group each are refused, too: accelerate composes replication
    with sharding only. Today: ValueError in every process, after the launch; on CPUs in the first backward pass.
    Source: accelerate 1.15 `parallelism_config.py` (`__post_init__`, `_validate_accelerator`); torch 2.13
    `distributed/nn/functional.py` (`_AllGather.backward`, which scatters from ranks of the group as of all); executed.
    """
    size, world, strategy = spec.context_parallel, spec.hardware.world, spec.text("strategy")
    shares = strategy in ("fsdp", "hsdp") or spec.ulysses
    if size == 1 or not shares or not spec.stack.facts.context_parallel:
        return
    if world % size:
        from xpc.compiler.plan.divisors import largest

        fitting = largest(size, world)
        yield Finding(
            spec.place(SETTING, f"{world} / {size} = {world / size:.2f}"),
            f"groups of {size} do not divide {world} processes",
            write(f"context_parallel = {fitting}"),
            (spec.label("hardware", "the hardware"),),
        )
        return
    if spec.ulysses and spec.on_cpu and size < world:
        yield Finding(
            spec.place(SETTING, f"{spec.replicas} groups"),
            f"on CPUs one group of all {world} processes shares a sequence: gloo takes no gradient back in several",
            write(f"context_parallel = {world}"),
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
    elif shard == size < world and not spec.ulysses:
        yield Finding(
            spec.place(SETTING, f"{shard} / {size} = 1 rank that shards"),
            f"each of {world // shard} replicas is one sequence group of {size}, in which no weight is sharded",
            f"write `shard = {2 * size}`, or `strategy fsdp(context_parallel={size})`",
            related,
        )


@rule("XP416", "context-parallel-attention")
def attention(spec: Spec) -> Iterator[Finding]:
    """Under FSDP2 only sdpa hands the pieces of a sequence round; the trainer refuses another attention in the first
    step. Ulysses takes flash attention, too, and accelerate refuses eager and flex.

    Source: transformers 5.23 `Trainer._prepare_context_parallel_inputs`; torch 2.13
    `distributed/tensor/experimental/_context_parallel`; accelerate 1.15 `DeepSpeedSequenceParallelConfig`; executed.
    """
    attn = spec.text("model.attn")
    if spec.context_parallel > 1 and attn not in (WHOLE_HEADS if spec.ulysses else ("sdpa",)):
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
    whose rows would attend to each other in silence. Ulysses drops it, too: what is left are the positions, which sdpa
    does not look at, and whether flash attention keeps documents apart by them was not seen. Source: trl 1.16
    `sft_trainer.py`; accelerate 1.15 `big_modeling.py`; deepspeed 0.19.8 `ulysses_sp.py`; executed.
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

    accelerate refuses such a model inside `train()`, after it is loaded and the data tokenized; with Ulysses sdpa sees
    the whole past, in silence. Source: accelerate 1.15 `big_modeling._attach_context_parallel_hooks`; deepspeed 0.19.8
    `ulysses_sp.py` (`uattn_wrapper`); executed on Mistral, Gemma 2 and Gemma 3.
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

    Under FSDP the bundle pads to twice the ranks. A multiple of the ranks alone leaves the first one with the early
    tokens, which attend to little (a warning); any other gives pieces of different lengths, which ring attention cannot
    exchange. Under ZeRO it pads to the ranks, and on CPUs to `seq` rounded up to them.
    Source: torch 2.13 `_context_parallel/_load_balancer.py`, `_attention.py`; executed: pieces of 17 and 16 tokens.
    """
    size, multiple = spec.context_parallel, spec.extra_value("trl", "pad_to_multiple_of")
    even = isinstance(multiple, int) and not isinstance(multiple, bool) and multiple > 0 and multiple % size == 0
    step = spec.shared_multiple
    if size == 1 or multiple is None or (even and isinstance(multiple, int) and multiple % step == 0):
        return
    fitting = step * max(1, -(-multiple // step)) if isinstance(multiple, int) else step
    yield Finding(
        spec.extra_place("trl", "pad_to_multiple_of", f"for {size} ranks a multiple of {step}"),
        f"sequences of a multiple of {multiple} tokens {'balance' if even else 'divide'} badly over {size} ranks",
        write(f"pad_to_multiple_of = {fitting}", ", or leave it out"),
        (spec.label(SETTING, "the sequence is shared"),),
        severity="warning" if even else "error",
    )


@rule("XP495", "heads-that-processes-cannot-share")
def heads(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO each process of a group computes some heads over all tokens, so that the group divides the heads, and
    the keys' heads are a multiple of the group or the group of them.

    Today: ValueError in every process once the model is loaded. Of a family whose code has not the form that DeepSpeed
    takes the place of, attention sees a process's own piece in silence, or the first step stops. Source: deepspeed
    0.19.8 `ulysses_sp.py`; executed on a tiny model of each family.
    """
    size, facts, family = spec.context_parallel, spec.model.facts, spec.model.model_type
    if not spec.ulysses or not spec.stack.facts.sequence_parallel:
        return
    if family is not None and family not in spec.stack.facts.sequence_parallel:
        yield Finding(
            spec.place(SETTING),
            f"{family} is no family of which DeepSpeed's processes can share a sequence",
            f"leave `context_parallel` out, or write `strategy fsdp(context_parallel={size})`",
            (spec.model.label,),
        )
    elif facts is not None and not _fits(facts.heads, facts.kv_heads, size):
        shares = max(one for one in range(1, size + 1) if _fits(facts.heads, facts.kv_heads, one))
        yield Finding(
            spec.place(SETTING, f"{facts.heads} heads, {facts.kv_heads} of keys"),
            f"{size} processes cannot share {facts.heads} heads with {facts.kv_heads} of keys",
            write(f"context_parallel = {shares}"),
            (spec.model.label,),
        )


def _fits(heads: int, keys: int, size: int) -> bool:
    return heads % size == 0 and (keys % size == 0 or size % keys == 0)


@rule("XP496", "loss-of-shared-sequences")
def loss(spec: Spec) -> Iterator[Finding]:
    """Where DeepSpeed shares sequences the loss is the model's own, put together from the pieces, and no other.

    Today: ValueError of TRL once the model is loaded. Source: trl 1.16 `sft_trainer.py`; executed.
    """
    smoothing = spec.extra_value("trl", "label_smoothing_factor")
    named = next((one for one in spec.losses if one != "nll"), None)
    if not spec.ulysses or not (smoothing or named):
        return
    yield Finding(
        spec.extra_place("trl", "label_smoothing_factor") if smoothing else spec.place("method.loss"),
        f"{'a smoothed loss' if smoothing else f'the loss {named}'} where processes share a sequence",
        f"leave `{'label_smoothing_factor' if smoothing else 'loss'}` out, or `context_parallel`",
        (spec.label(SETTING, "the sequence is shared"),),
    )


@rule("XP497", "mean-of-shared-sequences", "warning")
def mean(spec: Spec) -> Iterator[Finding]:
    """Where DeepSpeed shares sequences a step's loss is the mean of its micro-batches' means, and not of its tokens.

    Tokens of short rows weigh more. transformers counts no tokens of a step there. Nothing is said today. Source:
    transformers 5.23 `trainer.py` (`model_accepts_loss_kwargs`), `integrations/deepspeed.py`
    (`deepspeed_sp_compute_loss`); executed.
    """
    parts = spec.integer("batch.accum") * spec.replicas
    if spec.ulysses and spec.stack.facts.sequence_parallel and parts > 1 and spec.get("batch.mean") != "local_tokens":
        yield Finding(
            spec.place(SETTING, "the sequence is shared"),
            f"the loss of a step is the mean of {parts} micro-batches' means, whatever tokens they have",
            "write `batch(mean=local_tokens)`, which comes nearest, to say that you know",
            (spec.label("batch.mean", "not done so"),),
        )


@rule("XP498", "gradients-of-shared-sequences")
def gradients(spec: Spec) -> Iterator[Finding]:
    """Without `reduce_scatter` ZeRO-3 reduces its gradients in two ways, by their size, and where processes share
    sequences one of them makes the gradients as many times larger as processes share one.

    Nothing is raised: layers learn at two rates. Source: deepspeed 0.19.8 `stage3.py`
    (`__avg_scatter_contiguous_grads`, `__avg_scatter_grads`); executed.
    """
    if spec.ulysses and spec.zero_stage == 3 and spec.get("strategy.reduce_scatter") is False:
        yield Finding(
            spec.place("strategy.reduce_scatter", "gradients of two sizes"),
            "ZeRO-3 without `reduce_scatter` where processes share a sequence",
            "leave `reduce_scatter` out, or `context_parallel`",
            (spec.label(SETTING, "the sequence is shared"),),
        )
