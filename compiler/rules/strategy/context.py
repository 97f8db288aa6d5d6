"""Rules about context parallelism, in which several ranks share one sequence (XP414 to XP419, XP427, XP490, XP495 to
XP498).

FSDP2 gives each rank a piece of the sequence and passes keys and values around the ranks (ring attention). Under ZeRO,
each process computes attention for all tokens, but only for some of the heads (DeepSpeed's Ulysses).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import FlagPath, IntegerPath
from xpc.compiler.plan.divisors import largest
from xpc.compiler.registry.windows import windowed
from xpc.compiler.rules.core.conditions import has_value
from xpc.compiler.rules.core.heads import can_share, fitting_sizes
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = has_value("strategy.context_parallel")

SETTING: IntegerPath = "strategy.context_parallel"
FLATTENED: tuple[FlagPath, ...] = ("batch.packing", "batch.padding_free")
ULYSSES_ATTENTION = ("sdpa", "flash2", "flash3")
"""The kinds of attention that DeepSpeed's Ulysses supports. With Ulysses, each process computes some of the heads, for
all tokens.
"""


@rule("XP414", "context-parallel-without-fsdp2")
def needs_fsdp2(spec: Spec) -> Iterator[Finding]:
    """`context_parallel` needs FSDP2 or ZeRO, and a target that supports it.

    Why it is bad: the ranks that share a sequence form a group. Under FSDP2, the group is a part of the device mesh,
    which accelerate 1.4 lacks. Under ZeRO, it is a sequence group of DeepSpeed, which accelerate supports from version
    1.12 on.

    Without this rule: with a strategy other than FSDP2 and ZeRO, `accelerate launch` starts all processes, and each
    raises ValueError.

    Source: accelerate 1.15 `state.py`, `commands/launch.py`, `parallelism_config.py`; confirmed by running it.
    """
    if spec.context_parallel == 1:
        return
    size, strategy, facts = spec.context_parallel, spec.text("strategy"), spec.stack.facts
    if not facts.context_parallel or (spec.ulysses and not facts.sequence_parallel):
        other = able(lambda one: one.facts.context_parallel and (not spec.ulysses or bool(one.facts.sequence_parallel)))
        yield Finding(
            spec.location(SETTING),
            f"{spec.stack.name} has no context parallelism" + " under ZeRO" * facts.context_parallel,
            f"write `target {other}`{'' if spec.ulysses else ' with `strategy fsdp`'}, or leave `context_parallel` out",
            (spec.label("target", "the target"),),
        )
    elif strategy not in ("fsdp", "hsdp") and not spec.ulysses:
        yield Finding(
            spec.location(SETTING, "needs FSDP2 or ZeRO"),
            f"{strategy} cannot share a sequence between ranks",
            f"write `strategy fsdp(context_parallel={size})`, or `strategy zero3(context_parallel={size})`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP415", "context-parallel-size")
def sizes(spec: Spec) -> Iterator[Finding]:
    """`context_parallel` must divide the number of processes. Under hsdp, `shard` is the number of processes that share
    one copy of the model; `context_parallel` must divide `shard` and be smaller. Under ZeRO on CPUs, `context_parallel`
    must be equal to the number of processes.

    Why it is bad: the processes are divided into groups of `context_parallel` processes, and each group shares a
    sequence. Under hsdp, the processes that hold one copy of the model form one or more such groups, and the copy is
    divided into as many shards as there are groups. With one group, each process would hold all weights, which
    accelerate refuses.

    Without this rule: ValueError in every process after the launch. On CPUs, the error comes in the first backward
    pass.

    Source: accelerate 1.15 `parallelism_config.py` (`__post_init__`, `_validate_accelerator`); torch 2.13
    `distributed/nn/functional.py` (`_AllGather.backward`, which scatters from ranks of the group as if it were all
    ranks); confirmed by running it.
    """
    size, world, strategy = spec.context_parallel, spec.hardware.world, spec.text("strategy")
    shares = strategy in ("fsdp", "hsdp") or spec.ulysses
    if size == 1 or not shares or not spec.stack.facts.context_parallel:
        return
    if world % size:
        fitting = largest(size, world)
        yield Finding(
            spec.location(SETTING, f"{world} / {size} = {world / size:.2f}"),
            f"{world} processes cannot be divided into groups of {size}",
            write(f"context_parallel = {fitting}"),
            (spec.label("hardware", "the hardware"),),
        )
        return
    if spec.ulysses and spec.on_cpu and size < world:
        yield Finding(
            spec.location(SETTING, f"{spec.replicas} groups"),
            f"on CPUs all {world} processes must share one sequence: gloo cannot return gradients in several groups",
            write(f"context_parallel = {world}"),
            (spec.label("hardware", "the hardware"),),
        )
        return
    shard = spec.integer("strategy.shard") if strategy == "hsdp" else world
    related = (spec.label("strategy.shard") or spec.label("strategy", f"{shard} processes share a model"),)
    if shard % size:
        yield Finding(
            spec.location(SETTING, f"{shard} / {size} = {shard / size:.2f}"),
            f"the {shard} processes that share a model cannot be divided into groups of {size}",
            "write a `context_parallel` that divides `shard`",
            related,
        )
    elif shard == size < world and not spec.ulysses:
        yield Finding(
            spec.location(SETTING, f"{shard} / {size} = 1 rank to shard over"),
            f"the {size} processes of a replica all share one sequence, so none of them shards a weight",
            f"write `shard = {2 * size}`, or `strategy fsdp(context_parallel={size})`",
            related,
        )


@rule("XP416", "context-parallel-attention")
def attention(spec: Spec) -> Iterator[Finding]:
    """Context parallelism needs sdpa attention under FSDP2, and sdpa or flash attention under ZeRO.

    Why it is bad: under FSDP2 only sdpa can pass the keys and values of a sequence's pieces around the ranks. Under
    ZeRO, accelerate refuses eager and flex.

    Without this rule: under FSDP2 the trainer refuses any attention but sdpa in the first step.

    Source: transformers 5.23 `Trainer._prepare_context_parallel_inputs`; torch 2.13
    `distributed/tensor/experimental/_context_parallel`; accelerate 1.15 `DeepSpeedSequenceParallelConfig`; confirmed by
    running it.
    """
    attn = spec.text("model.attn")
    if spec.context_parallel > 1 and attn not in (ULYSSES_ATTENTION if spec.ulysses else ("sdpa",)):
        location = spec.location("model.attn", "sees only its own piece of the sequence")
        yield Finding(
            location,
            f"context parallelism does not work with {attn} attention",
            "write `attn = sdpa`",
            (spec.label(SETTING, "the sequence is shared"),),
            location.typed.replace(attn, "sdpa") if spec.written("model.attn") else None,
        )


@rule("XP417", "context-parallel-packing")
def packing(spec: Spec) -> Iterator[Finding]:
    """Context parallelism cannot be combined with `padding_free` or with `packing`, except for
    `packing(strategy=wrapped)` under ZeRO.

    Why it is bad: ring attention (FSDP2) drops the attention mask, which keeps packed documents apart. Ulysses (ZeRO)
    cuts every tensor of a batch along the sequence, but the tensor with the documents' lengths has no such dimension.
    `packing(strategy=wrapped)` makes rows with neither a mask nor lengths, so it can be used under ZeRO.

    Without this rule: under FSDP2, TRL refuses `packing` when the trainer is built, after the model is loaded. It does
    not refuse `padding_free`, with which rows silently attend to each other. Under ZeRO, DeepSpeed's loader raises
    IndexError at the first batch.

    Source: trl 1.16 `sft_trainer.py` (`cp_enabled`, `cu_seq_lens_q`); accelerate 1.15 `big_modeling.py`; deepspeed
    0.19.8 `ulysses_sp.py` (`UlyssesSPDataLoaderAdapter.refill`); confirmed by running it.
    """
    for path in FLATTENED:
        if spec.context_parallel > 1 and spec.flag(path):
            name = path.rpartition(".")[2]
            if spec.ulysses and name == "packing" and spec.get("batch.packing.strategy") == "wrapped":
                continue
            wrapped = spec.ulysses and name == "packing" and "wrapped" in spec.stack.packing
            yield Finding(
                spec.location(
                    path, "documents have lengths of their own" if spec.ulysses else "kept apart by the mask"
                ),
                f"`{name}` cannot be combined with `context_parallel`",
                f"leave `{name}` out, or `context_parallel`"
                + ", or write `packing(strategy=wrapped)`, whose documents attend to each other" * wrapped,
                (spec.label(SETTING, "cuts tensors along the sequence" if spec.ulysses else "drops the mask"),),
            )
            return


@rule("XP418", "context-parallel-window")
def window(spec: Spec) -> Iterator[Finding]:
    """Context parallelism needs a model in which every layer attends to all earlier tokens. Models with a sliding
    window, attention in chunks, or state-space layers are refused.

    Why it is bad: context parallelism drops the attention mask, which layers with a sliding window or with chunks need.
    A state-space layer needs the state of the earlier tokens, and this state is not passed from rank to rank.

    Without this rule: under FSDP2, accelerate refuses the model inside `train()`, after it is loaded and the data
    tokenized. Under ZeRO, nothing is reported, and with sdpa every layer attends to all earlier tokens.

    Source: accelerate 1.15 `big_modeling._attach_context_parallel_hooks`; deepspeed 0.19.8 `ulysses_sp.py`
    (`uattn_wrapper`); confirmed by running it on Mistral, Gemma 2 and Gemma 3.
    """
    facts, config = spec.model.facts, spec.model.config
    if spec.context_parallel > 1 and (facts.windowed if facts is not None else windowed(config)):
        yield Finding(
            spec.location(SETTING),
            f"{spec.model.model_type} has layers that do not attend to all earlier tokens",
            "leave `context_parallel` out",
            (spec.model.label,),
        )


@rule("XP419", "context-parallel-method")
def method(spec: Spec) -> Iterator[Finding]:
    """Context parallelism works only with sft.

    Why it is bad: transformers splits only input_ids, labels, attention_mask and position_ids. The batches of methods
    other than sft contain further tensors, which are not split.

    Without this rule: grpo and rloo build their inputs after generation and raise ValueError. The preference trainers
    split the tokens but not the masks. A reward model would read its score from the last token of a rank's piece, which
    need not be the last token of the sequence.

    Source: trl 1.16 `grpo_config.py`, `dpo_trainer.py`, `kto_trainer.py`, `reward_trainer.py`; transformers 5.23
    `Trainer._prepare_context_parallel_inputs`.
    """
    name = spec.text("method")
    if spec.context_parallel > 1 and name != "sft":
        yield Finding(
            spec.location(SETTING),
            f"{name} cannot share a sequence between ranks",
            "leave `context_parallel` out",
            (spec.label("method", "the method"),),
        )


@rule("XP490", "context-parallel-padding")
def padding(spec: Spec) -> Iterator[Finding]:
    """With context parallelism, `pad_to_multiple_of` must pad sequences to a length that can be divided among the
    ranks. Under FSDP, `pad_to_multiple_of` must be a multiple of 2 x `context_parallel`; for an odd multiple of
    `context_parallel`, the rule only warns. Under ZeRO, it must be a multiple of `context_parallel`. Under ZeRO on
    CPUs, all sequences must have the same length, so it must be a multiple of `seq`, rounded up to a multiple of
    `context_parallel`.

    Why it is bad: the ranks exchange pieces of the sequence, which must all have the same length. Under FSDP, each rank
    gets one piece from the beginning and one from the end of the sequence, so that all ranks have equal work.

    Without this rule: if the length of a sequence is not a multiple of `context_parallel`, its pieces have different
    lengths, and the ranks cannot exchange them. With an odd multiple under FSDP, the first rank gets only the first
    tokens, which attend to few others, so it has less work than the other ranks.

    Source: torch 2.13 `_context_parallel/_load_balancer.py`, `_attention.py`; confirmed by running it: pieces of 17 and
    16 tokens.
    """
    size, multiple = spec.context_parallel, spec.extra_value("trl", "pad_to_multiple_of")
    even = isinstance(multiple, int) and not isinstance(multiple, bool) and multiple > 0 and multiple % size == 0
    step = spec.shared_multiple
    if size == 1 or multiple is None or (even and isinstance(multiple, int) and multiple % step == 0):
        return
    fitting = step * max(1, -(-multiple // step)) if isinstance(multiple, int) else step
    yield Finding(
        spec.extra_location("trl", "pad_to_multiple_of", f"must be a multiple of {step} for {size} ranks"),
        f"sequences padded to multiples of {multiple} tokens "
        f"{'are divided unevenly' if even else 'cannot be divided'} over {size} ranks",
        write(f"pad_to_multiple_of = {fitting}", ", or leave it out"),
        (spec.label(SETTING, "the sequence is shared"),),
        severity="warning" if even else "error",
    )


@rule("XP495", "heads-that-processes-cannot-share")
def heads(spec: Spec) -> Iterator[Finding]:
    """With context parallelism under ZeRO, `context_parallel` must divide the number of the model's query heads, and
    the number of its key-value heads must be a multiple or a divisor of `context_parallel`. The model's family must be
    one whose attention DeepSpeed can replace.

    Why it is bad: the processes that share a sequence divide the heads equally among themselves; each computes
    attention over all tokens for its heads.

    Without this rule: ValueError in every process after the model is loaded; in a family whose attention DeepSpeed
    cannot replace, attention silently sees only the process's piece of the sequence, or the first step raises an error.

    Source: deepspeed 0.19.8 `ulysses_sp.py`; confirmed by running it on a tiny model of each family.
    """
    size, facts, family = spec.context_parallel, spec.model.facts, spec.model.model_type
    if not spec.ulysses or not spec.stack.facts.sequence_parallel:
        return
    if family is not None and family not in spec.stack.facts.sequence_parallel:
        yield Finding(
            spec.location(SETTING),
            f"DeepSpeed cannot share a sequence of {family} between processes",
            f"leave `context_parallel` out, or write `strategy fsdp(context_parallel={size})`",
            (spec.model.label,),
        )
    elif facts is not None and not can_share(facts.heads, facts.kv_heads, size):
        shares = fitting_sizes(facts.heads, facts.kv_heads, size)[-1]
        yield Finding(
            spec.location(SETTING, f"{facts.heads} heads, {facts.kv_heads} key heads"),
            f"{size} processes cannot share {facts.heads} heads with {facts.kv_heads} key heads",
            write(f"context_parallel = {shares}"),
            (spec.model.label,),
        )


@rule("XP496", "loss-of-shared-sequences")
def loss(spec: Spec) -> Iterator[Finding]:
    """Context parallelism under ZeRO needs the model's default loss: the spec must not state another `loss`, nor use
    label smoothing.

    Why it is bad: the loss of a split sequence is computed from its pieces by transformers' DeepSpeed integration,
    which implements only the default loss.

    Without this rule: TRL raises ValueError after the model is loaded.

    Source: trl 1.16 `sft_trainer.py`; confirmed by running it.
    """
    smoothing = spec.extra_value("trl", "label_smoothing_factor")
    named = next((one for one in spec.losses if one != "nll"), None)
    if not spec.ulysses or not (smoothing or named):
        return
    yield Finding(
        spec.extra_location("trl", "label_smoothing_factor") if smoothing else spec.location("method.loss"),
        f"{'a smoothed loss' if smoothing else f'the loss {named}'} is not available with `context_parallel`",
        f"leave `{'label_smoothing_factor' if smoothing else 'loss'}` out, or `context_parallel`",
        (spec.label(SETTING, "the sequence is shared"),),
    )


@rule("XP497", "mean-of-shared-sequences", "warning")
def mean(spec: Spec) -> Iterator[Finding]:
    """With context parallelism under ZeRO and several micro-batches in a step, the spec should write
    `batch(mean=local_tokens)`.

    Why it is bad: with `context_parallel`, transformers does not count the tokens of a step. The loss of a step is the
    mean of its micro-batches' means, not the mean over its tokens, so a token in a short row weighs more. Of the
    choices of `mean`, `local_tokens` is the nearest to what the run computes.

    Without this rule: nothing is reported.

    Source: transformers 5.23 `trainer.py` (`model_accepts_loss_kwargs`), `integrations/deepspeed.py`
    (`deepspeed_sp_compute_loss`); confirmed by running it.
    """
    parts = spec.integer("batch.accum") * spec.replicas
    if spec.ulysses and spec.stack.facts.sequence_parallel and parts > 1 and spec.get("batch.mean") != "local_tokens":
        yield Finding(
            spec.location(SETTING, "the sequence is shared"),
            f"the loss of a step is the mean of {parts} micro-batches' means, however many tokens each has",
            "write `batch(mean=local_tokens)` to accept this loss: it is the nearest choice of `mean`",
            (spec.label("batch.mean", "not possible here"),),
        )


@rule("XP498", "gradients-of-shared-sequences")
def gradients(spec: Spec) -> Iterator[Finding]:
    """Context parallelism under ZeRO-3 needs `reduce_scatter`.

    Why it is bad: without `reduce_scatter`, ZeRO-3 reduces gradients in two ways, depending on their size, and one way
    multiplies the gradients by the number of processes that share a sequence.

    Without this rule: nothing is reported, and the gradients of some layers are too large.

    Source: deepspeed 0.19.8 `stage3.py` (`__avg_scatter_contiguous_grads`, `__avg_scatter_grads`); confirmed by running
    it.
    """
    if spec.ulysses and spec.zero_stage == 3 and spec.get("strategy.reduce_scatter") is False:
        yield Finding(
            spec.location("strategy.reduce_scatter", "scales some gradients differently"),
            "ZeRO-3 with `context_parallel` needs `reduce_scatter`",
            "leave `reduce_scatter` out, or `context_parallel`",
            (spec.label(SETTING, "the sequence is shared"),),
        )


LEAST_PIECE = 128
"""If several GPUs share a sequence, each should have at least this many of its tokens. In published runs, each GPU has
4,096 tokens or more.
"""


@rule("XP427", "pieces-of-a-few-tokens", "warning")
def few_tokens(spec: Spec) -> Iterator[Finding]:
    """With `context_parallel`, each of the GPUs that share a sequence should have at least 128 of its tokens.

    Why it is bad: with fewer than 128 tokens, a GPU spends more time on passing keys and values to the other GPUs than
    on computing. The GPUs that share a row also cannot train other rows at the same time.

    Without this rule: nothing is reported; the run is several times slower than without `context_parallel`.

    Source: accelerate's guide "Context parallelism", which recommends it for sequences that do not fit one GPU.
    """
    size = spec.context_parallel
    if size == 1 or spec.on_cpu or "batch.seq" not in spec.method.reads:
        return
    seq = spec.integer("batch.seq")
    if seq < LEAST_PIECE * size:
        yield Finding(
            spec.location(SETTING, f"{seq} / {size} = {seq // size} tokens"),
            f"{size} GPUs share a sequence of {seq} tokens",
            f"leave `context_parallel` out, or write a longer `seq`, such as {4096 * size}",
            (spec.label("batch.seq", "the longest sequence"),),
        )
