"""Read facts about the registry's model families from the installed transformers' classes, for `generate.py`.

A family is a `model_type` in config.json. Only the families of the registry are examined; of other families, the
compiler knows only whether transformers has them.
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
"""Matches words in the source of models with a recurrent state: mamba and similar models, short convolutions, and
linear attention. No other model's source contains these words.
"""

USUAL = {"rope_theta": 10000.0, "rope_local_base_freq": None, "partial_rotary_factor": 1.0, "rope_scaling": None}
"""Maps keys of config.json to the values that most families have for rotary positions in transformers 4."""


def carrying() -> list[str]:
    """Every `model_type` whose causal language model has a recurrent state, in the registry or not.

    The sources of all families are searched and not imported. In a family with a recurrent state, packed documents
    influence each other, or packing needs kernels that bundles do not install.
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


def model_types() -> list[str]:
    """Every `model_type` that the installed transformers knows; AutoConfig refuses a config.json with another
    `model_type`.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(CONFIG_MAPPING_NAMES)


def families() -> dict[str, Any]:
    """Map each family of the registry to the facts that the class of its causal language model declares, or to None if
    transformers lacks the family.

    `layers` are the classes that FSDP wraps. `attention` are the attention implementations that the class declares,
    except eager; if flash2 is declared, flash3 is listed, too. `scores` is true if the family has a class for sequence
    classification.
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


def positions() -> dict[str, Any]:
    """Map each `model_type` of a causal language model to its unusual defaults for rotary positions (the defaults that
    are not in `USUAL`), by the key of config.json. Empty for transformers 5, which reads `rope_parameters`.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    out: dict[str, Any] = {}
    if int(transformers.__version__.partition(".")[0]) > 4:
        return out
    for kind in sorted(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            config = transformers.CONFIG_MAPPING[kind]()
        except ValueError:  # musicgen's class, for example, has no default configuration
            continue
        if getattr(config, "rope_theta", None) is None:
            continue
        values = {name: getattr(config, name, usual) for name, usual in USUAL.items()}
        other = {name: value for name, value in values.items() if value != USUAL[name]}
        out |= {kind: {"type": "positions", **other}} if other else {}
    return out


def _attention(real: Any) -> dict[str, bool]:
    # Older transformers declare each version of flash attention separately.
    flash = real._supports_flash_attn if hasattr(real, "_supports_flash_attn") else real._supports_flash_attn_2
    return {"sdpa": real._supports_sdpa, "flash2": flash, "flash3": flash, "flex": real._supports_flex_attn}


def _is_layer(found: Any, kind: type) -> bool:
    """Whether a class is a layer of the language model. Some families also list the layers of their vision model among
    their layers; for these, the result is False.
    """
    return isinstance(found, type) and issubclass(found, kind) and "Vision" not in found.__name__
