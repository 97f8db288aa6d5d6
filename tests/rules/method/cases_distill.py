"""Cases of distillation (XP645 to XP653)."""

from __future__ import annotations

from case_support import Case, spec, trained
from cases_online import FEW

PROMPTS = "qwen2.5-0.5b on deepmath-103k"
PAIRS = '{"prompt": "2 + 2?", "completion": "4"}\n'


def distill(
    settings: str = "", *more: str, teacher: str = "teacher=qwen2.5-1.5b", on: str = PROMPTS, **around: str
) -> str:
    inner = ", ".join(one for one in (teacher, settings) if one)
    return spec(f"method distill({inner})", *more, train=trained(on), **around)


BEFORE_AMPERE = {"hardware": "8 x t4", "precision": "fp16", "on": "smollm2-135m on deepmath-103k",
                 "teacher": "teacher=smollm2-360m", "batch": "gbs=16 micro=2"}  # fmt: skip
OLD, MIDDLE = "target trl-0.18", "target trl-0.24"

CASES: tuple[Case, ...] = (
    Case("XP645", spec("method distill", train=trained(PROMPTS)), distill()),
    Case("XP646", distill(teacher="teacher=qwen2.5-7b"), distill()),
    Case("XP646", distill(teacher="teacher=qwen3-1.7b", on="smollm2-360m on deepmath-103k"),
         distill(teacher="teacher=smollm2-1.7b", on="smollm2-360m on deepmath-103k"), variant="family"),
    Case("XP647", distill("lmbda=0.5", OLD), distill("lmbda=1", OLD)),
    Case("XP647", distill("lmbda=0.5", OLD, on='qwen2.5-0.5b on "few.jsonl"'),
         distill("lmbda=0.5", OLD, "data(format=prompt_completion)", on='qwen2.5-0.5b on "pairs.jsonl"'),
         files={"few.jsonl": FEW * 128, "pairs.jsonl": PAIRS * 128}, variant="file"),
    Case("XP648", distill("lmbda=0.5"), distill("lmbda=1")),
    Case("XP649", distill("beta=1.5"), distill("beta=1")),
    Case("XP650", distill("", OLD, strategy="fsdp1"), distill("", OLD, strategy="zero3")),
    Case("XP651", distill("", MIDDLE, "memory(liger)"), distill("", MIDDLE)),
    Case("XP652", distill("", 'model(tokens=["<think>"])'), distill()),
    Case("XP653", distill("", OLD, "lora", strategy="zero3"), distill("", OLD, "lora", strategy="zero2")),
    Case("XP665", distill("temperature=0"), distill("temperature=1"), variant="distill"),
    Case("XP666", distill(on='qwen2.5-0.5b on "few.jsonl"', hardware="1 x h100-80gb", strategy="ddp",
                          batch="gbs=8 micro=8"),
         distill("", OLD, on='qwen2.5-0.5b on "few.jsonl"', hardware="1 x h100-80gb", strategy="ddp",
                 batch="gbs=8 micro=8"), files={"few.jsonl": FEW * 7}, variant="distill"),
    Case("XP301", distill("teacher_dtype=bf16", **BEFORE_AMPERE), distill("teacher_dtype=fp16", **BEFORE_AMPERE),
         variant="teacher"),
    Case("XP127", distill("top_p=0.9", OLD), distill("top_p=0.9"), variant="distill"),
    Case("XP126", distill("generations=4"), distill(), variant="distill"),
)  # fmt: skip
