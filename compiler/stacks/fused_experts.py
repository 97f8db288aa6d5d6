"""Adapters for mixtures of experts whose linear layers are one stacked parameter in transformers 5.

`gate_up_proj` contains the gate and up projections of all experts, `down_proj` their down projections. peft 0.21 adds
adapters to these parameters if `targets` is all-linear or contains their names. Such an adapter has no dropout, and
gate and up share one adapter. Source: peft 0.21 `utils/transformers_weight_conversion.py`, `tuners/lora/layer.py`
(`ParamWrapper`).
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.registry.linear_layers import ATTENTION, Linear, linear_layers, selected, targeted
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.stacks import Stack
from xpc.compiler.stacks.modules import LORA, modules

FAMILIES = (
    "afmoe", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe",
    "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash", "mellum",
    "minimax", "minimax_m2", "mixtral", "olmoe", "qwen3_moe", "qwen3_next", "qwen3_omni_moe", "qwen3_omni_moe_text",
    "qwen3_omni_moe_thinker", "solar_open",
)  # fmt: skip
"""Families whose experts transformers 5 stacks in one parameter. peft 0.21 can nevertheless adapt these experts. In
transformers 4.52, these experts are separate linear layers.
"""
ALWAYS = ("gpt_oss",)
"""Registered families whose experts are stacked in every version of transformers. `targets` cannot name
these experts.
"""
OLD_NAMES = ("w1", "w3", "w2")
"""The names of an expert's gate, up and down layers in mixtral and similar families, as in transformers 4."""
NAMES = ("gate_proj", "up_proj", "down_proj")


def names(stack: Stack, model_type: str | None) -> tuple[str, ...]:
    """The names in `targets` that mean an expert's gate, up and down layers if the experts are stacked. Empty if the
    experts are separate layers.
    """
    if not stack.facts.experts_stacked or model_type not in FAMILIES:
        return ()
    return OLD_NAMES if model_type in ("mixtral", "minimax", "minimax_m2") else NAMES


def adapted(stack: Stack, model_type: str | None, targets: object) -> tuple[str, ...]:
    """The layers of experts that get adapters from `targets`, which is a list of names or `all-linear`."""
    layers = names(stack, model_type)
    if not isinstance(targets, tuple):
        return layers
    ends = {str(one).rpartition(".")[2] for one in targets}
    return tuple(name for name in (*layers, *(("gate",) if layers else ())) if name in ends)


def stacked(stack: Stack, facts: ModelFacts) -> bool:
    """Whether a model's experts are stacked in one parameter. bitsandbytes then does not quantize the experts, because
    it quantizes only layers of the class `nn.Linear`.
    """
    return facts.experts > 0 and (stack.facts.experts_stacked or facts.model_type in ALWAYS)


def expert_parameters(facts: ModelFacts) -> float:
    """The number of parameters of all experts of a model, whether or not a token uses them."""
    idle, rest = facts.experts - facts.experts_per_token, facts.params - (facts.active_params or facts.params)
    if idle > 0 and rest:
        return float(rest) * facts.experts / idle
    return float(
        facts.layers * sum(one.inputs * one.outputs * one.count for one in linear_layers(facts) if one.count > 1)
    )


def adapter_layers(
    stack: Stack, facts: ModelFacts, targets: object, parameters: Sequence[str] = (), within: str = ""
) -> tuple[tuple[Linear, ...], int]:
    """Return a pair for one decoder layer: the linear layers that get adapters, and the number of weights in stacked
    parameters that get adapters.

    If experts are separate linear layers, each has its own adapter. A stacked parameter has one adapter, and peft adds
    the adapter's product to a copy of the parameter (`ParamWrapper`), which takes memory. The adapter of `gate_up_proj`
    has twice the rank if `targets` contains gate or up, and the plain rank if `gate_up_proj` is only in `parameters`.
    With all-linear, a router that is a linear layer also gets an adapter, and an MLP outside of the experts gets none.
    """
    weights = targeted(facts, [one.removesuffix(".weight") for one in parameters])
    if not facts.experts:
        return (*targeted(facts, targets, within), *weights), 0
    listed: tuple[str, ...] | None = tuple(map(str, targets)) if isinstance(targets, tuple) else None
    ends = {one.rpartition(".")[2] for one in listed or ()}
    # `targets` may contain the names that mixtral's layers had in transformers 4
    if listed is not None and facts.model_type == "mixtral":
        renamed = dict(zip(OLD_NAMES, NAMES, strict=True))
        listed = tuple(one[: -len(last)] + renamed.get(last, last) for one in listed for last in [one.split(".")[-1]])
    found = targeted(facts, listed, within)
    sparse = 1 - facts.dense_layers / facts.layers if facts.uneven else 1
    router = Linear("gate", "router", facts.hidden, facts.experts, sparse)
    gates = (kinds for path, kinds in modules(stack.name, facts.model_type).items() if path.endswith(".gate"))
    linear = facts.model_type in FAMILIES and any(LORA in kinds for kinds in gates)
    routed: tuple[Linear, ...] = ()
    if linear and (listed is None or "gate" in ends):
        routed = (router if listed is None else selected(facts, router, listed, within),)
    if not stacked(stack, facts):
        return (*found, *routed), 0
    out = [*(one for one in (*found, *weights) if one.site in ATTENTION), *routed]
    hidden, inner, many = facts.hidden, facts.intermediate, facts.experts
    sites = {one.site for one in found} if names(stack, facts.model_type) else set()
    pair = bool(sites & {"gate", "up"})
    stacks = [*parameters, *["gate_up_proj"] * pair, *["down_proj"] * ("down" in sites)]
    merged = 0
    for one in (
        Linear("gate_up_proj", "gate_up", hidden, 2 * inner, (1 + pair) * many * sparse),
        Linear("down_proj", "down", inner, hidden, many * sparse),
    ):
        if (adapter := selected(facts, one, stacks)).count:
            out.append(adapter)
            merged += many * one.inputs * one.outputs
    return tuple(out), merged
