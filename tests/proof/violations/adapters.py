"""Proofs of rules about adapters and quantized bases."""

from __future__ import annotations

from case_support import on_cpu, spec
from prove import Proof

SMALL = {"strategy": "zero3", "batch": "gbs=4 micro=2"}


def merging(adapters: str, strategy: str = "zero2") -> str:
    """A spec for two CPU processes, whose adapters are merged into the base at the end."""
    return spec(adapters, hardware="2 x cpu", precision="fp32", strategy=strategy, batch="gbs=4 micro=2",
                save='save "out/run" merge')  # fmt: skip


def gemma(strategy: str) -> str:
    """A spec of gemma 3 in two CPU processes on trl-0.24."""
    return spec("lora", "target trl-0.24", train="gemma-3-1b-it on infinity-instruct for 1 epochs",
                hardware="2 x cpu", precision="fp32", strategy=strategy, batch="gbs=4 micro=2")  # fmt: skip


PROOFS: tuple[Proof, ...] = (
    Proof("Q01", "XP450", at="load", measure="adapters.packed", raises="ValueError", match="purely quantized"),
    Proof("Q04", "XP451", measure="adapters.merged", raises="ValueError", match="is quantized with GPTQConfig"),
    Proof("Q67", "XP167", needs="a GPU of compute capability 8.9"),
    Proof("Q67", "XP167", case="XP167-cpu", measure="adapters.stored_in_fp8", expect={"same": False}, variant="cpu",
          legal=on_cpu("lora")),
    Proof("Q67", "XP167", case="XP167-stack", target="trl-0.24", measure="adapters.stored_in_fp8", raises="RuntimeError",
          match="No GPU or XPU found", variant="stack",
          legal=spec("lora", "target trl-0.24", batch="gbs=128 micro=16 seq=512")),
    Proof("Q72", "XP168", measure="adapters.dtypes_of_fp8", expect={"dtypes": 2}),
    Proof("Q72", "XP168", case="XP168-mxfp4", measure="adapters.dtypes_of_mxfp4", variant="mxfp4",
          expect={"dtypes": 2, "computes": False},
          legal=spec("lora(targets=[q_proj])", "model(dtype=bf16)", "target trl-0.24", strategy="zero1",
                     train='"mx" on infinity-instruct for 3 epochs', batch="gbs=128 micro=1 seq=512")),
    Proof("Q06", "XP454", at="init", raises="ValueError", match="lm_head"),
    Proof("Q06", "XP454", case="XP454-dpo", at="init", raises="ValueError", match="lm_head", variant="dpo"),
    Proof("Q10", "XP455", at="init", raises="ValueError", match="not found in the base model"),
    Proof("Q10", "XP455", case="XP455-some", at="init", measure="adapters.absent", expect={"absent": ["c_attn"]},
          variant="some"),
    Proof("Q13", "XP453", case="XP453-fsdp", at="load", keep=("fsdp",), processes=2, measure="adapters.quantized",
          raises="AttributeError", match="CB", legal=spec("lora(bits=4)", strategy="fsdp")),
    Proof("Q13", "XP453", at="load", measure="adapters.quantized", expect={"whole": True}, variant="zero3",
          text=on_cpu("lora(bits=8)", **SMALL), legal=on_cpu("lora(bits=4)", **SMALL)),
    Proof("Q51", "XP438", at="config", measure="adapters.cast", expect={"same": False}),
    Proof("Q51", "XP438", at="config", measure="adapters.cast", case="XP438-wide", raises="RuntimeError", match="shape",
          variant="wide"),
    Proof("Q14", "XP452", needs="a GPTQ kernel"),
    Proof("Q29", "XP454", case="XP454-cast", at="init", raises="ValueError", match="lm_head", variant="cast"),
    Proof("Q30", "XP456", at="init", measure="losses.gradient", expect={"moves": False}),
    Proof("Q30", "XP456", case="XP456-dropout", at="init", measure="losses.gradient", expect={"moves": False},
          variant="dropout"),
    Proof("D100", "XP437", at="load", raises="IndexError", match="out of bounds for dimension 0 with size 0",
          text=gemma("zero3"), legal=gemma("zero2")),
    Proof("Q45", "XP479", at="load", measure="adapters.trained", raises="AttributeError", match="ds_status",
          text=on_cpu("qlora(dora)", **SMALL), legal=on_cpu("lora(dora)", **SMALL)),
    Proof("Q45", "XP479", case="XP479-cpu", at="load", measure="adapters.trained", raises="AttributeError",
          match="unsqueeze", variant="cpu"),
    Proof("Q57", "XP184", at="init", raises="IndexError", match="tuple index out of range",
          text=on_cpu('lora(dropout=0, targets=[v_proj], parameters=["q_proj.weight"])', "target trl-0.24", **SMALL),
          legal=on_cpu('lora(dropout=0, targets=[v_proj], parameters=["q_proj.weight"])', "target trl-0.24", strategy="zero1",
                       batch="gbs=4 micro=2")),
    Proof("Q53", "XP484", at="config", measure="adapters.unpacked", expect={"packed": 0},
          legal=spec("qlora", train="qwen2.5-3b on alpaca for 3 epochs")),
    Proof("Q46", "XP931", at="init", measure="continued.loaded", raises="RuntimeError", match="size mismatch",
          payload={"lora.rank": 8}, onto="legal"),
    Proof("Q49", "XP934", at="init", measure="continued.reference", expect={"apart": True},
          legal=spec("lora", "method dpo", "target trl-0.24",
                     train="qwen2.5-3b on ultrafeedback-binarized for 3 epochs")),
    Proof("C31", "XP707", at="config", measure="adapters.merges", expect={"merges": False}),
    Proof("C32", "XP708", at="load", measure="adapters.folded", raises="RuntimeError", match="size of tensor",
          text=merging("lora", "zero3"), legal=merging("lora")),
    Proof("C32", "XP708", at="load", measure="adapters.folded", expect={"kept": False}, case="XP708-bits",
          variant="bits", text=merging("lora(bits=4)"), legal=merging("lora")),
    Proof("D34", "XP459", at="init", warns="use_reentrant. is forced to .True",
          text=on_cpu("lora", "memory {", "  checkpointing(reentrant=false)", "}", **SMALL),
          legal=on_cpu("lora", **SMALL)),
)  # fmt: skip
