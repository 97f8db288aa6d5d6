"""Proofs of settings that nothing would read: those of another strategy, launcher, method or target."""

from __future__ import annotations

from case_support import spec
from prove import Proof

PLAIN = spec("target trl-0.18", strategy="ddp")

PROOFS: tuple[Proof, ...] = (
    Proof("D", "XP404", measure="idle.zero", expect={"allgather": None}),
    Proof("D", "XP405", measure="idle.zero", expect={"offload": None}),
    Proof("D", "XP409", at="launch", measure="idle.version", expect={"asked": 2, "has": 1}),
    Proof("D", "XP440", measure="idle.zero", expect={"sub_group": None}),
    Proof("L", "XP802", at="launch", measure="idle.worker", expect={"wanted": True, "bare": False}),
    Proof("A", "XP313", at="init", raises="ValueError", match="packing strategy"),
    Proof("K", "XP334", needs="galore-torch or lomo-optim, which no stack for a CPU has"),
    Proof("S", "XP351", at="init", measure="losses.smoothing", expect={"read": False}, text=spec(
          "method dpo", "extra trl {\n  label_smoothing_factor = 0.1\n}",
          train="qwen2.5-3b on ultrafeedback-binarized for 3 epochs")),
    Proof("S", "XP508", at="load", measure="idle.mixture", raises="KeyError", match="."),
    Proof("S", "XP509", at="init", measure="rows.order", expect={"sampler": "RandomSampler"}),
    Proof("S", "XP601", case="XP601-lost-mask", at="init", measure="rows.masked", expect={"masked": 0}),
)  # fmt: skip
