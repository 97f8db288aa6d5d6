"""Tiny models of every family, their tokenizer, and rows of every shape (target's interpreter); made once a machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

VOCABULARY = 1024
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
    "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 128, "d_model": 64, "n_layers": 2,
    "n_heads": 4, "max_seq_len": 512, "ffn_dim": 128, "word_embed_proj_dim": 64, "num_experts": 4,
    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_routed_experts": 4,
    "shared_expert_intermediate_size": 32, "decoder_sparse_step": 1, "n_group": 1, "topk_group": 1,
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_n_groups": 1, "mamba_d_state": 16,
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "moe_shared_expert_intermediate_size": 32,
    "linear_num_heads": 4, "linear_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "chunk_size": 16, "mamba_chunk_size": 16,
}  # fmt: skip
"""Values of the configuration; a family takes those that its class names.

A state is computed in chunks that are filled up: with the 256 of Bamba's class a row of 16 tokens takes 8 GiB.
"""
OWN: dict[str, dict[str, Any]] = {
    "codegen": {"rotary_dim": 8},
    "gptj": {"rotary_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4},
    "mamba": {"state_size": 8, "time_step_rank": 4},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 1},
    "deepseek_v3": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
                    "v_head_dim": 16, "first_k_dense_replace": 1, "num_key_value_heads": 4, "head_dim": 8},
    "jamba": {"use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8,
              "mamba_dt_rank": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "nemotron_h": {"n_groups": 1},
    "kimi_linear": {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
                    "num_key_value_heads": 4},
    "deepseek_v2": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
                    "v_head_dim": 16, "first_k_dense_replace": 1, "num_key_value_heads": 4},
}  # fmt: skip


TEMPORARY = tempfile.gettempdir()
"""The machine's own, also where a run of several processes gets another one (small_run.py)."""


def _place() -> str:
    """The folder that tiny models are kept in, one a version of transformers."""
    import transformers

    return os.path.join(TEMPORARY, f"xpc-tiny-{os.getuid()}-{transformers.__version__}")


def _once(name: str, make: Callable[[str], object]) -> str:
    """A folder below the place, made once; two processes may make it at a time, and the first to end wins."""
    folder = os.path.join(_place(), name)
    if not os.path.isdir(folder):
        os.makedirs(_place(), exist_ok=True)
        made = tempfile.mkdtemp(dir=_place())
        try:
            make(made)
            with contextlib.suppress(OSError):
                os.rename(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def tokenizer() -> str:
    """The folder of a byte-level BPE tokenizer with a ChatML template."""
    from tiny import build

    return _once("tokenizer", lambda folder: build(folder, vocab=VOCABULARY))


def config(family: str) -> Any:
    """A tiny configuration of a `model_type`. Raises KeyError for one that transformers does not know."""
    import inspect

    from transformers import CONFIG_MAPPING

    maker = CONFIG_MAPPING[family]
    known = set(inspect.signature(maker.__init__).parameters) | set(getattr(maker, "attribute_map", {}))
    known |= {name for base in maker.__mro__ for name in getattr(base, "__annotations__", {})}
    values = {name: value for name, value in SIZES.items() if name in known} | OWN.get(family, {})
    mapped = getattr(maker, "attribute_map", {})
    values = {name: value for name, value in values.items() if mapped.get(name, name) == name or name not in SIZES
              or mapped[name] not in values}  # fmt: skip
    return maker(**values, pad_token_id=0, bos_token_id=0, eos_token_id=2)


def model(family: str) -> str:
    """The folder of a tiny model with random weights."""

    def make(folder: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.manual_seed(0)
        with contextlib.suppress(AttributeError):
            torch.set_default_dtype(torch.float32)
        AutoModelForCausalLM.from_config(config(family)).save_pretrained(folder)

    return _once(family, make)


def load(family: str, plan: dict[str, Any], kind: str = "causal", quantized: Any = None) -> Any:
    """The family's tiny model, loaded as a bundle's program does: dtype, attention and bits as the plan says."""
    import torch
    import transformers

    name = "dtype" if hasattr(transformers.PretrainedConfig(), "dtype") else "torch_dtype"
    options = {name: getattr(torch, plan["dtype"])}
    if plan["attn_implementation"]:
        options["attn_implementation"] = plan["attn_implementation"]
    if quantized is not None:
        options["quantization_config"] = quantized
    maker = transformers.AutoModelForCausalLM
    if kind == "reward":
        maker, options["num_labels"] = transformers.AutoModelForSequenceClassification, 1
    made = maker.from_pretrained(model(family), **options)
    made.config.use_cache = False
    return made


def rows(shape: str, number: int = 32) -> Any:
    """Rows of a shape as trl reads them; `preference` with an explicit prompt, all of one length or nearly."""
    import datasets
    from tiny import conversations

    turns = conversations(number)
    asked = [row[0]["content"] for row in turns]
    answered = [" " + row[1]["content"] for row in turns]
    made: dict[str, dict[str, Any]] = {
        "messages": {"messages": turns},
        "conversations": {"messages": turns},
        "prompt_completion": {"prompt": asked, "completion": answered},
        "text": {"text": [a + b for a, b in zip(asked, answered, strict=True)]},
        "preference": {"prompt": asked, "chosen": answered, "rejected": answered[1:] + answered[:1]},
        "unpaired": {"prompt": asked, "completion": answered, "label": [i % 2 == 0 for i in range(number)]},
        "prompt": {"prompt": asked, "answer": answered},
    }
    return datasets.Dataset.from_dict(made[shape])


def as_turns(row: dict[str, Any]) -> dict[str, Any]:
    """A row of texts as turns, as the runtime has them where the source says `chat`."""
    speakers = {"prompt": "user", "completion": "assistant", "chosen": "assistant", "rejected": "assistant"}
    return {
        name: [{"role": speakers[name], "content": value}] if name in speakers else value for name, value in row.items()
    }


def reward(index: int) -> Any:
    """A reward function that gives completions of one prompt different numbers."""

    def score(completions: list[Any], **_: Any) -> list[float]:
        return [float((len(str(one)) + i + index) % 3) for i, one in enumerate(completions)]

    score.__name__ = f"score_{index}"
    return score


def adapters(plan: dict[str, Any], method: str) -> Any:
    """The LoraConfig or OFTConfig of a payload's `lora` section."""
    from peft import LoraConfig, OFTConfig

    task = "SEQ_CLS" if method == "reward" else "CAUSAL_LM"
    common = {"target_modules": plan["targets"], "modules_to_save": plan["modules_to_save"], "task_type": task}
    if plan["kind"] == "oft":
        sizes = {"r": plan["rank"] or 0, "oft_block_size": plan["block_size"] or 0}
        return OFTConfig(**sizes, module_dropout=plan["dropout"], **common)
    return LoraConfig(r=plan["rank"], lora_alpha=plan["alpha"], lora_dropout=plan["dropout"],
                      use_rslora=plan["rslora"], use_dora=plan["dora"], target_parameters=plan["parameters"],
                      **common)  # fmt: skip
