"""The modules of each model family on each stack, and which adapters each module can have.

tests/stacks/write_modules.py makes `NAME/modules.json` from models on the meta device and from PEFT's conversion
tables. The file maps the path of a module, as in `named_modules`, to letters, one for each kind of adapter that PEFT
can add to the module. N in a path stands for any number: `model.layers.N.mlp.up_proj`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache

from xpc.compiler.stacks import HERE

LORA, OFT, PARAMETER = "l", "o", "p"
"""The letters in modules.json. LORA: the module can have a LoRA adapter; OFT: it can have an OFT adapter; PARAMETER:
the path is a parameter with stacked experts.
"""
EXPERTS, SHARED = "the experts", "the shared expert"
"""Two of the parts of a mixture of experts that the function `part` can return."""
DENSE = re.compile(r"\.(?:mlp|mlps\.\w+|feed_forward|mixer)\.(?:gate|up|down)_proj$")
"""Matches the path of a linear layer of a plain MLP, which does not belong to an expert."""


@cache
def _text(stack: str) -> str:
    with open(os.path.join(HERE, stack, "modules.json"), encoding="utf-8") as handle:
        return handle.read()


@cache
def modules(stack: str, family: str | None) -> Mapping[str, str]:
    """The paths of a family's modules, each with the letters of the adapters that PEFT can add to it. Empty for an
    unknown family. Only the family's line of the file is parsed, which saves time.
    """
    found = re.search(rf'^  "{re.escape(family or "-")}": (.*?),?$', _text(stack), re.MULTILINE)
    made: Mapping[str, str] = {} if found is None else json.loads(found[1])
    return made


def paths(known: Mapping[str, str], letters: str) -> tuple[str, ...]:
    """The paths of modules that modules.json marks with at least one of the given letters."""
    return tuple(path for path, kinds in known.items() if set(kinds) & set(letters))


def ends(target: str, among: Iterable[str]) -> bool:
    """Whether a target is one of the paths or, as in PEFT, the end of one: `q_proj` and `self_attn.q_proj` are ends of
    `model.layers.N.self_attn.q_proj`.
    """
    name = _unnumbered(target)
    return any(path == name or path.endswith(f".{name}") for path in among)


def _unnumbered(name: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "N", name)


def numbered(path: str, target: str, within: str = "") -> str:
    """A path that `target` inside of `within` selects, with their numbers: `layers.20.self_attn.q_proj` of
    `model.layers.N.self_attn.q_proj`. "" if they do not select the path.
    """
    if not ends(target, (path,)):
        return ""
    before = path[: len(path) - len(_unnumbered(target))]
    if within:
        name = _unnumbered(within)
        start = f".{before}".rfind(f".{name}.")
        if start < 0:
            return ""
        before = before[:start] + within + before[start + len(name) :]
    return before + target


def last_names(among: Iterable[str]) -> tuple[str, ...]:
    """The last parts of the paths, without repetition: `q_proj` for `model.layers.N.self_attn.q_proj`."""
    return tuple(dict.fromkeys(path.rpartition(".")[2] for path in among))


def part(path: str, kinds: str) -> str:
    """The part of a mixture of experts to which the module of a path belongs: `the experts`, `the attention`, and so
    on.
    """
    words = path.split(".")
    if "experts" in words or (PARAMETER in kinds and "conv1d" not in words):
        return EXPERTS
    if any(one.startswith("shared_") for one in words):
        return SHARED
    if {"gate", "router"} & {*words}:
        return "the router"
    return "the dense layers" if DENSE.search(path) else "the attention"


def possible(stack: str, family: str | None, config: Mapping[str, object]) -> Mapping[str, str]:
    """The paths of modules that a model with this config.json can have. A model may lack some of the paths that
    modules.json lists for its family.
    """
    known = modules(stack, family)
    excluded: list[re.Pattern[str]] = []
    if any(path.endswith(".q_b_proj") for path in known) and "q_lora_rank" in config:
        excluded.append(re.compile(r"\.q_proj$" if config["q_lora_rank"] else r"\.q_[ab]_"))
    if _dense_layers(str(family), config) is False:
        excluded.append(DENSE)
    if config.get("num_local_experts") == 0:  # a granitemoehybrid model without experts lacks the modules of experts
        excluded.append(re.compile(r"\.block_sparse_moe(\.|$)"))
    excluded += _mixers(known, config)
    return {path: kinds for path, kinds in known.items() if not any(one.search(path) for one in excluded)}


def _mixers(known: Mapping[str, str], config: Mapping[str, object]) -> list[re.Pattern[str]]:
    """Patterns of paths that this model lacks. In some families, each layer has either attention or another mixer
    (`layer_types`). If no layer of the model has attention, for example, the model lacks the modules of attention.
    """
    kinds = config.get("layer_types")
    others = [name for name in ("conv", "linear_attn", "mamba") if f"model.layers.N.{name}" in known]
    if not isinstance(kinds, list) or not kinds or not others or "model.layers.N.self_attn" not in known:
        return []
    mixers = [kind in ("conv", "linear_attention", "mamba") for kind in kinds]
    if all(mixers):
        return [re.compile(r"\.layers\.N\.self_attn(\.|$)")]
    return [] if any(mixers) else [re.compile(rf"\.layers\.N\.({'|'.join(others)})(\.|$)")]


def _dense_layers(family: str, config: Mapping[str, object]) -> bool | None:
    """Whether a mixture of experts has layers without experts. None if config.json does not show this."""
    kinds = config.get("mlp_layer_types")
    if isinstance(kinds, list):
        return "dense" in kinds
    experts = config.get("moe_layers")  # llama4's config.json lists the numbers of the layers with experts
    if isinstance(experts, list):
        return len(experts) != config.get("num_hidden_layers")
    for name in ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"):
        if name in config:
            return bool(config[name])
    # in these families, a layer has experts unless config.json lists it as a layer without them
    if family in ("qwen2_moe", "qwen3_moe", "qwen3_next"):
        return bool(config.get("mlp_only_layers")) or config.get("decoder_sparse_step", 1) != 1
    return None
