"""What the installed transformers' classes say of the model families of the registry, for `generate.py`.

A family is what `model_type` of a config.json names. Only families of the registry are looked at: of any other the
compiler claims nothing.
"""

import os
import re
import sys
import tomllib
from typing import Any

REGISTRY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "registry", "families.toml")

STATE = re.compile(
    r"conv_state|recurrent_state|ssm_state|selective_scan|selective_state_update|mamba_chunk_scan|gated_delta_rule|rwkv_linear_attention"
    r"|mlstm_chunkwise|class \w*(ShortConv|Rglru|LightningAttention|RecurrentBlock)"
)
"""What the source of a model with layers of a state says: mamba and its like, short convolutions, linear attention."""


def carrying() -> list[str]:
    """Every `model_type` whose causal language model carries a state from token to token, in the registry or not.

    Read off the sources, without importing them: packed documents run on into each other there, or need kernels that
    no bundle installs.
    """
    from transformers.models.auto import modeling_auto as auto

    models = os.path.dirname(os.path.dirname(auto.__file__))
    sources: dict[str, str] = {}
    for folder in sorted(os.scandir(models), key=lambda one: one.name):
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            if name.startswith("modeling_") and name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    text = file.read()
                sources.update(dict.fromkeys(re.findall(r"^class (\w+)", text, re.M), text))
    found = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
    real = {kind: one if isinstance(one, str) else one[0] for kind, one in found}
    return sorted(kind for kind, one in real.items() if STATE.search(sources.get(one, "")))


def families() -> dict[str, Any]:
    """Every family of the registry, with what its causal language model declares; None where transformers has none.

    `layers` are the classes that FSDP wraps. `attention` are the implementations that the class declares beside eager;
    flash3 goes with flash2. `scores` is whether the family has a class for sequence classification.
    """
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    out: dict[str, Any] = {}
    with open(REGISTRY, "rb") as file:
        names = tomllib.load(file)["names"]
    for name in names:
        found = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(name)
        if found is None:
            out[name] = None
            continue
        real = getattr(transformers, found if isinstance(found, str) else found[0])
        module = sys.modules[real.__module__]
        layers = [one for one in real._no_split_modules or () if _is_layer(getattr(module, one, None), torch.nn.Module)]
        out[name] = {
            "type": "family",
            "layers": sorted(layers),
            "attention": [one for one, flag in _attention(real).items() if flag],
            "scores": name in auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        }
    return out


def _attention(real: Any) -> dict[str, bool]:
    # Older transformers say it of each version of flash attention.
    flash = real._supports_flash_attn if hasattr(real, "_supports_flash_attn") else real._supports_flash_attn_2
    return {"sdpa": real._supports_sdpa, "flash2": flash, "flash3": flash, "flex": real._supports_flex_attn}


def _is_layer(found: Any, kind: type) -> bool:
    """Whether it is a class of layers of the language model; some families share a list with their vision model."""
    return isinstance(found, type) and issubclass(found, kind) and "Vision" not in found.__name__
