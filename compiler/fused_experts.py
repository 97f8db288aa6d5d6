"""Mixtures of experts whose linear layers are one stacked parameter in transformers 5, and what an adapter of them is.

peft 0.21 puts adapters on the stack where `targets` names the layers that it is made of, or is all-linear. Such an
adapter takes no dropout, and the halves of a fused pair are adapted together. Source: peft 0.21
`utils/transformers_weight_conversion.py`, `tuners/lora/layer.py` (`ParamWrapper`).
"""

from __future__ import annotations

from xpc.compiler.stacks import Stack

FAMILIES = (
    "afmoe", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe",
    "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash", "mellum",
    "minimax", "minimax_m2", "mixtral", "olmoe", "qwen3_moe", "qwen3_next", "qwen3_omni_moe", "qwen3_omni_moe_text",
    "qwen3_omni_moe_thinker", "solar_open",
)  # fmt: skip
"""The families that peft 0.21 converts; in transformers 4.52 their experts are linear layers of their own."""
OLD_NAMES = ("w1", "w3", "w2")
"""The halves of the pair and the third layer of mixtral and its kin, as transformers 4 named them."""
NAMES = ("gate_proj", "up_proj", "down_proj")


def names(stack: Stack, model_type: str | None) -> tuple[str, ...]:
    """The two halves of the fused pair and the third layer; nothing where experts are layers of their own."""
    if not stack.facts.experts_stacked or model_type not in FAMILIES:
        return ()
    return OLD_NAMES if model_type in ("mixtral", "minimax", "minimax_m2") else NAMES


def adapted(stack: Stack, model_type: str | None, targets: object) -> tuple[str, ...]:
    """The layers of the experts that `targets` (a list of names, or `all-linear`) puts an adapter on."""
    layers = names(stack, model_type)
    if not isinstance(targets, tuple):
        return layers
    ends = {str(one).rpartition(".")[2] for one in targets}
    return tuple(name for name in (*layers, *(("gate",) if layers else ())) if name in ends)
