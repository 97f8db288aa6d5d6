"""Proofs of two kinds of rules: about modules that are trained next to adapters, and about frozen layers."""

from __future__ import annotations

from case_support import on_cpu, spec
from prove import Proof

UNSAVED = 'save "out/run" every=never'
TIED = "gemma-3-1b-it on infinity-instruct for 3 epochs"
UNTIED = "llama-3.1-8b-instruct on infinity-instruct for 3 epochs"
PROOFS: tuple[Proof, ...] = (
    Proof("Q35", "XP464", case="XP464-sizes", at="init", payload={"lora.rank": 8, "lora.block_size": 16},
          raises="ValueError", match="only specify either"),
    Proof("Q36", "XP465", at="init", raises="ValueError", match="is not supported",
          legal=spec("oft(targets=[q_proj])", "target trl-0.18")),
    Proof("Q36", "XP465", case="XP465-gpt2", at="init", raises="TypeError", match="is not supported", variant="gpt2"),
    Proof("Q36", "XP465", case="XP465-loha", at="init", raises="TypeError", match="not supported", variant="loha"),
    Proof("Q36", "XP465", case="XP465-miss", at="init", raises="TypeError", match="not supported", variant="miss"),
    Proof("Q68", "XP230", at="init", raises="IndexError", match="tuple index out of range",
          text=on_cpu("loha", strategy="zero3", batch="gbs=4 micro=2"),
          legal=on_cpu("miss(rank=8)", strategy="zero3", batch="gbs=4 micro=2")),
    Proof("Q69", "XP231", at="load", measure="adapters.packed_step", raises="RuntimeError", match="cannot be multiplied"),
    Proof("Q70", "XP232", at="init", raises="ValueError", match="less than or equal to in_features",
          legal=spec("miss(rank=8)")),
    Proof("Q71", "XP233", at="load", measure="adapters.packed_step", raises="RuntimeError", match="same dtype",
          legal=spec("vera(bits=8)", strategy="ddp")),
    Proof("Q71", "XP233", case="XP233-generated", variant="generated",
          needs="a quantized base, which proofs leave out; the differential test runs it with bitsandbytes"),
    Proof("Q71", "XP233", case="XP233-buffers", variant="buffers",
          needs="ZeRO in 16 bits, which bundles have on GPUs only; the differential test runs it on CPUs (gloo)"),
    Proof("Q71", "XP233", case="XP233-fsdp", at="train", keep=("fsdp", "save_strategy"), processes=2, variant="fsdp",
          text=spec("vera(rank=16)", save=UNSAVED, strategy="fsdp"),
          legal=spec("miss(rank=8)", save=UNSAVED, strategy="fsdp"),
          raises="RuntimeError", match="same dtype"),
    Proof("Q37", "XP466", at="init", measure="adapters.outside_adapters", expect={"others": 0}),
    Proof("Q75", "XP626", at="init", measure="adapters.outside_adapters", expect={"others": 5}),
    Proof("Q38", "XP467", measure="adapters.tied", expect={"kept": False},
          legal=spec("lora", "target trl-0.18")),
    Proof("Q38", "XP467", case="XP467-targets", measure="adapters.tied", expect={"kept": False}, variant="targets",
          legal=spec("lora(targets=[q_proj])")),
    Proof("Q78", "XP425", at="train", keep=("fsdp", "save_strategy"), processes=2, raises="RuntimeError",
          text=spec("lora(modules_to_save=[lm_head])", train=UNTIED, save=UNSAVED, strategy="fsdp1"), match="mat2 must be a matrix",
          legal=spec("lora(modules_to_save=[lm_head])", train=UNTIED, save=UNSAVED, strategy="fsdp")),
    Proof("Q78", "XP425", case="XP425-tied", at="train", keep=("fsdp", "save_strategy"), processes=2, variant="tied",
          text=spec("lora(modules_to_save=[embed_tokens])", train=TIED, save=UNSAVED, strategy="fsdp"),
          legal=spec("lora(targets=[q_proj, embed_tokens])", train=TIED, save=UNSAVED, strategy="fsdp"),
          raises="ValueError", match="another FSDP group"),
    Proof("Q78", "XP425", case="XP425-tied-head", at="train", keep=("fsdp", "save_strategy"), processes=2,
          text=spec("lora(modules_to_save=[lm_head])", train=TIED, save=UNSAVED, strategy="fsdp"), variant="tied-head",
          legal=spec("lora(modules_to_save=[model.norm])", train=TIED, save=UNSAVED, strategy="fsdp"),
          raises="ValueError", match="another FSDP group"),
    Proof("Q39", "XP468", at="init", warns="no parameter was matched"),
    Proof("Q61", "XP625", at="init", raises="ValueError", match="not a valid target"),
    Proof("Q61", "XP625", case="XP625-one-dimension", at="init", raises="ValueError", match="1 dimensional",
          variant="one-dimension"),
    Proof("Q40", "XP469", at="init", keep=("optim",), measure="adapters.stepped", expect={"held": False}),
    Proof("Q41", "XP470", at="init", measure="adapters.outside_adapters", expect={"others": 0}),
    Proof("Q20", "XP473", at="init", raises="ValueError", match="does not work with use_dora"),
    Proof("Q23", "XP475", at="init", measure="adapters.outside_adapters", expect={"others": 0}),
    Proof("T106", "XP627", at="init", measure="adapters.outside_adapters", expect={"others": 0}),
    Proof("Q44", "XP474", measure="adapters.patterns", raises="error", match="unterminated subpattern"),
    Proof("Q42", "XP471", at="init", measure="adapters.left", expect={"moves": False}),
)  # fmt: skip
