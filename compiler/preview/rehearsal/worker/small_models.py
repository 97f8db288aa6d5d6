"""Make small models and their tokenizers for a rehearsal. Reads one JSON object and writes one.

    {"models": [{"folder", "source", "revision", "model_type", "config", "scores", "special", "end", "pad",
                 "template", "tools"}],
     "texts": [...]}

A small model has the family's kinds of layers, at least one period of their pattern, and a small width. If the
tokenizer of `source` (a folder or a hub id) is on this machine, the small model gets it. Otherwise it gets a tokenizer
that is trained on `texts`. The answer says for each model which of the two it got. With `tools`, the chat template of a
trained tokenizer is one that writes tool calls.
"""

import contextlib
import inspect
import json
import os
import sys
from typing import Any

VOCABULARY = 2048
CONTEXT = 2048
SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": CONTEXT, "n_positions": CONTEXT, "n_embd": 64, "n_head": 4, "n_inner": 128,
    "d_model": 64, "n_heads": 4, "max_seq_len": CONTEXT, "ffn_dim": 128, "word_embed_proj_dim": 64, "num_experts": 4,
    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_routed_experts": 4,
    "shared_expert_intermediate_size": 32, "decoder_sparse_step": 1, "n_group": 1, "topk_group": 1,
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_n_groups": 1, "mamba_d_state": 16,
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "moe_shared_expert_intermediate_size": 32,
    "linear_num_heads": 4, "linear_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "chunk_size": 16, "mamba_chunk_size": 16,
}  # fmt: skip
"""The sizes of a small model. A family uses those sizes that its configuration class has. The chunks of state-space
models are short, because inputs are padded to a complete chunk.
"""
BEGIN = "<s>"
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
MOST_LAYERS = 8
LATENT: dict[str, Any] = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "num_key_value_heads": 4,
}  # fmt: skip
"""Sizes for families that compute queries, keys and values from a narrow latent vector (multi-head latent attention).
"""
OWN: dict[str, dict[str, Any]] = {
    "codegen": {"rotary_dim": 8},
    "gptj": {"rotary_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4},
    "mamba": {"state_size": 8, "time_step_rank": 4},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 1},
    "deepseek_v3": {**LATENT, "first_k_dense_replace": 1, "head_dim": 8},
    "jamba": {"use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8,
              "mamba_dt_rank": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "nemotron_h": {"n_groups": 1},
    "kimi_linear": {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
                    "num_key_value_heads": 4},
    "deepseek_v2": {**LATENT, "first_k_dense_replace": 1},
    "glm4_moe_lite": LATENT,
    "minicpm3": LATENT,
    "youtu": LATENT,
    "dots1": {"n_shared_experts": 1, "first_k_dense_replace": 1},
}  # fmt: skip
"""Sizes for families whose configuration classes name sizes differently from SIZES, or give a name another meaning."""
KINDS = (bool, str, float)
"""The types of the values that the small model copies from the large model's configuration: switches, names, and
scales. Integers are not copied, because they are sizes.
"""
NOT_KEPT = ("_name_or_path", "dtype", "model_type", "torch_dtype", "transformers_version")


def names_of(maker: Any) -> set[str]:
    """The names of the arguments that a configuration class takes."""
    known = set(inspect.signature(maker.__init__).parameters) | set(getattr(maker, "attribute_map", {}))
    return known | {name for base in maker.__mro__ for name in getattr(base, "__annotations__", {})}


def sizes_of(maker: Any, model_type: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """The sizes that a family's configuration class accepts. A size with two names is passed under one name only."""
    known, mapped = names_of(maker), getattr(maker, "attribute_map", {})
    chosen = {name: value for name, value in sizes.items() if name in known} | OWN.get(model_type, {})
    return {name: value for name, value in chosen.items() if mapped.get(name, name) == name or name not in sizes
            or mapped[name] not in chosen}  # fmt: skip


def small_config(model_type: str, own: dict[str, Any], **values: Any) -> Any:
    """Make the configuration of a small model of a family. `own` is the configuration of the spec's model. `values` are
    more arguments for the configuration class.

    Raises KeyError for a family that transformers does not have.
    """
    from transformers import CONFIG_MAPPING

    maker = CONFIG_MAPPING[model_type]
    known = names_of(maker)
    layers = dict.fromkeys(LAYERS, _layers(maker))
    chosen = sizes_of(maker, model_type, {**SIZES, **layers, "sliding_window": 64})
    kept = {
        name: value
        for name, value in own.items()
        if isinstance(value, KINDS) and name in known and name not in chosen and name not in NOT_KEPT
    }
    if own.get("sliding_window", 0) is None:
        chosen["sliding_window"] = None
    return maker(**{**kept, **chosen, **values})


def _layers(maker: Any) -> int:
    """The number of layers: two, or one period of the family's pattern of layer types if a period has more than two
    layers.
    """
    kinds = list(getattr(maker(), "layer_types", None) or [])
    for period in range(1, MOST_LAYERS + 1):
        if kinds and all(kind == kinds[at % period] for at, kind in enumerate(kinds)):
            return max(2, period)
    return 2


def own_tokenizer(source: str | None, revision: str | None) -> Any:
    """The tokenizer of the spec's model, or None if it is not on this machine or needs custom code. If only config.json
    is on this machine, transformers 5 makes a tokenizer without a vocabulary, which is not used.
    """
    if not source:
        return None
    from transformers import AutoTokenizer

    with contextlib.suppress(Exception):  # the tokenizer is not in the cache, or transformers does not know its class
        found = AutoTokenizer.from_pretrained(source, revision=revision, local_files_only=True)
        return found if {*found.tokenize("word")} - {*found.all_special_tokens} else None
    return None


def trained_tokenizer(texts: list[str], special: list[str], end: str, pad: str, template: str | None) -> Any:
    """A byte-level BPE tokenizer, trained on these texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(dict.fromkeys([pad, end, BEGIN, *special])), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    core.train_from_iterator([*texts, *[template or ""] * 2], trainer)
    begin = {"bos_token": BEGIN} if template and "bos_token" in template else {}
    made: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call, unused-ignore]
        tokenizer_object=core, eos_token=end, pad_token=pad, model_max_length=CONTEXT, **begin
    )
    made.chat_template = template
    return made


def make(wanted: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """Write a small model and its tokenizer into a folder. `wanted` is one of the `models` in the request."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    tokenizer = own_tokenizer(wanted["source"], wanted["revision"])
    found = tokenizer is not None
    if not found and wanted["tools"]:
        # TRL can parse tool calls in the output of this template
        from trl.chat_template_utils import qwen2_5_chat_template as template

        wanted = {**wanted, "template": template, "end": "<|im_end|>", "special": ["<|im_start|>", "<|im_end|>"]}
    if not found:
        tokenizer = trained_tokenizer(texts, wanted["special"], wanted["end"], wanted["pad"], wanted["template"])
    os.makedirs(wanted["folder"], exist_ok=True)
    tokenizer.save_pretrained(wanted["folder"])
    size = max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1)
    config = small_config(
        wanted["model_type"], wanted["config"], vocab_size=-(-size // 64) * 64, eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    scores = wanted["scores"]
    if scores:
        config.num_labels = 1
    maker = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    torch.manual_seed(0)
    model = maker.from_config(config)
    model.float().save_pretrained(wanted["folder"])
    return {"tokenizer": found, "parameters": sum(one.numel() for one in model.parameters())}


def main() -> int:
    """Read the request from standard input, and write the answer."""
    question = json.load(sys.stdin)
    answers = [make(one, question["texts"]) for one in question["models"]]
    print(json.dumps({"models": answers}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
