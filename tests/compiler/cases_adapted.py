"""Cases of adapters on fused experts and state spaces (XP460 to XP462)."""

from __future__ import annotations

from case_support import Case, spec, trained
from cases_attention import family, of

EXPERTS = trained("qwen3-30b-a3b on infinity-instruct")
HYBRID = family("falcon_h1")

CASES: tuple[Case, ...] = (
    Case("XP460", spec("lora(dropout=0.05)", train=EXPERTS), spec("lora", train=EXPERTS)),
    Case(
        "XP460",
        spec("lora(dropout=0.05, targets=[q_proj, down_proj])", train=EXPERTS),
        spec("lora(dropout=0.05, targets=[q_proj, v_proj])", train=EXPERTS),
        variant="named",
    ),
    Case(
        "XP461",
        spec("lora(targets=[q_proj, gate_proj])", train=EXPERTS),
        spec("lora(targets=[q_proj, gate_proj, up_proj])", train=EXPERTS),
    ),
    Case("XP462", of("lora(targets=[in_proj, out_proj])"), of("lora(targets=[q_proj, v_proj])"), HYBRID),
    Case("XP462", of("lora"), of("lora(targets=[q_proj, v_proj])"), HYBRID, variant="all-linear"),
)
