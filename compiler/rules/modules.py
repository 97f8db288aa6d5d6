"""The modules that an adapter may stand on, by family: those whose layers are all alike in both targets.

Linear layers, their transposed kin of GPT-2, and embeddings; of transformers 5.23 and 4.52. A test builds every family
and compares. Mixtures of experts and hybrids are left out: their modules differ by version and by configuration.
"""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import TOKEN_EMBEDDINGS

LLAMA = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens")
NEOX = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")
FUSED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj", "embed_tokens")

MODULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "olmo", "olmo2",
            "cohere", "cohere2", "stablelm", "smollm3", "olmo3", "seed_oss", "exaone4", "ernie4_5",
        ),
        LLAMA,
    ),
    "bloom": (*NEOX, "word_embeddings"),
    "falcon": (*NEOX, "word_embeddings"),
    "glm": FUSED,
    "glm4": FUSED,
    "gpt2": ("c_attn", "c_proj", "c_fc", "wte", "wpe"),
    "gpt_bigcode": ("c_attn", "c_proj", "c_fc", "wte", "wpe"),
    "gpt_neox": (*NEOX, "embed_in"),
    "gptj": ("q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out", "wte"),
    "nemotron": ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "embed_tokens"),
    "opt": ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "embed_tokens", "embed_positions"),
    "phi": ("q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "embed_tokens"),
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "embed_tokens"),
    "starcoder2": ("q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj", "embed_tokens"),
}  # fmt: skip

EMBEDDINGS = frozenset((*TOKEN_EMBEDDINGS, "wpe", "embed_positions"))
"""Modules that stand outside of the layers."""
BLOCKS = {
    **dict.fromkeys(MODULES, ("self_attn", "mlp")),
    **dict.fromkeys(("bloom", "falcon"), ("self_attention", "mlp")),
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gptj"), ("attn", "mlp")),
    "gpt_neox": ("attention", "mlp"),
    "opt": ("self_attn",),
}
"""The blocks that a layer consists of, by family."""


def inside(family: str) -> frozenset[str]:
    """The linear modules and the blocks of a layer."""
    return frozenset((*MODULES[family], *BLOCKS[family])) - EMBEDDINGS


def names() -> frozenset[str]:
    """What some family calls a part of its layers."""
    return frozenset().union(*map(inside, MODULES))
