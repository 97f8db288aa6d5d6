"""Rules about those arguments in `extra trl` whose legality depends on the strategy (XP420 to XP423, XP477)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = extra("trl")


@rule("XP420", "unused-parameters-with-reentrant-checkpointing")
def unused_with_reentrant(spec: Spec) -> Iterator[Finding]:
    """DDP's search for unused parameters (`ddp_find_unused_parameters`) cannot be combined with reentrant
    checkpointing.

    Why it is bad: a reentrant checkpoint runs a backward pass inside the backward pass, so DDP finds the gradient of
    every parameter ready twice.

    Without this rule: RuntimeError at the first backward pass, if several processes train.

    Source: torch 2.13 `DistributedDataParallel`; transformers 5.23 and 4.52 `trainer.py` mention this in a comment, but
    do not check it; confirmed by running it.
    """
    finds_unused = spec.extra_value("trl", "ddp_find_unused_parameters") is True
    reentrant = spec.flag("memory.checkpointing") and spec.flag("memory.checkpointing.reentrant")
    if finds_unused and reentrant and spec.text("strategy") == "ddp" and spec.hardware.world > 1:
        location = spec.extra_location("trl", "ddp_find_unused_parameters", "each gradient would be ready twice")
        yield Finding(
            location,
            "DDP cannot look for unused parameters under reentrant checkpointing",
            write("ddp_find_unused_parameters = false", ", or `checkpointing(reentrant=false)`"),
            (spec.label("memory.checkpointing.reentrant", "reentrant"),),
        )


@rule("XP421", "best-of-sharded-weights-only")
def best_of_weights_only(spec: Spec) -> Iterator[Finding]:
    """`load_best_model_at_end` under FSDP and DeepSpeed needs checkpoints with the full state.

    Why it is bad: the best checkpoint cannot be loaded back from weights alone.

    Without this rule: ValueError from the trainer, after the model is loaded.

    Source: transformers 5.23 `trainer.py` (`save_only_model` with `load_best_model_at_end`), 4.52 the same; confirmed
    by running it.
    """
    best = spec.extra_value("trl", "load_best_model_at_end") is True
    if best and not spec.flag("save.full_state") and (spec.sharded_by_fsdp or spec.zero_stage):
        yield Finding(
            spec.extra_location("trl", "load_best_model_at_end"),
            f"{spec.text('strategy')} cannot load its best checkpoint back from weights alone",
            "write `full_state = true`, or leave `load_best_model_at_end` out",
            (spec.label("save.full_state", "weights alone"), spec.label("strategy", "the strategy")),
        )


@rule("XP422", "auto-batch-with-zero3")
def auto_batch_with_zero3(spec: Spec) -> Iterator[Finding]:
    """`auto_find_batch_size` cannot be combined with ZeRO-3, because it starts the training again with a smaller
    micro-batch, which is impossible once ZeRO-3 has sharded the parameters.

    Why it is bad: the run could not continue with a smaller micro-batch.

    Without this rule: ValueError from the trainer, after the model is loaded.

    Source: transformers 5.23 and 4.52 `trainer.py`; confirmed by running it.
    """
    if spec.extra_value("trl", "auto_find_batch_size") is True and spec.zero_stage == 3:
        yield Finding(
            spec.extra_location("trl", "auto_find_batch_size"),
            "zero3 does not work with `auto_find_batch_size`",
            write("auto_find_batch_size = false", ", and `micro` in `batch`"),
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP477", "static-graph-with-accumulation")
def static_graph(spec: Spec) -> Iterator[Finding]:
    """DDP's static graph (`ddp_static_graph`) cannot be combined with accumulation. With a static graph, DDP expects
    that every backward pass exchanges gradients. Accumulation runs backward passes without such an exchange
    (`no_sync`), and DDP does not count these passes.

    Why it is bad: the run fails at its first step.

    Without this rule: "expect_autograd_hooks_ INTERNAL ASSERT FAILED" at the first step.

    Source: torch 2.13 `reducer.cpp` (`no_sync` with `static_graph`); transformers 5.23 `trainer.py`; confirmed by
    running it.
    """
    static, accum = spec.extra_value("trl", "ddp_static_graph") is True, spec.integer("batch.accum")
    if static and accum > 1 and spec.text("strategy") == "ddp" and spec.hardware.world > 1:
        yield Finding(
            spec.extra_location("trl", "ddp_static_graph", f"{accum} backward passes a step"),
            "DDP's static graph cannot accumulate gradients",
            write("ddp_static_graph = false"),
            (spec.label("batch.accum", "the accumulation"), spec.label("batch.gbs"), spec.label("batch.micro")),
        )


OF_DDP = ("ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph")


@rule("XP423", "argument-of-ddp", "warning")
def argument_of_ddp(spec: Spec) -> Iterator[Finding]:
    """Arguments such as `ddp_bucket_cap_mb` need `strategy ddp`, because only torch's DistributedDataParallel reads
    them. The value `false` is accepted under every strategy, because it changes nothing.

    Why it is bad: an argument of DDP has no effect under other strategies.

    Without this rule: nothing is reported; DeepSpeed and FSDP do not read DDP's arguments.

    Source: accelerate 1.15 `accelerator.py` (`prepare_model`: `ddp_handler` is used only for
    DistributedDataParallel).
    """
    strategy = spec.text("strategy")
    for name in OF_DDP if strategy != "ddp" else ():
        value = spec.extra_value("trl", name)
        if value is not None and value is not False:
            yield Finding(
                spec.extra_location("trl", name, "an argument of DistributedDataParallel"),
                f"`{name}` has no effect with {strategy}",
                f"leave `{name}` out, or write `strategy ddp`",
                (spec.label("strategy", "the strategy"),),
            )
