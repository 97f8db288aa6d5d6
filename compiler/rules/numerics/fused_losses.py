"""TRL's fused losses, which run parts of the model by themselves (XP489, XP693)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import both, chosen, extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.setting import Path

WHEN = both(chosen("method", "dpo", "kto"), extra("trl"))

FUSED = "use_liger_loss"
OF_LIGER = ("sigmoid", "apo_zero", "apo_down", "sppo_hard", "nca_pair")
"""The losses that the fused one has; the trainer raises ValueError for any other."""
LEFT_OUT = ("f_divergence_type", "rpo_alpha", "use_weighting")


def _asked(spec: Spec) -> bool:
    return spec.extra_value("trl", FUSED) is True and FUSED in spec.fields()


def _fused(spec: Spec, why: str, label: Label | None) -> Finding:
    return Finding(
        spec.extra_place("trl", FUSED, "runs parts of the model by themselves"),
        f"{spec.text('method')}'s fused loss cannot be used: {why}",
        write(f"{FUSED} = false"),
        (label,),
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
    if spec.get("method") != "dpo" or not _asked(spec):
        return
    losses, strategy = spec.losses, spec.text("strategy")
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
    elif left_out:
        why, label = f"it leaves `{left_out[0]}` out", spec.extra_place("trl", left_out[0], "not read")
    elif spec.get("method.label_smoothing") or spec.get("method.rpo"):
        name: Path = "method.label_smoothing" if spec.get("method.label_smoothing") else "method.rpo"
        why, label = f"it leaves `{name[7:]}` out", spec.label(name, "not read")
    elif spec.flag("batch.padding_free"):
        why, label = "pairs are flattened", spec.label("batch.padding_free", "one row")
    elif recomputed:
        why, label = "adapters are recomputed", spec.label("memory.checkpointing", "not in the reentrant way")
    else:
        return
    yield _fused(spec, why, label)


@rule("XP693", "fused-loss-past-the-wrapper")
def fused_kto(spec: Spec) -> Iterator[Finding]:
    """kto's fused loss of trl 0.18 takes the decoder and the output head out of the model and runs them by themselves.

    What wraps the model sees no forward pass: DDP has no such part, and ZeRO-3 has not gathered the head's weights.
    Adapters, a reference that is computed beforehand and other losses than `kto` are refused by the trainer. Today:
    AttributeError or RuntimeError at the first step, or ValueError in the trainer's constructor. grpo's fused loss goes
    through the wrapper. Source: trl 0.18 `kto_trainer.py` `_compute_loss_liger`; executed with ddp, zero1, zero2 and
    zero3 on two processes.
    """
    if spec.get("method") != "kto" or not _asked(spec):
        return
    losses = [one for one in spec.losses if one != "kto"]
    strategy, several = spec.text("strategy"), spec.hardware.world > 1
    if spec.lora:
        why, label = "adapters are trained", spec.label(spec.adapter, "the adapters")
    elif losses:
        why, label = f"the loss is `{losses[0]}`", spec.label("method.loss", "the loss")
    elif spec.flag("method.precompute"):
        why, label = "the reference is computed beforehand", spec.label("method.precompute", "the reference")
    elif spec.zero_stage == 3 or (several and not spec.zero_stage):
        why, label = f"{strategy} wraps the model", spec.label("strategy", "the strategy")
    else:
        return
    yield _fused(spec, why, label)
