"""Tiny models in which the tests measure activations: configurations for each family, adapters, quantized weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.types import ModelFacts

FREE = (
    # hidden, intermediate, heads, kv heads, head width, experts, experts per token
    (64, 96, 4, 2, 16, 4, 2),
    (96, 96, 4, 2, 24, 4, 2),
    (64, 160, 4, 2, 16, 4, 2),
    (96, 224, 4, 4, 32, 4, 1),
    (96, 128, 8, 2, 16, 6, 2),
    (128, 192, 8, 8, 16, 6, 3),
    (128, 320, 4, 2, 40, 8, 2),
    (160, 192, 8, 2, 24, 8, 4),
    (192, 256, 6, 3, 32, 8, 2),
    (128, 256, 2, 2, 64, 4, 3),
    (64, 128, 4, 4, 24, 8, 1),
    (160, 160, 6, 3, 16, 4, 4),
)
"""Shapes of models. Some have the same ratios of widths as published models, and some do not; the coefficients must
hold for all of them. No shape has only one key head: under a mask, torch need not copy a single key head for all heads,
so such a model would keep less than the coefficients say.
"""
FILLED = (
    (64, 96, 4, 2), (64, 160, 2, 2), (96, 224, 4, 4), (128, 192, 8, 2), (128, 320, 4, 2), (192, 256, 6, 3),
    (96, 128, 6, 2), (160, 192, 10, 5), (128, 256, 8, 4), (192, 160, 12, 2),
)  # fmt: skip
"""Shapes for families in which heads x head width = hidden size. A shape is a tuple: hidden size, intermediate size,
heads, key heads.
"""
ALL_KEYS = ("gpt2", "gpt_neox", "opt")
"""Families with heads x head width = hidden size in which every query head has its own key head."""
ONE_KEY = ("gpt_bigcode",)
"""Families with heads x head width = hidden size in which all query heads share one key head."""
GROUPED = ("falcon", "phi3", "cohere", "cohere2")
"""Families with heads x head width = hidden size in which each group of query heads shares a key head."""
ROTATED_HALF = ("glm", "glm4")
"""Families that rotate half of each head and copy the angles in each layer. The copies grow with the width of a head.
"""
LATENT_MIXTURES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
"""Families with latent attention and experts. Next to the experts, there is an MLP that every token passes."""
LATENT = ("minicpm3", "youtu", *LATENT_MIXTURES)
"""Families with latent attention: queries, keys and values are projected to a rank, and expanded for each head."""
COMPRESSED = (
    (64, 96, 4, 40, 24, 8, 12, 20), (96, 96, 4, 24, 40, 16, 16, 16), (64, 160, 2, 48, 16, 8, 24, 12),
    (96, 224, 8, 32, 48, 8, 8, 24), (128, 192, 4, 64, 32, 16, 8, 8), (128, 320, 4, 16, 64, 8, 40, 32),
    (160, 128, 8, 56, 24, 24, 16, 12), (192, 256, 6, 96, 56, 16, 32, 40), (96, 128, 2, 80, 72, 32, 16, 48),
    (160, 160, 10, 24, 16, 8, 20, 28), (128, 256, 16, 40, 80, 16, 24, 16), (64, 128, 8, 72, 40, 24, 8, 36),
)  # fmt: skip
"""Shapes for families with latent attention. A shape is a tuple: hidden size, intermediate size, heads, rank of
queries, rank of keys and values, the width of the part of a head without positions, the width of the part with
positions, and the width of a value head.
"""
SHARED = tuple(
    (*shape, experts, each, inner, shared)
    for shape, (experts, each, inner, shared) in zip(
        (*COMPRESSED, *((*shape[:2], shape[2] * 2, *shape[4:2:-1], *shape[5:]) for shape in COMPRESSED)),
        ((4, 2, 48, 1), (4, 1, 32, 2), (8, 2, 24, 1), (8, 4, 40, 2), (6, 2, 56, 1), (6, 3, 32, 3), (8, 3, 64, 1),
         (4, 3, 24, 2), (12, 2, 40, 1), (12, 4, 16, 3), (6, 1, 72, 2), (4, 2, 88, 1)) * 2,
    )
)  # fmt: skip
"""Shapes for mixtures with latent attention: the numbers of `COMPRESSED`, then experts, experts per token, the width of
an expert, and the width of the MLP next to the experts. The last width is a multiple of the width of an expert.
"""
MIXTURES = ("mixtral", "qwen3_moe", "gpt_oss", *LATENT_MIXTURES)
WINDOWED = (
    "cohere2", "cwm", "exaone4", "gemma2", "gemma3_text", "gpt_oss", "mistral", "mixtral", "olmo3", "phi3",
    "starcoder2",
)  # fmt: skip
"""Families in which some or all layers can use a sliding window. They are measured with a window that is longer than
the rows.
"""
PERIODS = {
    "cohere2": 4, "cwm": 4, "exaone4": 4, "gemma3_text": 6, "gemma2": 2, "gpt_oss": 2, "olmo3": 4, "smollm3": 4,
}  # fmt: skip


def config(family: str, shape: tuple[int, ...], periods: int, window: int = 1024) -> dict[str, Any]:
    """The configuration of a tiny model of a family. The layers of a family repeat a pattern, such as three layers with
    linear attention and one with full attention. The model has this pattern `periods` times.
    """
    if family in LATENT:
        keys = ("hidden_size", "intermediate_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank",
                "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "n_routed_experts", "num_experts_per_tok",
                "moe_intermediate_size", "n_shared_experts")  # fmt: skip
        sparse = {"first_k_dense_replace": 0, "mlp_layer_types": ["sparse"] * periods, "n_group": 1, "topk_group": 1}
        return {"model_type": family, **dict(zip(keys, shape)), **(sparse if family in LATENT_MIXTURES else {}),
                "num_key_value_heads": shape[2], "vocab_size": 128, "max_position_embeddings": 256,
                "num_hidden_layers": periods}  # fmt: skip
    hidden, intermediate, heads, kv, width, experts, each = shape
    layers = periods * period(family)
    if family in ("gpt2", "gpt_bigcode"):
        return {"model_type": family, "n_embd": hidden, "n_inner": intermediate, "n_head": heads, "n_positions": 256,
                "n_layer": layers, "vocab_size": 128}  # fmt: skip
    out: dict[str, Any] = {
        "model_type": family, "hidden_size": hidden, "intermediate_size": intermediate, "num_attention_heads": heads,
        "num_key_value_heads": kv, "vocab_size": 128, "max_position_embeddings": 256, "num_hidden_layers": layers,
    }  # fmt: skip
    if family not in (*ALL_KEYS, *GROUPED):
        out["head_dim"] = width
    if family == "opt":
        out.update(ffn_dim=intermediate, word_embed_proj_dim=hidden)
    elif family == "falcon":
        out.update(ffn_hidden_size=intermediate, num_kv_heads=kv, new_decoder_architecture=True)
    elif family == "qwen3_moe":
        out.update(num_experts=experts, num_experts_per_tok=each, moe_intermediate_size=intermediate)
    elif family in MIXTURES:
        out.update(num_local_experts=experts, num_experts_per_tok=each)
    if family in WINDOWED:
        out["sliding_window"] = window
    return out


def period(family: str) -> int:
    """The number of layers after which a family's pattern of layers repeats."""
    return PERIODS.get(family, 1)


def facts(family: str, shape: tuple[int, ...], periods: int = 1) -> ModelFacts | str:
    """The sizes of the tiny model as the registry computes them from the configuration, or the reason why it cannot."""
    return facts_from_config(config(family, shape, periods), family, family)


def shapes(family: str) -> tuple[tuple[int, ...], ...]:
    """The shapes in which a family is measured: the tuples of hidden size, number of heads and other sizes that its
    configuration allows.
    """
    if family in LATENT:
        return SHARED if family in LATENT_MIXTURES else COMPRESSED
    if family in (*ALL_KEYS, *ONE_KEY, *GROUPED):
        return tuple(
            (h, i, heads, heads if family in ALL_KEYS else 1 if family in ONE_KEY else kv, h // heads, 4, 2)
            for h, i, heads, kv in FILLED
        )
    return FREE if family in (*MIXTURES, *ROTATED_HALF) else FREE[:9]


def uncounted(family: str) -> str | None:
    """A sentence if the registry's formulas compute another number of parameters than the real model has; None if both
    numbers are equal.
    """
    shape = shapes(family)[2]
    known = facts(family, shape)
    head = 0 if known.tied else known.vocab * known.hidden
    real = sum(one.numel() for one in built(family, shape, 1, "eager", torch.bfloat16).parameters())
    return None if real == known.params - head else f"it has {real} parameters, counted are {known.params - head}"


def built(
    family: str, shape: tuple[int, ...], periods: int, attention: str, dtype: torch.dtype, window: int = 1024
) -> Any:
    """Build the decoder of a configuration, without an output head."""
    keys = config(family, shape, periods, window)
    made = transformers.AutoConfig.for_model(keys.pop("model_type"), pad_token_id=0, **keys)
    for name in vars(made):
        if "att" in name and "drop" in name:
            setattr(made, name, 0.0)
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(made, attn_implementation=attention).to(dtype).train()


def flash(_module: Any, query: Any, key: Any, value: Any, _mask: Any, scaling: Any = None, **_: Any) -> Any:
    """Replaces flash attention. For the backward pass it saves what the real kernel saves: q, k, v, the output, and one
    number per head and token. Windows and soft caps, which need no more memory, are left out.
    """
    grouped = query.shape[1] != key.shape[1]
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped
    )
    return out.transpose(1, 2), None


class Kernel(torch.autograd.Function):
    """Attention that saves what CUDA's memory-efficient kernel saves: q, k, v, the output, one number per head and
    token, and a mask in the dtype of the computation.

    If values and keys differ in width, the CPU has no such kernel, and torch would save the matrix of scores.
    """

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float) -> Any:
        with torch.autocast("cpu", enabled=False):
            scores = (query.float() @ key.float().transpose(-1, -2)) * scaling
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril() if mask is None else mask
            scores = scores.masked_fill(~seen, -1e9)
            out = (scores.softmax(-1) @ value.float()).to(value.dtype)
        ctx.save_for_backward(
            query, key, value, out, scores.logsumexp(-1), *([] if mask is None else [mask.to(query.dtype)])
        )
        return out


def efficient(_module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_: Any) -> Any:
    """Replaces torch's attention for families with latent attention. Autocast computes attention in half precision."""
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (one.to(torch.get_autocast_dtype("cpu")) for one in (query, key, value))
    return Kernel.apply(query, key, value, mask, scaling).transpose(1, 2).contiguous(), None


# The name is "fused", because transformers requires the package flash-attn for a name that contains "flash".
transformers.AttentionInterface.register("fused", flash)
if hasattr(transformers, "AttentionMaskInterface"):  # before transformers 4.53, models made their masks themselves
    transformers.AttentionMaskInterface.register("fused", lambda *_, **__: None)
    transformers.AttentionMaskInterface.register("efficient", transformers.AttentionMaskInterface()["sdpa"])
    transformers.AttentionInterface.register("efficient", efficient)


TARGETS = {
    "qv": ("q_proj", "v_proj", "query_key_value", "c_attn", "qkv_proj", "q_a_proj", "q_b_proj"),
    "qkvo": ("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "qkv_proj", "query_key_value", "c_attn", "dense",
             "self_attn.dense", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
    "all": "all-linear",
}  # fmt: skip


def adapted(model: Any, targets: str, rank: int, dropout: float, fp32: bool, kind: str = "lora") -> Any:
    """Add adapters of a kind in `load.KINDS` to the targets; return the model.

    The adapters are float32, as PEFT makes them for a base in half precision. For rotations (oft), `rank` is the size
    of a block.
    """
    import peft

    made = TARGETS[targets]
    modules = made if isinstance(made, str) else list(made)
    config: Any
    if kind == "oft":
        config = peft.OFTConfig(r=0, oft_block_size=rank, module_dropout=dropout, target_modules=modules)
    elif kind in ("vera", "loha", "miss"):
        made_by = {"vera": peft.VeraConfig, "loha": peft.LoHaConfig, "miss": peft.MissConfig}[kind]
        config = made_by(r=rank, target_modules=modules)
    elif targets == "all" and model.config.model_type == "gpt_oss":  # all-linear finds no experts in this family
        named = [f"mlp.experts.{one}" for one in ("gate_up_proj", "down_proj")]
        config = peft.LoraConfig(r=rank, target_modules=modules, target_parameters=named)
    else:
        config = peft.LoraConfig(r=rank, lora_dropout=dropout, target_modules=modules, use_dora=kind == "dora")
    out = peft.get_peft_model(model, config, autocast_adapter_dtype=fp32)
    if not fp32:
        out = out.to(torch.bfloat16)
    return out


def packed(model: Any) -> Any:
    """Prepare the model for fp16 as TRL before 1.0 does: linear layers in 4 bits, all other weights in float32."""
    import bitsandbytes

    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            fused = type(layer).__name__ == "Conv1D"
            if isinstance(layer, torch.nn.Linear) or fused:
                weight = layer.weight.data.T.contiguous() if fused else layer.weight.data
                made = bitsandbytes.nn.Linear4bit(
                    weight.shape[1], weight.shape[0], bias=layer.bias is not None, compute_dtype=torch.bfloat16
                )
                made.weight = bitsandbytes.nn.Params4bit(weight, requires_grad=False, quant_type="nf4")
                made.bias = layer.bias
                setattr(module, name, made.to("cpu"))
    for one in model.parameters():
        if one.dtype == torch.bfloat16:
            one.data = one.data.float()
    return model


def only_norms(model: Any) -> Any:
    """Convert the norms to float32 and the embeddings to bf16, as TRL before 1.0 does for a bf16 run with a base model
    in 4 bits.

    The code follows the rules of TRL's peft_module_casting_to_bf16.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.LayerNorm) or "norm" in name:
            module.to(torch.float32)
        elif any(one in name for one in ("lm_head", "embed_tokens", "wte", "wpe")):
            weight = getattr(module, "weight", None)
            if weight is not None and weight.dtype == torch.float32:
                module.to(torch.bfloat16)
    return model
