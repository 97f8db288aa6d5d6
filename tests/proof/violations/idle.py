"""Proofs of rules about settings that have no effect, because only another strategy, launcher, method or target reads
them.
"""

from __future__ import annotations

from case_support import spec
from prove import Proof

OLD = "target trl-0.18"
MASK = "method sft(completion_only)"
ALPACA = "qwen2.5-3b on alpaca for 3 epochs"
KTO = "qwen2.5-3b on ultrafeedback-binarized for 3 epochs"


def rewards(reentrant: str, *more: str, model: str = "qwen2.5-3b", **changed: str) -> str:
    """A spec of a reward model on trl 0.18 in two CPU processes."""
    return spec(f"memory(checkpointing(reentrant={reentrant}))", "method reward", *more, OLD, hardware="2 x cpu",
                train=f"{model} on intel-orca-dpo-pairs for 3 epochs", precision="fp32", batch="gbs=4 micro=2", **changed)  # fmt: skip


PROOFS: tuple[Proof, ...] = (
    Proof("D81", "XP404", measure="idle.zero", expect={"allgather": None}),
    Proof("D82", "XP405", measure="idle.zero", expect={"offload": None}),
    Proof("D83", "XP409", at="launch", measure="idle.version", expect={"asked": 2, "known": False}),
    Proof("D92", "XP440", measure="idle.zero", expect={"sub_group": None}),
    Proof("D39", "XP441", case="XP441-elastic", at="deepspeed", warns="elastic checkpointing is deprecated", variant="elastic"),
    Proof("N23", "XP802", at="launch", measure="idle.worker", expect={"wanted": True, "bare": False}),
    Proof("A41", "XP313", at="init", raises="ValueError", match="packing strategy"),
    Proof("O34", "XP241", measure="idle.cycles", expect={"cycles": None}),
    Proof("P29", "XP351", at="init", measure="losses.smoothing", expect={"read": False}, text=spec(
          "method dpo", "extra trl {\n  label_smoothing_factor = 0.1\n}",
          train="qwen2.5-3b on ultrafeedback-binarized for 3 epochs")),
    Proof("R22", "XP642", at="train", raises="ValueError", match="automatically infer lengths"),
    Proof("R22", "XP642", case="XP642-0.18", at="train", raises="ValueError", match="automatically infer lengths",
          variant="0.18"),
    Proof("R22", "XP642", case="XP642-kto", at="train", raises="ValueError", match="automatically infer lengths",
          variant="kto"),
    Proof("R23", "XP643", at="train", raises="AssertionError", match="already been reduced", text=rewards("true"),
          legal=rewards("false")),
    Proof("R23", "XP643", at="train", raises="RuntimeError", match="finished reduction in the prior iteration",
          text=rewards("true", "lora", model="falcon-7b", strategy="ddp"),
          legal=rewards("false", "lora", model="falcon-7b", strategy="ddp"), variant="unused"),
    Proof("R23", "XP643", at="train", raises="RuntimeError", match="mark a variable ready only once",
          text=rewards("true", strategy="ddp"), legal=rewards("false", strategy="ddp"), variant="ddp"),
    Proof("S20", "XP644", at="load", raises="ValueError", match="Unrecognized configuration class",
          legal=spec("method reward", OLD, train="qwen2.5-3b on ultrafeedback-binarized for 1 epochs")),
    Proof("T21", "XP508", at="load", measure="idle.mixture", raises="AttributeError", match="'NoneType' object has no attribute 'endswith'"),
    Proof("T22", "XP509", at="init", measure="rows.order", expect={"sampler": "RandomSampler"},
          legal=spec("data(shuffle=false)", "method kto", OLD, train=KTO)),
    Proof("S21", "XP601", at="init", measure="rows.masked", expect={"masked": 0},
          text=spec(MASK, OLD, "model(attn=flash2)", train=ALPACA, batch="gbs=128 micro=16 packing"),
          legal=spec(MASK, OLD, train=ALPACA)),
)  # fmt: skip
