"""Proofs of what is trained beside adapters, and of frozen layers."""

from __future__ import annotations

from case_support import spec
from prove import Proof

PROOFS: tuple[Proof, ...] = (
    Proof("Q", "XP464", case="XP464-sizes", at="init", payload={"lora.rank": 8, "lora.block_size": 16},
          raises="ValueError", match="only specify either"),
    Proof("Q", "XP465", at="init", raises="ValueError", match="is not supported",
          legal=spec("oft(targets=[q_proj])", "target trl-0.18")),
    Proof("Q", "XP465", case="XP465-gpt2", at="init", raises="TypeError", match="is not supported", variant="gpt2"),
    Proof("Q", "XP466", at="init", measure="adapters.beside", expect={"others": 0}),
    Proof("Q", "XP467", measure="adapters.tied", expect={"kept": False},
          legal=spec("lora", "target trl-0.18")),
    Proof("Q", "XP468", at="init", warns="no parameter was matched"),
    Proof("Q", "XP469", at="init", keep=("optim",), measure="adapters.stepped", expect={"held": False}),
    Proof("Q", "XP470", at="init", measure="adapters.beside", expect={"others": 0}),
    Proof("Q20", "XP473", at="init", raises="ValueError", match="does not work with use_dora"),
    Proof("Q23", "XP475", at="init", measure="adapters.beside", expect={"others": 0}),
    Proof("Q", "XP474", measure="adapters.patterns", raises="error", match="unterminated subpattern"),
    Proof("Q", "XP471", at="init", measure="adapters.left", expect={"moves": False}),
)  # fmt: skip
