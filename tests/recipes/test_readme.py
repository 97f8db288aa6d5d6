"""The README of a bundle lists arguments that have been renamed or removed, and defaults that have changed. For each,
it says what the run has instead.
"""

from __future__ import annotations

import json

import pytest
from interpreters import stack_of
from recipe_support import RECIPES, bundle, published, spec_for, view_of
from test_published import TAKEN

from xpc.compiler.lower.readme import cell
from xpc.compiler.stacks import DEFAULT

NEWEST = [recipe for recipe, target in TAKEN if target == DEFAULT]
GONE = {
    "warmup_ratio": "warmup_steps",
    "torch_dtype": "dtype",
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
    "max_prompt_length": "gone from every trainer; the runtime leaves out rows with a longer prompt",
    "use_liger_kernel": "deprecated in TRL 1.16; the runtime applies liger-kernel's layer kernels to the model itself",
}
"""Maps arguments of recipes that trl 1.16 or transformers 5.23 no longer has to what the README says about them."""
MOVED = {
    "optim": "adamw_torch_fused", "average_tokens_across_devices": True, "beta": 0.0, "loss_type": "dapo",
    "vllm_mode": "colocate", "truncation_mode": "keep_start",
}  # fmt: skip
"""Maps defaults that affect the training and changed between trl 0.18 and 1.16 to their new values."""


def section(recipe: str, target: str) -> str:
    page = bundle(recipe, target)["README.md"].decode()
    return page.partition("## Compared with other stacks\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("recipe", NEWEST)
def test_names_that_are_missing_are_named(recipe: str) -> None:
    text, keys = section(recipe, DEFAULT), published(recipe)
    # FastChat loads in float32 by default
    for name in (name for name in GONE if keys.get(name) is not None):
        assert f"| trl-0.18: {cell(name)} | {cell(GONE[name])} |" in text


@pytest.mark.parametrize("recipe", NEWEST)
def test_defaults_that_moved_stand_with_what_the_run_has(recipe: str) -> None:
    payload = json.loads(bundle(recipe, DEFAULT)["trainer_args.json"])
    old = stack_of("trl-0.18")
    then, text = old.fields(payload["config"]), section(recipe, DEFAULT)
    for name, today in MOVED.items():
        if name not in then or (name in ("beta", "loss_type") and "GRPO" not in payload["config"]):
            continue
        stated, was = payload["arguments"][name], then[name].effective
        wanted = [name, json.dumps(stated), f"{json.dumps(was)} (trl-0.18)", json.dumps(today)]
        assert "| " + " | ".join(cell(one) for one in wanted) + " |" in text
        assert stated != today or published(recipe).get(name) == today or RECIPES[recipe]["defaults"] != old.name


def test_an_older_target_says_it_the_other_way_round() -> None:
    text = section("mistral-7b-ultrachat-8xh100", "trl-0.18")
    assert "| trl-1.16: dtype | torch\\_dtype |" in text
    assert '| optim | "adamw\\_torch" | "adamw\\_torch\\_fused" (trl-1.16) | "adamw\\_torch" |' in text
    assert "max\\_prompt" not in text


def test_what_is_not_written_has_no_other_name() -> None:
    text = spec_for("mistral-7b-ultrachat-8xh100", "trl-1.16")
    page = view_of(text.replace("  warmup = 10%\n", "  min_lr = 1%\n"), "t.xp")["files"]["README.md"].decode()
    assert "warmup\\_ratio" not in page
