"""The rule XP586 knows ranges of usual values, and reports a number that is far outside of its range. It reports
nothing in the published recipes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compile_support import REPOSITORY, checked, codes

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.rules.numerics.ranges import RANGES

SPECS = sorted(Path(REPOSITORY, "specs").rglob("*.xp"))
SFT = "train qwen2.5-3b on infinity-instruct"
PAIRS = "train qwen2.5-3b on ultrafeedback-binarized"
PROMPTS = "train qwen2.5-3b on trl-lib/DeepMath-103K"


def grpo(setting: str) -> str:
    return f"method grpo({setting}, rewards=[accuracy])"


SMALL = "train qwen2.5-0.5b on infinity-instruct"
LABELLED = "train qwen2.5-0.5b on trl-lib/kto-mix-14k"
CASES = [
    ("lr of a large model", SFT, "optimizer adamw(lr=0.002)", "optimizer adamw(lr=5e-4)"),
    ("lr of a small model", SMALL, "optimizer adamw(lr=0.01)", "optimizer adamw(lr=0.005)"),
    ("lr of dpo and a large model", PAIRS, "method dpo\noptimizer adamw(lr=5e-4)",
     "method dpo\noptimizer adamw(lr=2e-5)"),
    ("lr 1e-9", SFT, "optimizer adamw(lr=1e-9)", "optimizer adamw(lr=1e-8)"),
    ("lr of full training", SFT, "lora\noptimizer adamw(lr=1e-6)", "lora\noptimizer adamw(lr=2e-6)"),
    ("lr of qlora", SFT, "qlora\noptimizer adamw(lr=0.02)", "qlora\noptimizer adamw(lr=0.003)"),
    ("lr of lora under dpo", PAIRS, "method dpo\nlora\noptimizer adamw(lr=0.1)",
     "method dpo\nlora\noptimizer adamw(lr=1e-6)"),
    ("lr of dpo", SMALL.replace("infinity-instruct", "ultrafeedback-binarized"), "method dpo\noptimizer adamw(lr=0.1)",
     "method dpo\noptimizer adamw(lr=0.01)"),
    ("lr of kto", LABELLED, "method kto\noptimizer adamw(lr=1e-3)", "method kto\noptimizer adamw(lr=1e-5)"),
    ("lr of vera", SMALL, "vera\noptimizer adamw(lr=0.5)", "vera\noptimizer adamw(lr=0.02)"),
    ("lr of loha", SMALL, "loha\noptimizer adamw(lr=0.1)", "loha\noptimizer adamw(lr=0.01)"),
    ("lr of lion", SMALL, "optimizer lion(lr=0.01)", "optimizer lion(lr=1e-4)"),
    ("lr of adafactor", SMALL, "optimizer adafactor(lr=0.5)", "optimizer adafactor(lr=0.01)"),
    ("lr of galore", SMALL, "optimizer galore_adamw(lr=0.5)", "optimizer galore_adamw(lr=0.01)"),
    ("lr of schedule-free", SMALL, "optimizer schedule_free_adamw(lr=0.5)", "optimizer schedule_free_adamw(lr=0.01)"),
    ("lr of muon", SMALL, "optimizer muon(lr=1)", "optimizer muon(lr=0.05)"),
    ("lr of muon's adamw", SMALL, "optimizer muon(adamw_lr=0.1)", "optimizer muon(adamw_lr=1e-3)"),
    ("lr of sgd", SMALL, "optimizer sgd(lr=1e-6)", "optimizer sgd(lr=0.1)"),
    ("lr of lomo", SMALL, "optimizer lomo(lr=1e-6)", "optimizer lomo(lr=0.03)"),
    ("lr of embeddings", SMALL, "lora(embedding_lr=0.1)", "lora(embedding_lr=1e-6)"),
    ("lr ratio", SMALL, "lora(lr_ratio=0.1)", "lora(lr_ratio=16)"),
    ("eps of 0", SMALL, "optimizer adamw(eps=0)", None),
    ("eps", SMALL, "optimizer adamw(eps=0.1)", "optimizer adamw(eps=1e-5)"),
    ("weight decay", SFT, "optimizer adamw(weight_decay=10)", "optimizer adamw(weight_decay=1)"),
    ("clip", SFT, "optimizer adamw(clip=1e-6)", "optimizer adamw(clip=0.001)"),
    ("momentum", SMALL, "optimizer sgd(lr=0.01, momentum=0.9999)", "optimizer sgd(lr=0.01, momentum=0.99)"),
    ("scale", SMALL, "optimizer galore_adamw(scale=1e6)", "optimizer galore_adamw(scale=0.25)"),
    ("steps between projections", SMALL, "optimizer galore_adamw(update_proj_gap=1)",
     "optimizer galore_adamw(update_proj_gap=50)"),
    ("bucket", SMALL, "strategy zero2(allgather_bucket=500)", "strategy zero2(allgather_bucket=50M)"),
    ("bucket of gradients", SMALL, "strategy zero2(reduce_bucket=500)", "strategy zero2(reduce_bucket=50M)"),
    ("power", SMALL, "schedule polynomial(power=0)", "schedule polynomial(power=2)"),
    ("rope", SMALL, "model(rope=yarn(factor=1000))", "model(rope=yarn(factor=4))"),
    ("dropout", SFT, "lora(dropout=0.9)", "lora(dropout=0.5)"),
    ("beta of dpo", PAIRS, "method dpo(beta=10)", "method dpo(beta=5)"),
    ("beta of means", PAIRS, "method dpo(loss=sigmoid_norm, beta=1000)", "method dpo(loss=sigmoid_norm, beta=10)"),
    ("large beta of orpo", PAIRS, "method orpo(beta=10)", "method orpo(beta=1)"),
    ("small beta of dpo", PAIRS, "method dpo(beta=1e-6)", "method dpo(beta=1e-4)"),
    ("beta of kto", LABELLED, "method kto(beta=50)", "method kto(beta=0.1)"),
    ("beta of orpo", PAIRS, "method orpo(beta=0)", "method orpo(beta=0.05)"),
    ("beta of cpo", PAIRS, "method cpo(beta=50)", "method cpo(beta=0.1)"),
    ("beta of simpo", PAIRS, "method cpo(loss=simpo, beta=0.1)", "method cpo(loss=simpo, beta=10)"),
    ("default beta of simpo", PAIRS, "method cpo(loss=simpo)", None),
    ("smoothing", PAIRS, "method dpo(label_smoothing=0.5)", "method dpo(label_smoothing=0.1)"),
    ("margin", PAIRS, "method cpo(loss=simpo, beta=2, margin=50)", "method cpo(loss=simpo, beta=2, margin=1.6)"),
    ("likelihood", PAIRS, "method cpo(likelihood=50)", "method cpo(likelihood=1)"),
    ("rpo", PAIRS, "method dpo(rpo=50)\ntarget trl-0.24", "method dpo(rpo=1)\ntarget trl-0.24"),
    ("desirable", LABELLED, "method kto(desirable=500)", "method kto(desirable=1.33)"),
    ("undesirable", LABELLED, "method kto(undesirable=500)", "method kto(undesirable=1.33)"),
    ("center", PAIRS, "method reward(center=10)", "method reward(center=0.01)"),
    ("mixup", PAIRS, "method dpo(sync_reference(mixup=0))", "method dpo(sync_reference(mixup=0.6))"),
    ("beta of grpo", PROMPTS, grpo("beta=10"), grpo("beta=1")),
    ("epsilon", PROMPTS, grpo("epsilon=100"), grpo("epsilon=10")),
    ("epsilon of 0", PROMPTS, grpo("epsilon=0"), grpo("epsilon=3e-4")),
    ("epsilon_high", PROMPTS, grpo("epsilon_high=1e6"), grpo("epsilon_high=0.28")),
    ("delta", PROMPTS, grpo("delta=1e6"), grpo("delta=4")),
    ("generations", PROMPTS, grpo("generations=2048"), grpo("generations=64")),
    ("iterations", PROMPTS, grpo("iterations=1000"), grpo("iterations=4")),
    ("completion", PROMPTS, grpo("max_completion=1"), grpo("max_completion=8")),
    ("prompt", PAIRS, "method dpo(max_prompt=1)", "method dpo(max_prompt=128)"),
    ("default lr of sgd", SMALL, "optimizer sgd", None),
    ("hot", PROMPTS, grpo("temperature=10"), grpo("temperature=2")),
    ("cold", PROMPTS, grpo("temperature=0.05"), grpo("temperature=0.1")),
    ("hot teacher", PROMPTS, "method distill(teacher=qwen2.5-7b, temperature=50)",
     "method distill(teacher=qwen2.5-7b, temperature=4)"),
    ("top_p", PROMPTS, grpo("top_p=0.01"), grpo("top_p=0.8")),
    ("min_p", PROMPTS, grpo("min_p=0.9"), grpo("min_p=0.1")),
    ("repetition", PROMPTS, grpo("repetition_penalty=5"), grpo("repetition_penalty=1.2")),
    ("warm-up", SFT, "schedule cosine(warmup=99%)", "schedule cosine(warmup=50%)"),
    ("steps of warm-up", f"{SFT} for 100 steps", "schedule cosine(warmup=95)", "schedule cosine(warmup=50)"),
    ("seq", SFT, "batch(seq=8)", "batch(seq=16)"),
    ("gbs", SFT, "batch(gbs=1048576)", "batch(gbs=4096)"),
    ("epochs", f"{SFT} for 1000 epochs", "", None),
    ("epochs of preferences", f"{PAIRS} for 50 epochs", "method dpo", None),
    ("epochs by steps", f"{SFT} for 10000000 steps", "batch(gbs=128)", None),
    ("holdout", SFT, "data(holdout=95%)\neval(every=epoch)", "data(holdout=5%)\neval(every=epoch)"),
    ("large alpha", SFT, "lora(rank=8, alpha=5000)", "lora(rank=8, alpha=1024)"),
    ("alpha of rslora", SFT, None, "lora(rank=512, alpha=1, rslora=true)"),
    ("betas in the wrong order", SFT, "optimizer adamw(betas=[0.999, 0.9])", "optimizer adamw(betas=[0.95, 0.99])"),
    ("noise", SFT, "extra trl {\n  neftune_noise_alpha = 500\n}", "extra trl {\n  neftune_noise_alpha = 15\n}"),
    ("smoothed labels", SFT, "extra trl {\n  label_smoothing_factor = 0.9\n}",
     "extra trl {\n  label_smoothing_factor = 0.1\n}"),
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


def test_every_range_has_a_case_and_its_usual_value_is_inside() -> None:
    tried = {word for _, train, far, _ in CASES for word in (*train.split(), *re.findall(r"\w+", far or ""))}
    for one in RANGES:
        name = one.path.rpartition(".")[2]
        assert name in tried, name
        number = re.search(r"[\d.]+(e-\d+)?%?", one.typed)
        assert number is not None
        value = float(number[0].rstrip("%")) / (100 if number[0].endswith("%") else 1)
        assert one.low <= value <= one.high, one


def test_betas_in_the_wrong_order_are_suggested_without_rounding() -> None:
    """0.99999999 must not become 1, which is not a decay rate."""
    found = checked(f"xpc 1\n{SFT}\noptimizer adamw(betas=[0.99999999, 0.999])\n").problems
    assert [one.help for one in found if one.code == "XP586"] == [
        "write `betas = [0.999, 0.99999999]`, or silence the warning with the reason"
    ]
