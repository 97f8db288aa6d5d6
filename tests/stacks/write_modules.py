"""With the libraries of a stack, find out which modules the models of each family have, and which adapters each module
can have. Write the result as a table.

    .venv/bin/python tests/stacks/write_modules.py trl-1.16 [-o FILE]

A tiny model of each family is built on the meta device, in each form that its configuration can have (dense layers next
to experts, queries of low rank). PEFT then makes an adapter on each module separately; a module that it refuses is not
a target. A path in the table is a name of `named_modules` with N instead of each number. transformers stacks some
experts in one parameter. The former names of such experts are targets if PEFT converts these names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "proof"))
MIXTURES = ("longcat_flash",)
"""Mixtures of experts that are not in the registry, and that PEFT converts."""
LOW_RANK = [{"q_lora_rank": None}]
DENSE_LAYER = [{"mlp_only_layers": [0]}]
DENSE_FIRST = [{"first_k_dense_replace": 1, "num_dense_layers": 1, "moe_layer_start_index": 1}]
TWO_KINDS = [{"layer_types": ["linear_attention", "full_attention"]}]
FORMS: dict[str, list[dict[str, Any]]] = {
    "deepseek_v2": LOW_RANK, "deepseek_v3": LOW_RANK, "glm4_moe_lite": LOW_RANK, "qwen2_moe": DENSE_LAYER,
    "qwen3_moe": DENSE_LAYER, "glm4_moe": DENSE_FIRST, "afmoe": DENSE_FIRST, "ernie4_5_moe": DENSE_FIRST,
    "exaone_moe": DENSE_FIRST, "solar_open": DENSE_FIRST, "dots1": DENSE_FIRST, "hy_v3": DENSE_FIRST,
    "qwen3_next": [*DENSE_LAYER, *TWO_KINDS], "qwen3_5_text": TWO_KINDS, "qwen3_5_moe_text": TWO_KINDS,
    "llama4_text": [{"moe_layers": [1]}, {"interleave_moe_layer_step": 2}],
    "granitemoehybrid": [{"shared_intermediate_size": 64, "num_local_experts": 0}],
    "opt": [{"word_embed_proj_dim": 32}], "falcon": [{"new_decoder_architecture": True, "num_kv_heads": 2}],
    "minimax": TWO_KINDS,
}  # fmt: skip
"""Maps a family to other values of its configuration with which its models have other modules."""


def families() -> list[str]:
    """The families in the registry, and in addition the mixtures of experts that PEFT converts."""
    with open(os.path.join(ROOT, "compiler", "registry", "families.toml"), "rb") as file:
        return sorted({*tomllib.load(file)["names"], *MIXTURES})


def models(family: str) -> Iterator[Any]:
    """Functions that build the family's model on the meta device, one function for each form of the model. There is
    none if transformers lacks the family.
    """
    import torch
    from tiny_models import config
    from transformers import AutoModelForCausalLM

    for form in [{}, *FORMS.get(family, [])]:
        try:
            made = config(family)
            for name, value in form.items():
                if hasattr(made, name):
                    setattr(made, name, value)

            def build(made: Any = made) -> Any:
                try:
                    with torch.device("meta"):
                        return AutoModelForCausalLM.from_config(made)
                except NotImplementedError:
                    # In transformers 4, the constructor of apertus reads a number from a buffer, and buffers on the
                    # meta device have no values.
                    return AutoModelForCausalLM.from_config(made)

            build()
        except (KeyError, ValueError, TypeError, AttributeError, ImportError, RuntimeError) as error:
            print(f"{family} {form}: {type(error).__name__}: {str(error)[:120]}", file=sys.stderr)
            continue
        yield build


def converted(family: str) -> dict[str, str]:
    """The former names of the layers of experts, if PEFT converts these layers to a stacked parameter. Empty if each
    expert is a module of its own.
    """
    try:
        from peft.utils import transformers_weight_conversion as conversion
    except ImportError:  # transformers 4
        return {}
    kind = conversion._MODEL_TO_CONVERSION_PATTERN.get(family)
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    known = conversion._MOE_TARGET_MODULE_MAPPING.get(kind) or {}
    fused = conversion._MOE_FUSED_TARGETS.get(kind) or {}
    return dict(known) if fused and get_checkpoint_conversion_mapping(family) is not None else {}


def adapts(build: Any, names: list[str], kind: str, path: str) -> bool:
    """Whether PEFT makes an adapter of this kind at the path if it gets these targets."""
    from peft import LoraConfig, OFTConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=names) if kind == "l" else OFTConfig(
        r=0, oft_block_size=4, target_modules=names
    )  # fmt: skip
    try:
        model = get_peft_model(build(), config)
    except (ValueError, TypeError, NotImplementedError, RuntimeError, AttributeError, KeyError):
        return False
    made = [name for name, one in model.named_modules() if "default" in _names(getattr(one, "r", None))]
    return any(name.replace(".base_layer", "").endswith(path) for name in made)


def _names(found: object) -> object:
    return found if isinstance(found, dict) else ()


def modules(family: str) -> dict[str, str]:
    """Map the family's modules to letters: `l` if the module can have a LoRA adapter, and `o` if it can have an OFT
    adapter.
    """
    found: dict[str, str] = {}
    renamed = converted(family)
    for build in models(family):
        model = build()
        for path, module in model.named_modules():
            name = re.sub(r"\.\d+(?=\.|$)", ".N", path)
            if not path or name in found:
                continue
            if any(True for _ in module.parameters()):
                leaf = path.rpartition(".")[2]
                kinds = "" if leaf.isdecimal() or any(True for _ in module.children()) else "lo"
                kinds = kinds.replace("l", "") if leaf in renamed else kinds
                found[name] = "".join(kind for kind in kinds if adapts(build, [path], kind, path))
        for path, weight in model.named_parameters():
            for old, new in renamed.items():
                if path.endswith(f".{new}"):
                    where = path.removesuffix(f".{new}")
                    location = f"{where}.{new}".removesuffix(".weight") if new.endswith(".weight") else where
                    pair = [one for one, other in renamed.items() if other == new]
                    name = re.sub(r"\.\d+(?=\.|$)", ".N", f"{where}.{old}")
                    if "l" not in found.get(name, "") and adapts(build, pair, "l", location):
                        found[name] = "l" + found.get(name, "")
            if weight.ndim == 3:
                found.setdefault(re.sub(r"\.\d+(?=\.|$)", ".N", path), "p")
    return dict(sorted(found.items()))


def table() -> str:
    """The text of the file: a line for each family; families that transformers lacks have no modules."""
    import peft
    import transformers

    warnings.simplefilter("ignore")
    versions = {"peft": peft.__version__, "transformers": transformers.__version__}
    lines = [f"  {json.dumps(one)}: {json.dumps(modules(one))}" for one in families()]
    return f'{{\n "versions": {json.dumps(versions)},\n "families": {{\n' + ",\n".join(lines) + "\n }\n}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the modules of every family.")
    parser.add_argument("stack")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    text = table()
    location = options.output or os.path.join(ROOT, "compiler", "stacks", options.stack, "modules.json")
    with open(location, "w", encoding="utf-8", newline="\n") as out:
        out.write(text)
