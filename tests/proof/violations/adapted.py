"""Proofs of rules about adapters on fused experts, on state-space layers and on latent attention."""

from __future__ import annotations

from case_support import spec
from prove import Proof

PROOFS: tuple[Proof, ...] = (
    Proof("Q32", "XP460", at="init", raises="ValueError", match="ParamWrapper does not work with lora_dropout"),
    Proof("Q32", "XP460", case="XP460-named", at="init", raises="ValueError", match="lora_dropout", variant="named"),
    Proof("Q52", "XP463", at="config", measure="adapters.experts", expect={"packed": False},
          legal=spec("qlora")),
    Proof("Q33", "XP461", at="init", raises="ValueError", match="gate_proj without also targeting up_proj"),
    Proof("Q34", "XP462", at="init", family="falcon_h1", raises="ValueError", match="incompatible with Mamba-based"),
    Proof("Q34", "XP462", case="XP462-all-linear", at="init", family="falcon_h1", legal_family="llama", legal=spec("lora"),
          raises="ValueError", match="incompatible with Mamba-based", variant="all-linear"),
    Proof("Q76", "XP346", at="train", family="youtu", raises="RuntimeError", match="invalid for input of size 0"),
)  # fmt: skip
