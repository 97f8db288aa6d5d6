"""Rules about TRL's fused losses. These losses call the decoder of a model and multiply by the weight of its output
head themselves (XP489, XP693).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import all_of, chosen, extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label

WHEN = all_of(chosen("method", "dpo", "kto"), extra("trl"))

FUSED = "use_liger_loss"
OF_LIGER = ("sigmoid", "apo_zero", "apo_down", "sppo_hard", "nca_pair")
"""dpo's losses that Liger's fused loss implements. For any other loss, the trainer raises ValueError."""
IGNORED = ("f_divergence_type", "rpo_alpha", "use_weighting")


def _uses_fused_loss(spec: Spec) -> bool:
    """Whether the spec sets `use_liger_loss`, and the method's trainer on this target has this argument."""
    return spec.extra_value("trl", FUSED) is True and FUSED in spec.fields()


def _finding(spec: Spec, why: str, label: Label | None) -> Finding:
    """Make the finding that the fused loss cannot be used. `why` is the reason. `label` is at the setting that
    conflicts with the fused loss.
    """
    return Finding(
        spec.extra_location("trl", FUSED, "calls parts of the model directly"),
        f"{spec.text('method')}'s fused loss cannot be used: {why}",
        write(f"{FUSED} = false"),
        (label,),
    )


@rule("XP489", "fused-dpo")
def fused_dpo(spec: Spec) -> Iterator[Finding]:
    """On trl 0.24, dpo's fused loss (`liger`) needs a single process, ZeRO-1 or ZeRO-2. The spec must name exactly one
    loss, and Liger must implement this loss. The fused loss cannot be combined with a precomputed reference,
    `padding_free`, label smoothing, `rpo` or a divergence. It cannot be combined with adapters if gradient
    checkpointing is non-reentrant.

    Why it is bad: the fused loss calls the decoder directly, not through the wrapper that DDP, ZeRO-3 or FSDP puts
    around the model. If its wrapper is not called, DDP never averages the gradients, so the models of the
    processes become different, and only one of them is saved. ZeRO-3 and FSDP gather weights in the wrapper's hooks,
    so the fused loss would get an output head whose weights are not gathered.

    Without this rule: nothing is reported in most cases. A precomputed reference is not read, so the model is compared
    with itself, and the loss stays at log 2. Label smoothing, an f-divergence, `rpo_alpha` and `use_weighting` are
    ignored. With `padding_free`, chosen and rejected answers are split at a wrong position. Losses that Liger does not
    implement raise ValueError. Adapters with recomputation raise CheckpointError, because the reference pass computes
    gradients.

    Source: trl 0.24 `dpo_trainer.py` `_compute_loss_liger`; confirmed by running it.
    """
    if spec.get("method") != "dpo" or not _uses_fused_loss(spec):
        return
    losses, strategy = spec.losses, spec.text("strategy")
    wrong = [one for one in losses if one not in OF_LIGER]
    recomputed = spec.lora and spec.flag("memory.checkpointing") and not spec.flag("memory.checkpointing.reentrant")
    ignored = [name for name in IGNORED if spec.extra_value("trl", name) not in (None, False, "reverse_kl")]
    if spec.hardware.world > 1 and strategy == "ddp":
        why, label = "the processes never average their gradients", spec.label("strategy", "the strategy")
    elif spec.hardware.world > 1 and spec.zero_stage not in (1, 2):
        why, label = f"{strategy} shards the weights", spec.label("strategy", "the strategy")
    elif wrong or len(losses) > 1:
        why = f"the loss is `{wrong[0]}`" if wrong else "there are several losses"
        label = spec.label("method.loss", "the loss")
    elif spec.flag("method.precompute"):
        why, label = "it does not read a precomputed reference", spec.label("method.precompute", "the reference")
    elif ignored:
        why, label = f"it ignores `{ignored[0]}`", spec.extra_location("trl", ignored[0], "ignored")
    elif spec.get("method.label_smoothing") or spec.get("method.rpo"):
        name: Path = "method.label_smoothing" if spec.get("method.label_smoothing") else "method.rpo"
        why, label = f"it ignores `{name[7:]}`", spec.label(name, "ignored")
    elif spec.flag("batch.padding_free"):
        why, label = "pairs are flattened into one row", spec.label("batch.padding_free", "flattens pairs")
    elif recomputed:
        why, label = "layers with adapters are recomputed", spec.label("memory.checkpointing", "not reentrant")
    else:
        return
    yield _finding(spec, why, label)


@rule("XP693", "fused-loss-past-the-wrapper")
def fused_kto(spec: Spec) -> Iterator[Finding]:
    """On trl 0.18, kto's fused loss (`liger`) works only with `loss = kto`, and only in a single process or with ZeRO-1
    or ZeRO-2. It cannot be combined with adapters or a precomputed reference.

    Why it is bad: the fused loss looks for the decoder and the output head in the model and calls them directly. DDP's
    wrapper has neither a decoder nor a head, and under ZeRO-3 the head's weights are not gathered.

    Without this rule: AttributeError or RuntimeError at the first step; for adapters, a precomputed reference and
    losses other than `kto`, ValueError in the trainer's constructor.

    Source: trl 0.18 `kto_trainer.py` `_compute_loss_liger`; confirmed by running it with ddp, zero1, zero2 and zero3 on
    two processes.
    """
    if spec.get("method") != "kto" or not _uses_fused_loss(spec):
        return
    losses = [one for one in spec.losses if one != "kto"]
    strategy, several = spec.text("strategy"), spec.hardware.world > 1
    if spec.lora:
        why, label = "adapters are trained", spec.label(spec.adapter, "the adapters")
    elif losses:
        why, label = f"the loss is `{losses[0]}`", spec.label("method.loss", "the loss")
    elif spec.flag("method.precompute"):
        why, label = "it does not read a precomputed reference", spec.label("method.precompute", "the reference")
    elif spec.zero_stage == 3 or (several and not spec.zero_stage):
        why, label = f"{strategy} wraps the model", spec.label("strategy", "the strategy")
    else:
        return
    yield _finding(spec, why, label)
