"""Cases of adapters on fused experts and state spaces (XP460 to XP463)."""

from __future__ import annotations

from case_support import Case, spec, trained
from cases_attention import family, of

EXPERTS = {"train": trained("qwen3-30b-a3b on infinity-instruct"), "batch": "gbs=128 micro=1"}
HYBRID = family("falcon_h1")

CASES: tuple[Case, ...] = (
    Case("XP460", spec("lora(dropout=0.05)", **EXPERTS), spec("lora", **EXPERTS)),
    Case(
        "XP460",
        spec("lora(dropout=0.05, targets=[q_proj, down_proj])", **EXPERTS),
        spec("lora(dropout=0.05, targets=[q_proj, v_proj])", **EXPERTS),
        variant="named",
    ),
    Case(
        "XP461",
        spec("lora(targets=[q_proj, gate_proj])", **EXPERTS),
        spec("lora(targets=[q_proj, gate_proj, up_proj])", **EXPERTS),
    ),
    Case("XP463", spec("qlora", **EXPERTS), spec("lora", **EXPERTS)),
    Case("XP462", of("lora(targets=[in_proj, out_proj])"), of("lora(targets=[q_proj, v_proj])"), HYBRID),
    Case("XP462", of("lora"), of("lora(targets=[q_proj, v_proj])"), HYBRID, variant="all-linear"),
)
