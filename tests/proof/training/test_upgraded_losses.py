"""`xpc upgrade` does not change what a run learns. Ten recipes, scaled down to a tiny model, are trained twice: on
their own stack, and upgraded on the default stack. The losses are the same.

The first loss only shows that the untrained models agree, but each later loss depends on all steps before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from emitted import put
from method_runs import Warm, small
from stacks import REPOSITORY

from xpc.compiler.stacks import DEFAULT, load

pytestmark = pytest.mark.nightly

NEAR = 1e-4
COSINE = "schedule cosine {\n  warmup = 10%\n  min_lr = 10%\n}"
ADAMW = "optimizer adamw(lr=1e-3)\n"
"""The optimizer line of every small run, unless a recipe has its own."""
SCALED: dict[str, tuple[str, str]] = {
    "qwen2.5-3b-infinity-8xv100": (
        "optimizer adamw(lr=1e-3, betas=[0.9, 0.95], clip=1)\n",
        "schedule cosine(warmup=2)",
    ),
    "qwen2.5-math-7b-mixture-of-thoughts-8xh100": ("optimizer adamw(lr=4e-4)\n", COSINE),
    "gemma-7b-deita-8xh100": (ADAMW, "schedule cosine(warmup=10%)\nseed 42"),
    "mistral-7b-ultrachat-8xh100": ("optimizer adamw(lr=2e-4)\n", "seed 42"),
    "mistral-7b-ultrachat-qlora-1xa100": (ADAMW, "lora {\n  rank = 16\n  alpha = 16\n  dropout = 0\n}"),
    "smollm2-1.7b-smoltalk-8xh100": (ADAMW, "schedule linear(warmup=10%)"),
    "smollm3-3b-sft-64xh100": ("optimizer adamw(lr=1e-3, clip=0.2, weight_decay=0.01)\n", COSINE),
    "zephyr-7b-sft-ultrafeedback-dpo-8xh100": (ADAMW, "method dpo(beta=0.01)"),
    "mistral-7b-constitutional-dpo-8xh100": (ADAMW, "method dpo(beta=0.1, loss=sigmoid)\nschedule cosine(warmup=10%)"),
    "smollm3-3b-apo-16xh100": (ADAMW, "method dpo(beta=0.05, loss=apo_zero)"),
}
"""Maps each recipe to the optimizer and the other settings that characterise the recipe. They are used in a spec of
four steps on the CPU.
"""
PAIRS = "".join(
    json.dumps({"prompt": f"What is {n} + {n}?", "chosen": f" It is {2 * n}.", "rejected": " I do not know."}) + "\n"
    for n in range(64)
)
"""Preference rows whose prompts and answers are plain texts. From conversations, trl 0.18 would also learn an end token
after the end token of the template.
"""


def native(recipe: str) -> str:
    """The stack for which a recipe is written. A recipe of the default stack cannot be upgraded; for such a recipe, the
    oldest stack.
    """
    with open(os.path.join(REPOSITORY, "specs", f"{recipe}.xp"), encoding="utf-8") as handle:
        named = [line.split()[1] for line in handle if line.startswith("target ")]
    return named[0] if named and named[0] != DEFAULT else "trl-0.18"


@pytest.mark.parametrize("recipe", SCALED)
def test_an_upgraded_run_has_the_same_losses(warm: Warm, recipe: str, tmp_path: Any) -> None:
    optimizer, more = SCALED[recipe]
    stack, dpo = native(recipe), "method dpo" in more
    text = small(more, target=stack, method="dpo" if dpo else "sft", data="pairs" if dpo else "")
    text = text.replace(ADAMW, optimizer)
    put(warm.location, {"moved.xp": text, "pairs.jsonl": PAIRS})
    words = [sys.executable, "-m", "xpc.compiler.cli", "upgrade", "moved.xp", "--target", DEFAULT, "--write"]
    done = subprocess.run(words, cwd=warm.location, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(os.path.join(warm.location, "moved.xp"), encoding="utf-8") as handle:
        moved = handle.read()
    assert f"target {DEFAULT}" in moved
    losses = []
    for target, one in ((stack, text), (DEFAULT, moved)):
        cwd = tmp_path / target
        cwd.mkdir()
        losses.append(warm.train(one, f"upgraded-{recipe}-{target}", target, str(cwd)).values("loss"))
    assert len(losses[0]) == 4
    # Older versions of transformers divide a loss by the number of all tokens (here 28 per row), newer ones by the
    # number of predicted tokens (27).
    share = 27 / 28 if load(stack).facts.loss_over_all_tokens and not dpo else 1
    assert losses[0] == pytest.approx([share * loss for loss in losses[1]], abs=NEAR), moved
