"""Proofs of rules about preference tuning."""

from __future__ import annotations

from case_support import spec, trained
from prove import Proof
from spec_parts import extra

MID, FLASH, FLAT = "target trl-0.24", "model(attn=flash2)", "gbs=128 micro=16 padding_free"
FUSED = extra("use_liger_loss = true")
MICRO = ("per_device_train_batch_size",)


def prefs(*more: str, batch: str = "gbs=128 micro=16", **others: str) -> str:
    return spec(*more, train=trained("qwen2.5-3b on ultrafeedback-binarized"), batch=batch, **others)


def on_two(*more: str, strategy: str) -> str:
    """A spec of dpo in two CPU processes."""
    train = "qwen2.5-3b on ultrafeedback-binarized for 3 epochs"
    return spec(*more, train=train, hardware="2 x cpu", strategy=strategy, precision="fp32", batch="gbs=4 micro=2")


def on_one(*more: str) -> str:
    """A spec with short sequences in one CPU process."""
    train = "qwen2.5-3b on ultrafeedback-binarized for 3 epochs"
    return spec(*more, train=train, hardware="cpu", strategy="ddp", precision="fp32", batch="gbs=4 micro=2 seq=8")


FLATTENED = prefs("method dpo", MID, FLASH, batch=FLAT)
FOUR_BITS = spec("method kto(precompute)", "qlora", train="qwen2.5-3b on ultrafeedback-binarized for 3 epochs",
                 hardware="cpu", strategy="ddp", batch="gbs=4 micro=2")  # fmt: skip
PROOFS: tuple[Proof, ...] = (
    Proof("P37", "XP577", at="load", target="trl-0.24", measure="adapters.trained", raises="RuntimeError",
          match="same dtype", text=FOUR_BITS,
          legal=FOUR_BITS.replace("(precompute)", "")),
    Proof("R02", "XP106", case="XP106-dpo-loss", at="train", onto="legal", arguments={"loss_type": ["sigmoyd"]},
          raises="ValueError", match="Unknown loss type"),
    Proof("R02", "XP106", case="XP106-dpo-loss", at="train", onto="legal", arguments={"loss_type": "sigmoyd"},
          target="trl-0.18", raises="ValueError", match="Unknown loss type", variant="0.18"),
    Proof("R03", "XP630", at="init", raises="ValueError", match="only supported for the following loss types"),
    Proof("R03", "XP630", case="XP630-silent", at="init", measure="losses.divergence", expect={"read": False},
          legal=prefs("method dpo(loss=sigmoid)", "target trl-0.18", "extra trl {", "  f_divergence_type = js_divergence", "}"),
          variant="silent"),
    Proof("R24", "XP631", at="train", raises="ValueError", match="Unknown f_divergence_type"),
    Proof("R04", "XP632", at="init", raises="NotImplementedError", match="WPO-style weighting"),
    Proof("R05", "XP633", at="init", raises="ValueError", match="exo_pair"),
    Proof("R05", "XP633", case="XP633-robust", at="init", warns="should lie in .0.0, 0.5.", variant="robust"),
    Proof("R06", "XP636", at="init", raises="ValueError", match="sync_ref_model"),
    Proof("R06", "XP636", at="init", target="trl-0.18", raises="ValueError", match="TR-DPO", variant="0.18"),
    Proof("R07", "XP457", at="init", raises="NotImplementedError", match="PEFT"),
    Proof("R11", "XP503", case="XP503-pairs", at="init", raises="KeyError", match="chosen"),
    Proof("R12", "XP121", case="XP121-dpo-removed", arguments={"generate_during_eval": True}, raises="TypeError",
          match="generate_during_eval"),
    Proof("R13", "XP638", at="init", keep=MICRO, raises="ValueError", match="batch size must be > 1"),
    Proof("R13", "XP638", at="init", keep=MICRO, target="trl-0.18", raises="ValueError", match="batch size must be > 1",
          variant="0.18"),
    Proof("R14", "XP639", at="init", raises="ValueError", match="train_sampling_strategy"),
    Proof("R35", "XP686", at="init", measure="losses.gradient", expect={"moves": False}),
    Proof("R16", "XP640", at="load", measure="rows.own", warns="different amounts of desirable"),
    Proof("R21", "XP634", at="init", measure="losses.smoothing", expect={"read": False}),
    Proof("R21", "XP634", case="XP634-ipo", at="init", measure="losses.smoothing", expect={"read": False}, variant="0.18"),
    Proof("R37", "XP613", case="XP613-argument", at="init", measure="losses.modulated", expect={"read": False}),
    Proof("R38", "XP613", case="XP613-divergence", at="init", measure="losses.coefficient", expect={"read": False}),
    Proof("R25", "XP635", at="init", measure="losses.gradient", expect={"moves": False}),
    Proof("R25", "XP635", case="XP635-divided", at="train", raises="ZeroDivisionError", match="", variant="divided"),
    Proof("R25", "XP635", case="XP635-cpo", at="train", raises="ZeroDivisionError", match="", variant="cpo"),
    Proof("R33", "XP155", at="init", measure="losses.terms", expect={"margin": False, "likelihood": True}),
    Proof("R34", "XP156", at="init", measure="losses.terms", expect={"margin": True, "likelihood": True}),
    Proof("R27", "XP637", at="init", raises="ValueError", match="ZeRO-3",
          text=on_two("method dpo(precompute)", "target trl-0.18", strategy="zero3"),
          legal=on_two("method dpo(precompute)", "target trl-0.18", strategy="zero2")),
    Proof("R32", "XP172", at="init", measure="losses.answers", expect=lambda seen: seen["learned"] == 0,
          text=on_one("method orpo(max_prompt=8)", "target trl-0.18"),
          legal=on_one("method orpo(max_prompt=4)", "target trl-0.18")),
    Proof("R32", "XP172", case="XP172-kto", at="init", measure="losses.answers", expect=lambda seen: seen["longest"] > 8,
          text=on_one("method kto(max_prompt=8)", MID), legal=on_one("method kto(max_prompt=4)", MID), variant="kto"),
    Proof("R29", "XP486", at="init", measure="losses.averaged", expect={"others": True}),
    *(Proof("R30", "XP487", case=case, at="init", measure="losses.flattened", expect={"same": False}, legal=FLATTENED,
            variant=case.removeprefix("XP487").strip("-")) for case in ("XP487", "XP487-chosen")),
    Proof("R30", "XP487", case="XP487-weighting", at="train", raises="RuntimeError", match="size of tensor",
          legal=FLATTENED, variant="weighting"),
    Proof("R31", "XP489", at="train", eager=True, measure="strategy.spread", expect={"apart": True},
          text=on_two("method dpo", MID, FUSED, strategy="ddp"), legal=on_two("method dpo", MID, strategy="ddp")),
    Proof("R31", "XP489", case="XP489-loss", at="init", raises="ValueError", match="loss type is not from", variant="loss"),
    Proof("R31", "XP489", case="XP489-reference", at="init", eager=True, measure="losses.compared",
          expect={"stays": True}, variant="reference"),
    Proof("R31", "XP489", case="XP489-smoothing", at="init", eager=True, measure="losses.smoothing",
          expect={"read": False}, variant="smoothing"),
    Proof("R31", "XP489", case="XP489-adapters", at="train", eager=True, raises="CheckpointError",
          match="different metadata", keep=("gradient_checkpointing", "gradient_checkpointing_kwargs"), variant="adapters"),
    Proof("R28", "XP641", at="load", measure="evaluation.without_trackers", raises="ValueError", match="generate_during_eval",
          legal=prefs("method dpo", "target trl-0.18")),
    Proof("R28", "XP641", case="XP641-orpo", at="load", measure="evaluation.without_trackers", raises="ValueError", match="generate_during_eval", variant="orpo",
          legal=prefs("method orpo")),
)  # fmt: skip
