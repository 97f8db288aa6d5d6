"""What dpo's trainers before TRL 1 compute wrongly: losses beside each other, flattened pairs, the fused loss.

XP486, XP487, XP489.
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.conditions import chosen
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = chosen("method", "dpo")

FUSED = "use_liger_loss"
OF_LIGER = ("sigmoid", "apo_zero", "apo_down", "sppo_hard", "nca_pair")
"""The losses that the fused one has; the trainer raises ValueError for any other."""
LEFT_OUT = ("f_divergence_type", "rpo_alpha", "use_weighting")


def _losses(spec: Spec) -> tuple[str, ...]:
    return tuple(one.name for one in spec.weighted("method.loss"))


@rule("XP486", "ipo-averages-the-others")
def ipo_among_others(spec: Spec) -> Iterator[Finding]:
    """`ipo` takes means over the words of an answer, the other losses of dpo take sums.

    Where a list has both, trl 0.24 hands the means to all of them: a sigmoid then sees differences that are as many
    times smaller as an answer has words. Today, silently. Source: trl 0.24 `dpo_trainer.py` `concatenated_forward`
    (`if "ipo" in self.loss_type`); executed. trl 1.16 takes each loss by itself.
    """
    losses = _losses(spec)
    others = [one for one in losses if one not in ("ipo", "sft")]
    if spec.stack.facts.ipo_averages_all and "ipo" in losses and others:
        yield Finding(
            spec.place("method.loss", f"`{others[0]}` would get means, too"),
            f"`ipo` beside `{others[0]}` on {spec.stack.name}",
            f"leave `ipo` out of the list, or write `target {able(lambda one: not one.facts.ipo_averages_all)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP487", "losses-of-flattened-pairs")
def flattened(spec: Spec) -> Iterator[Finding]:
    """Flattened pairs are one row, and some losses of dpo count words or answers row by row.

    `ipo` divides by the words of the whole micro-batch; `sft` and `rpo`, which are the likelihood of the chosen answer,
    take in the rejected one as well. Today, silently. `use_weighting` ends with a RuntimeError in the first step.
    Source: trl 0.18 and 0.24 `dpo_trainer.py` `concatenated_forward`; executed.
    """
    if not spec.flag("batch.padding_free") or not spec.stack.facts.dpo_padding_free:
        return
    named = [one for one in _losses(spec) if one in ("ipo", "sft")]
    if named:
        place, what = spec.place("method.loss"), f"`{named[0]}`"
    elif spec.get("method.rpo"):
        place, what = spec.place("method.rpo"), "`rpo`"
    elif spec.extra_value("trl", "use_weighting") is True:
        place, what = spec.extra_place("trl", "use_weighting"), "`use_weighting`"
    else:
        return
    yield Finding(
        place,
        f"{what} of flattened pairs on {spec.stack.name}",
        "leave `padding_free` out",
        (spec.label("batch.padding_free", "all pairs of a micro-batch in one row"),),
    )


@rule("XP489", "fused-dpo")
def fused_dpo(spec: Spec) -> Iterator[Finding]:
    """dpo's fused loss of trl 0.24 runs the decoder by itself, past what wraps the model, and knows one loss as it is.

    DDP sees no forward pass and never averages the gradients: two processes train two models, and one is saved. ZeRO-3
    and FSDP have not gathered the weights of the head. A reference that is computed beforehand is not read: the model
    is compared with itself, and the loss stays at log 2. Label smoothing, an f-divergence, `rpo_alpha` and
    `use_weighting` are left out; flattened pairs are halved in the middle of a row. With adapters the reference is a
    pass with gradients, which recomputed activations do not fit. Other losses are refused by the trainer. Today,
    silently, but for ValueError of the losses and CheckpointError of adapters. Source: trl 0.24 `dpo_trainer.py`
    `_compute_loss_liger`; executed.
    """
    if spec.extra_value("trl", FUSED) is not True or FUSED not in spec.fields():
        return
    losses, strategy = _losses(spec), spec.text("strategy")
    wrong = [one for one in losses if one not in OF_LIGER]
    recomputed = spec.lora and spec.flag("memory.checkpointing") and not spec.flag("memory.checkpointing.reentrant")
    left_out = [name for name in LEFT_OUT if spec.extra_value("trl", name) not in (None, False, "reverse_kl")]
    if spec.hardware.world > 1 and strategy == "ddp":
        why, label = "the processes never average their gradients", spec.label("strategy", "the strategy")
    elif spec.hardware.world > 1 and spec.zero_stage not in (1, 2):
        why, label = f"{strategy} spreads the weights", spec.label("strategy", "the strategy")
    elif wrong or len(losses) > 1:
        why = f"the loss is `{wrong[0]}`" if wrong else "there are several losses"
        label = spec.label("method.loss", "the loss")
    elif spec.flag("method.precompute"):
        why, label = "the reference is computed beforehand", spec.label("method.precompute", "the reference")
    elif spec.get("method.label_smoothing") or spec.get("method.rpo") or left_out:
        why, label = "something beside the loss is left out", spec.label("method.label_smoothing", "not read")
    elif spec.flag("batch.padding_free"):
        why, label = "pairs are flattened", spec.label("batch.padding_free", "one row")
    elif recomputed:
        why, label = "adapters are recomputed", spec.label("memory.checkpointing", "not in the reentrant way")
    else:
        return
    yield Finding(
        spec.extra_place("trl", FUSED, "runs parts of the model by themselves"),
        f"dpo's fused loss, and {why}",
        f"write `{FUSED} = false`",
        (label,),
        f"{FUSED} = false",
    )
