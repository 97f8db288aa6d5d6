"""Test files in the formats of axolotl and LLaMA-Factory, written for this project. In each file, there is something
that `xpc import` once read differently from the tool.

All files of a tool have some common keys. A case states its additional keys; the value None removes a common key.
`ask_axolotl.py` and `ask_llamafactory.py` record what the tools do with these files and with published files. In the
records, these files are called `own/NAME`.
"""

from __future__ import annotations

from typing import Any

Keys = dict[str, Any]

AXOLOTL: Keys = {
    "base_model": "Qwen/Qwen2.5-3B", "datasets": [{"path": "org/chat", "type": "chat_template"}], "sequence_len": 2048,
    "micro_batch_size": 2, "gradient_accumulation_steps": 4, "num_epochs": 2, "learning_rate": 0.0002,
    "output_dir": "./out", "bf16": True,
}  # fmt: skip
LLAMAFACTORY: Keys = {
    "model_name_or_path": "Qwen/Qwen3-4B-Instruct-2507", "stage": "sft", "do_train": True, "finetuning_type": "lora",
    "dataset": "identity", "template": "qwen3_nothink", "output_dir": "saves/x", "bf16": True,
}  # fmt: skip
SECOND: Keys = {
    "model": "Qwen/Qwen3-4B", "train_dataset": "data/rows.yaml", "output_dir": "out", "max_steps": 10,
    "learning_rate": 1e-4, "micro_batch_size": 1,
}  # fmt: skip
ROWS = {"path": "org/held", "type": "chat_template", "split": "train"}

CASES: dict[str, dict[str, Keys]] = {
    "axolotl": {
        "keys that axolotl does not know": {"sequence_ln": 3, "adam_eps": 1e-5, "num_train_epochs": 9, "data_seed": 7},
        "batch_size without gradient_accumulation_steps": {"batch_size": 8, "gradient_accumulation_steps": None},
        "xformers": {"attn_implementation": "xformers"},
        "a family without sdpa": {"base_model": "openai/gpt-oss-20b"},
        "rows of their own to evaluate on": {
            "datasets": [{**ROWS, "path": "org/chat"}], "test_datasets": [ROWS], "eval_strategy": "steps",
            "eval_steps": 50,
        },
        "a template of the data set's own": {
            "datasets": [{"path": "org/chat", "type": "chat_template", "chat_template": "chatml"}],
        },
        "recomputation by FSDP alone": {
            "gradient_checkpointing": False,
            "fsdp_config": {"fsdp_version": 2, "activation_checkpointing": True, "state_dict_type": "FULL_STATE_DICT",
                            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                            "transformer_layer_cls_to_wrap": "Qwen2DecoderLayer"},
        },
        "an offloaded optimizer": {
            "deepspeed": "deepspeed_configs/zero3_bf16_cpuoffload_all.json", "optimizer": "adamw_bnb_8bit",
        },
        "weights of float16 alone": {
            "bf16": False, "fp16": False, "float16": True, "adapter": "lora", "lora_r": 8, "lora_alpha": 16,
            "lora_target_linear": True,
        },
        "a rate that rises with the square": {"lr_quadratic_warmup": True, "lr_scheduler": "cosine"},
        "other parts that are frozen": {"freeze_mm_modules": True},
        "a constant rate with a warm-up": {"lr_scheduler": "constant", "warmup_steps": 10},
        "float16 beside an automatic bf16": {"bf16": "auto", "float16": True},
        "fp16 beside an automatic bf16": {
            "bf16": "auto", "fp16": True, "adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True,
        },
        "a base of 8 bits without bf16": {
            "bf16": False, "load_in_8bit": True, "adapter": "lora", "lora_r": 8, "lora_alpha": 16,
            "lora_target_linear": True,
        },
        "kto of single rows": {
            "rl": "kto", "datasets": [{"path": "org/judged", "type": "chatml.intel"}], "chat_template": "chatml",
            "micro_batch_size": 1, "remove_unused_columns": False,
        },
        "only the best checkpoint saved": {
            "save_strategy": "best", "val_set_size": 0.1, "eval_strategy": "steps", "eval_steps": 50,
            "metric_for_best_model": "loss",
        },
        "a stable phase of the steps that are left": {
            "lr_scheduler": "warmup_stable_decay", "warmup_steps": 50, "max_steps": 250,
            "lr_scheduler_kwargs": {"num_stable_steps": 150, "num_decay_steps": 50, "min_lr_ratio": 0.1,
                                    "num_cycles": 0.5},
        },
        "prompts that are handed on as they are": {
            "rl": "grpo", "datasets": [{"path": "org/asked"}], "skip_prepare_dataset": True,
            "trl": {"num_generations": 4, "use_vllm": True, "vllm": {"port": 8001, "gpu_memory_utilization": 0.9},
                    "reward_funcs": ["accuracy"]},
        },
        "a model whose cache is off": {"overrides_of_model_config": {"use_cache": False}},
        "a part of the rows": {"datasets": [{"path": "org/chat", "type": "chat_template", "shards": 10}]},
    },
    "axolotl-0.19": {
        "a bonus for entropy": {
            "rl": "grpo", "datasets": [{"path": "org/asked"}],
            "trl": {"num_generations": 4, "reward_funcs": ["accuracy"], "entropy_coef": 0.01, "entropy_target": 0.3,
                    "use_adaptive_entropy": True, "entropy_coef_delta": 0.001, "entropy_coef_min": 0.1,
                    "entropy_coef_max": 0.9, "log_multimodal": False, "scale_rewards": "batch"},
        },
    },
    "llamafactory": {
        "pairs of an unknown data set": {"stage": "dpo", "dataset": "pairs", "pref_beta": 0.2},
        "its own judged answers, one at a time": {
            "stage": "kto", "dataset": "kto_en_demo", "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 8, "learning_rate": 5e-6,
        },
        "a reference that is the model": {
            "stage": "dpo", "dataset": "dpo_en_demo", "ref_model": "Qwen/Qwen3-4B-Instruct-2507",
        },
        "other trackers": {"report_to": ["mlflow", "wandb"]},
        "other parts that are frozen": {"freeze_vision_tower": True, "freeze_multi_modal_projector": True},
        "a constant rate with a warm-up": {"lr_scheduler_type": "constant", "warmup_ratio": 0.1},
        "checkpointing that the trainer turns on once more": {
            "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False},
        },
        "recomputation that nothing turns off": {"gradient_checkpointing": False},
        "recomputation that is off": {"gradient_checkpointing": False, "disable_gradient_checkpointing": True},
        "recomputation of the trainer alone": {"gradient_checkpointing": True, "disable_gradient_checkpointing": True},
        "mappings as texts": {
            "gradient_checkpointing": True, "gradient_checkpointing_kwargs": '{"use_reentrant": false}',
            "lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": '{"min_lr_rate": 0.1}',
        },
        "packed rows": {
            "packing": True, "cutoff_len": 4096, "mix_strategy": "concat", "dataset": "identity,alpaca_en_demo",
        },
        "packed rows that are kept apart": {"neat_packing": True, "flash_attn": "fa2"},
        "keys that nothing reads": {
            "asft_alpha": 0.2, "eaft_alpha": 0.5, "badam_mode": "ratio", "pissa_iter": 4, "simpo_gamma": 0.4,
            "ppo_epochs": 2, "galore_proj_type": "right", "apollo_proj": "svd", "init_special_tokens": "desc_init",
            "upcast_lmhead_output": True,
        },
        "the second layout saved by epochs": {
            **dict.fromkeys(LLAMAFACTORY), **SECOND, "max_steps": None, "num_train_epochs": 4, "save_epochs": 1,
            "enable_activation_checkpointing": False,
        },
        "the second layout in fp32": {**dict.fromkeys(LLAMAFACTORY), **SECOND, "bf16": False},
        "the second layout's adapter over 4 bits": {
            **dict.fromkeys(LLAMAFACTORY), **SECOND, "bf16": True, "peft_config": {"name": "lora", "r": 16},
            "quant_config": {"name": "bnb", "quantization_bit": 4},
        },
    },
}  # fmt: skip


def table(tool: str, name: str) -> Keys:
    """All keys of a case's file: the common keys of the tool's files, and then the keys of the case, which may replace
    or remove common keys.
    """
    common = {"axolotl": AXOLOTL, "axolotl-0.19": AXOLOTL, "llamafactory": LLAMAFACTORY}
    made = {**common[tool], **CASES[tool][name]}
    return {key: one for key, one in made.items() if one is not None}
