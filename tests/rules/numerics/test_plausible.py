"""Numbers far outside of the published ones (XP586): every range, its edges, and our own specs."""

from __future__ import annotations

from pathlib import Path

import pytest
from compile_support import REPOSITORY, checked, codes

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text

SPECS = sorted(Path(REPOSITORY, "specs").rglob("*.xp"))
SFT = "train qwen2.5-3b on infinity-instruct"
PAIRS = "train qwen2.5-3b on ultrafeedback-binarized"
PROMPTS = "train qwen2.5-3b on trl-lib/DeepMath-103K"


def grpo(setting: str) -> str:
    return f"method grpo({setting}, rewards=[accuracy])"


CASES = [
    ("lr 1", SFT, "optimizer adamw(lr=0.01)", "optimizer adamw(lr=0.005)"),
    ("lr 1e-9", SFT, "optimizer adamw(lr=1e-9)", "optimizer adamw(lr=1e-8)"),
    ("lr of full training", SFT, "lora\noptimizer adamw(lr=1e-6)", "lora\noptimizer adamw(lr=2e-6)"),
    ("lr of dpo", PAIRS, "method dpo\nlora\noptimizer adamw(lr=0.1)", "method dpo\nlora\noptimizer adamw(lr=1e-6)"),
    ("weight decay", SFT, "optimizer adamw(weight_decay=10)", "optimizer adamw(weight_decay=1)"),
    ("clip", SFT, "optimizer adamw(clip=1e-6)", "optimizer adamw(clip=0.001)"),
    ("dropout", SFT, "lora(dropout=0.9)", "lora(dropout=0.5)"),
    ("beta of dpo", PAIRS, "method dpo(beta=100)", "method dpo(beta=10)"),
    ("small beta of dpo", PAIRS, "method dpo(beta=1e-6)", "method dpo(beta=1e-4)"),
    ("beta of grpo", PROMPTS, grpo("beta=10"), grpo("beta=1")),
    ("epsilon", PROMPTS, grpo("epsilon=10"), grpo("epsilon=1")),
    ("hot", PROMPTS, grpo("temperature=10"), grpo("temperature=2")),
    ("cold", PROMPTS, grpo("temperature=0.05"), grpo("temperature=0.1")),
    ("warm-up", SFT, "schedule cosine(warmup=99%)", "schedule cosine(warmup=90%)"),
    ("steps of warm-up", f"{SFT} for 100 steps", "schedule cosine(warmup=95)", "schedule cosine(warmup=90)"),
    ("seq", SFT, "batch(seq=8)", "batch(seq=16)"),
    ("epochs", f"{SFT} for 1000 epochs", "", None),
    ("large alpha", SFT, "lora(rank=8, alpha=5000)", "lora(rank=8, alpha=1024)"),
    ("alpha of rslora", SFT, None, "lora(rank=512, alpha=1, rslora=true)"),
]  # fmt: skip


@pytest.mark.parametrize(("train", "far", "near"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_only_what_is_far_outside_is_reported(train: str, far: str | None, near: str | None) -> None:
    if far is not None:
        assert codes(checked(f"xpc 1\n{train}\n{far}\n")).count("XP586") == 1
    if near is not None:
        assert "XP586" not in codes(checked(f"xpc 1\n{train}\n{near}\n"))


def test_a_comment_silences_a_number_that_is_meant() -> None:
    comment = "  # xpc: allow XP586 the paper uses it"
    assert "XP586" not in codes(checked(f"xpc 1\n{SFT}\noptimizer adamw(eps=1){comment}\n"))


@pytest.mark.parametrize("path", SPECS, ids=[path.stem for path in SPECS])
def test_no_published_recipe_is_far_outside(path: Path) -> None:
    found = check_text(path.read_bytes(), path.name, Workspace(str(path.parent)))
    assert "XP586" not in codes(found)
