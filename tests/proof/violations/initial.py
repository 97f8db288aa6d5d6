"""Proofs of rules about the initial weights of adapters."""

from __future__ import annotations

from case_support import on_cpu, spec
from prove import Proof

SMALL = {"batch": "gbs=4 micro=2"}

PROOFS: tuple[Proof, ...] = (
    Proof("Q62", "XP142", case="XP142-continued", at="init", measure="initial.base_kept", expect={"kept": False}),
    Proof("Q63", "XP143", at="init", measure="initial.first_loss", expect={"equal": False},
          legal=spec("method dpo", "lora", "target trl-0.24",
                     train="qwen2.5-3b on ultrafeedback-binarized for 1 epochs")),
    Proof("Q21", "XP144", at="init", measure="initial.rows", raises="RuntimeError", match="must be 2-D",
          text=on_cpu("lora(init=eva)", strategy="zero3", **SMALL),
          legal=on_cpu("lora(init=eva)", strategy="zero2", **SMALL)),
    Proof("Q21", "XP144", case="XP144-fsdp", variant="fsdp", needs="several GPUs"),
    Proof("Q21", "XP144", case="XP144-bits", at="load", measure="adapters.packed", raises="TypeError",
          match="initialize PiSSA under", variant="bits"),
    Proof("Q21", "XP144", case="XP144-loftq", at="load", measure="initial.rounding", raises="AttributeError",
          match="quant_state", variant="loftq", legal=on_cpu("qlora(init=loftq)", **SMALL)),
    Proof("Q64", "XP145", at="init", measure="initial.embeddings", expect={"usual": True}),
    Proof("Q64", "XP145", case="XP145-experts", at="init", raises="AttributeError", match="no attribute 'weight'",
          variant="experts"),
    Proof("Q64", "XP145", case="XP145-gpt2", at="train", raises="RuntimeError", match="shape", variant="gpt2"),
    Proof("Q65", "XP146", at="init", measure="initial.ranks", expect={"stated": False},
          legal=spec("lora(rank=4, init=pissa)")),
    Proof("Q66", "XP147", at="init", measure="initial.rows", raises="KeyError", match="input_ids",
          legal=spec("lora(init=eva)")),
)  # fmt: skip
