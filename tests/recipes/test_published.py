"""For every published recipe, our bundle has the recipe's value of each argument, both on the recipe's own stack and on
the newest stack.

`recipe_support.py` and the tables next to it say which values are compared.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import recipe_support as support
from compile_support import REPOSITORY, checked, errors, read
from copy_published import SOURCES, copied, text
from recipe_support import DIFFERENCES, NAMES, RECIPES, SPECS, SWEEPS, allowed, published, spec_for, unlike
from recipes_page import page
from tiers import every_fourth

from xpc.compiler.stacks import STACKS, load

pytestmark = pytest.mark.slow

ALL = [one for one in map(load, STACKS) if one is not None]
BASES = {
    "ddp": "recipes/accelerate_configs/ddp.yaml",
    "fsdp": "recipes/accelerate_configs/fsdp.yaml",
    "zero2": "recipes/accelerate_configs/zero2.yaml",
    "zero3": "recipes/accelerate_configs/zero3.yaml",
}
TAKEN = [
    (recipe, target) for recipe in RECIPES for target in STACKS if target not in RECIPES[recipe].get("refused", ())
]
REFUSED = [(recipe, target) for recipe in RECIPES for target in RECIPES[recipe].get("refused", ())]


@pytest.mark.parametrize(("recipe", "target"), every_fourth(TAKEN))
def test_every_value_is_the_published_one_or_listed_with_a_reason(recipe: str, target: str) -> None:
    found, reasons = unlike(recipe, target), allowed(recipe, target)
    unlisted = {key: values for key, values in found.items() if key not in reasons}
    assert not unlisted, f"{recipe} on {target} (published, stated)"
    idle = [key for key in reasons if key not in found]
    assert not idle, f"differences.toml lists differences that {recipe} does not have on {target}"


@pytest.mark.parametrize(("recipe", "target"), REFUSED)
def test_a_target_that_cannot_take_it_says_why(recipe: str, target: str) -> None:
    assert errors(checked(spec_for(recipe, target), SPECS)) == RECIPES[recipe]["refused"][target]


def test_every_entry_of_the_tables_is_used() -> None:
    keys = {key for recipe in RECIPES for key in published(recipe)}
    keys |= {
        f"accelerate:{key}" for file in BASES.values() for key in support.flattened(support.family("open-r1")[file])
    }
    seen = [(key, allowed(recipe, target)) for recipe, target in TAKEN for key in unlike(recipe, target)]
    for entry in DIFFERENCES:
        for key in entry["keys"]:
            assert any(one == key and reasons.get(key) == entry["why"] for one, reasons in seen), (key, entry["why"])
        assert entry["why"]
    for key, entry in NAMES.items():
        assert key in keys or key.startswith("unset:"), key
        assert entry["why"], key


def test_the_page_of_recipes_is_fresh() -> None:
    assert read("docs", "recipes.md") == page(), "`make docs` rewrites it"


def test_every_spec_of_the_folder_is_a_recipe() -> None:
    own = {
        "quickstart",
        "quickstart-trl-0.18",
        "sentence",
        # tested in proof/training/test_seed.py
        "qwen2.5-3b-infinity-8xv100",
    }
    assert {name.removesuffix(".xp") for name in os.listdir(SPECS) if name.endswith(".xp")} == {*RECIPES, *SWEEPS, *own}


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_header_cites_its_source(recipe: str) -> None:
    repository, commit, _ = SOURCES[RECIPES[recipe]["family"]]
    head = support.spec_text(recipe).partition("train ")[0]
    location = RECIPES[recipe]["file"] if "/" in RECIPES[recipe]["file"] else ""
    assert f"# {repository} at {commit}, {location}" in head


@pytest.mark.parametrize(
    ("line", "other", "key"),
    [
        ("  lr = 4e-5", "  lr = 4e-6", "learning_rate"),
        ("  micro = 2", "  micro = 4", "per_device_train_batch_size"),
        ("  min_lr = 10%", "  min_lr = 0", "lr_scheduler_kwargs"),
        ("optimizer adamw_torch {", "optimizer adamw_fused {", "unset:optim"),
        ("  mean = local_tokens\n", "", "unset:average_tokens_across_devices"),
        ('  eos = "<|im_end|>"\n', "", "eos_token"),
        ("templates/open-r1.jinja", "templates/zephyr.jinja", "chat_template"),
        ("  dtype = bf16", "  dtype = fp32", "torch_dtype"),
    ],
)
def test_a_value_that_is_not_the_published_one_is_noticed(
    monkeypatch: pytest.MonkeyPatch, line: str, other: str, key: str
) -> None:
    recipe = "qwen2.5-math-7b-mixture-of-thoughts-8xh100"
    written = support.spec_text(recipe)
    assert line in written
    monkeypatch.setattr(support, "spec_text", lambda name: written.replace(line, other))
    target = "trl-1.16" if key == "unset:average_tokens_across_devices" else "trl-0.18"
    monkeypatch.setattr(support, "bundle", support.bundle.__wrapped__)
    assert key in set(unlike(recipe, target)) - set(allowed(recipe, target))


def test_a_mixture_of_another_share_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = "smollm3-3b-sft-64xh100"
    written = support.spec_text(recipe).replace("take = 2%", "take = 3%")
    monkeypatch.setattr(support, "spec_text", lambda name: written)
    monkeypatch.setattr(support, "bundle", support.bundle.__wrapped__)
    assert "dataset_mixture" in unlike(recipe, "trl-1.16")


def test_the_copies_are_what_was_published() -> None:
    folder = os.environ.get("XPC_PUBLISHED") or os.path.join(REPOSITORY, "..", "shared", "published")
    if not os.path.isdir(os.path.join(folder, "open-r1")):
        pytest.skip("the published files are not on this machine; the other tests compare with copies")
    for family in SOURCES:
        assert json.loads(text(copied(folder, family)))["files"] == support.family(family)


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if "qlora" in recipe])
def test_a_base_of_4_bits_is_the_publishers(recipe: str) -> None:
    """The recipes do not say whether 4-bit weights are quantized twice; their loaders decide. TRL's
    get_quantization_config (0.18 and 0.19.1) does not use double quantization, FastChat's train_lora.py does.
    """
    found = support.view(recipe, "trl-1.16")["lora"]
    assert found["double_quant"] is (RECIPES[recipe]["family"] == "fastchat")
    assert (found["bits"], found["quant_type"], found["compute_dtype"]) == (4, "nf4", "bfloat16")


ON_A_BASE = 'xpc 1\n\nextends "base/{}.xp"\n\ntrain qwen2.5-3b on infinity-instruct for 3 epochs\n\ntarget {}\n'
READ_BY_NOBODY = {"same_network", "gpu_ids", "tpu_env", "tpu_use_cluster", "tpu_use_sudo"}


@pytest.mark.parametrize(
    ("base", "target"),
    [(base, one.name) for base in BASES for one in ALL if base != "zero2" or one.facts.zero2_accumulates],
)
def test_a_base_says_what_the_accelerate_configuration_says(base: str, target: str) -> None:
    found = support.view_of(ON_A_BASE.format(base, target), "base-test.xp")
    wanted = support.flattened(support.family("open-r1")[BASES[base]])
    stated: dict[str, Any] = {}
    for key in wanted:
        path = f"accelerate.{key}" if key.startswith("fsdp_config") else ""
        stated[key] = support.at(found, path) if path else support.bundle_value(f"accelerate:{key}", found, target)
    assert {key for key in wanted if stated[key] != wanted[key]} <= READ_BY_NOBODY


def test_every_base_is_compared() -> None:
    assert {name.removesuffix(".xp") for name in os.listdir(os.path.join(SPECS, "base"))} == set(BASES)
