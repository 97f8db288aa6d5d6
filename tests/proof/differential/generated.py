"""The building blocks of random specs: values (with a higher weight for values that people often write), and the files
that specs name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from emitted import FILES as COMMON

from xpc.compiler.language import kinds as k
from xpc.compiler.language import methods

ROWS = 256
FILES: Mapping[str, str] = {
    **COMMON,
    "preference.jsonl": '{"prompt": "2 + 2?", "chosen": " 4", "rejected": " 5"}\n' * ROWS,
    "unpaired.jsonl": '{"prompt": "2 + 2?", "completion": " 4", "label": true}\n' * ROWS,
    "prompt.jsonl": (json.dumps({"prompt": "2 + 2?", "answer": "4"}) + "\n") * ROWS,
    "task.yaml": "task: mine\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: prompt.jsonl\n",
    "rewards.py": "def shorter(completions, **_):\n    return [-float(len(str(one))) for one in completions]\n",
}
"""Files next to the specs, such as a data file of each row shape, a tiny model's configuration, a template and a reward
function.
"""

HARDWARE: Mapping[str, int] = {
    "8 x h100-80gb": 14, "4 x h100-80gb": 3, "1 x h100-80gb": 3, "8 x a100-80gb": 10, "4 x a100-80gb": 4,
    "2 x a100-40gb": 2, "1 x a100-80gb": 3, "8 x v100-32gb": 4, "4 x v100-16gb": 1, "2 x t4": 2, "1 x t4": 1,
    "1 x l4": 2, "4 x l40s": 2, "8 x rtx-4090": 2, "2 x rtx-3090": 3, "1 x rtx-3090": 2, "1 x a10g": 2,
    "8 x h200": 2, "8 x b200": 1, "4 x gb200": 1, "8 x p100-16gb": 1, "1 x rtx-2080-ti": 1, "cpu": 5, "2 x cpu": 6,
}  # fmt: skip
MODELS: Mapping[str, int] = {
    "qwen2.5-3b": 8, "qwen2.5-0.5b": 4, "qwen2.5-7b-instruct": 3, "qwen3-0.6b": 4, "qwen3-8b": 4, "llama-3.1-8b": 6,
    "llama-3.2-1b": 3, "mistral-7b-v0.3": 3, "gemma-2-2b": 3, "gemma-3-1b-it": 2, "phi-3-mini-4k": 1,
    "smollm2-135m": 2, "smollm3-3b": 2, "gpt2": 2, "opt-125m": 2, "falcon-7b": 1, "mixtral-8x7b-v0.1": 1,
    "olmo-2-1b": 1, '"tiny"': 22,
}  # fmt: skip
"""Maps popular models to weights: a model with a larger weight is chosen more often. One spec in five takes any model
of the registry.
"""
SHAPES: Mapping[str, tuple[str, ...]] = {name: one.shapes for name, one in methods.METHODS.items()}
"""Maps each method to the row shapes on which it trains."""
LOCAL: Mapping[str, tuple[str, ...]] = {
    **{name: shapes[:1] for name, shapes in SHAPES.items()},
    "sft": ("messages", "pairs", "text", "shared"),
    "distill": ("prompt", "pairs"),
}
"""Maps each method to the names, without ending, of its data files."""
EVALUATED = "held-"
"""The beginning of the name of an evaluation file. The name of the method follows it."""
FILES = {**FILES, **{f"{EVALUATED}{method}.jsonl": FILES[f"{names[0]}.jsonl"] for method, names in LOCAL.items()}}
METHODS: Mapping[str, int] = {
    **dict.fromkeys(methods.METHODS, 4), "sft": 57, "dpo": 12, "kto": 5, "reward": 5, "grpo": 10,
}  # fmt: skip
STRATEGIES: Mapping[str, int] = {
    "ddp": 22, "zero1": 6, "zero2": 18, "zero3": 14, "fsdp": 14, "fsdp1": 5, "hsdp": 4, "full_shard": 2,
    "shard_grad_op": 1, "no_shard": 1, "hybrid_shard": 1, "hybrid_shard_zero2": 1,
}  # fmt: skip
OPTIMIZERS: Mapping[str, int] = {
    "adamw": 60, "adamw_torch": 3, "adamw8bit": 8, "paged_adamw": 3, "paged_adamw8bit": 5, "adafactor": 8, "sgd": 5,
    "lion": 3, "rmsprop": 2, "adagrad": 2,
}  # fmt: skip
"""Maps popular optimizers to weights: an optimizer with a larger weight is chosen more often. One spec in seven takes
any optimizer.
"""
SCHEDULES: Mapping[str, int] = {
    "linear": 20, "cosine": 40, "constant": 12, "wsd": 6, "polynomial": 4, "inverse_sqrt": 4,
    "cosine_with_restarts": 4, "reduce_lr_on_plateau": 3, "greedy": 2,
}  # fmt: skip
LENGTHS: Mapping[str, int] = {
    "3 epochs": 8, "1 epochs": 6, "2 epochs": 3, "0.5 epochs": 1, "100 steps": 3, "1000 steps": 4, "1 steps": 1,
    "20 steps": 2, "": 2,
}  # fmt: skip
OFTEN: Mapping[str, float] = {
    "optimizer.lr": 0.6, "batch.seq": 0.35, "schedule.warmup": 0.4, "memory.checkpointing": 0.3, "memory.liger": 0.12,
    "optimizer.weight_decay": 0.2, "optimizer.clip": 0.2, "save.every": 0.25, "track.every": 0.2, "track.name": 0.15,
    "lora.rank": 0.7, "lora.alpha": 0.5, "lora.targets": 0.4, "method.beta": 0.4, "method.loss": 0.3,
    "method.generations": 0.5, "method.max_completion": 0.5, "method.max_prompt": 0.2, "method.rewards": 0.95,
    "method.teacher": 0.95, "data.documents": 0.02, "data.long": 0.03, "data.exhausted": 0.02,
    "data.streaming": 0.02, "data.shuffle_buffer": 0.01,
    "model.attn": 0.2, "model.dtype": 0.08, "precision": 0.85, "strategy": 0.9, "optimizer": 0.75, "schedule": 0.6,
    "save": 0.9, "track": 0.3, "seed": 0.3, "launch": 0.15, "batch.packing": 0.16, "batch.padding_free": 0.04,
    "data.holdout": 0.15, "eval.every": 0.15, "data.shuffle": 0.06, "strategy.offload": 0.08, "method.vllm": 0.2,
    "data.prompt_template": 0.04, "data.system_column": 0.03, "save.merge": 0.01, "eval.patience": 0.01,
    "lora.within": 0.02, "memory.checkpointing.selective": 0.02, "model.compile": 0.03, "batch.packing.eval": 0.03,
    "data.user_roles": 0.01, "data.assistant_roles": 0.01, "data.system_roles": 0.01, "data.tool_roles": 0.01,
    "save.hub": 0.1, "strategy.activation_checkpointing": 0.01, "model.trust_remote_code": 0.02, "model.revision": 0.04,
}  # fmt: skip
"""Maps settings to the probability with which each is written if it is legal. The probability of any other setting is
SELDOM.
"""
SELDOM = 0.07
COMMIT = "3aab1f1954e9cc14eb9509a215f9e5ca08227a9b"
POOLS: Mapping[str, tuple[str, ...]] = {
    "batch.seq": ("512", "1024", "2048", "4096", "8Ki", "64", "128", "500"), "seed": ("0", "1", "42", "4294967295"),
    "data.columns": ("[messages]", "[prompt, completion]"),
    "data.user_roles": ("[customer]",), "data.assistant_roles": ('[agent, "the agent"]',),
    "data.system_roles": ("[rules]",), "data.tool_roles": ("[calculator]",),
    "data.seed": ("0", "7"), "data.workers": ("1", "4", "48"), "eval.micro": ("1", "3", "8"),
    "save.keep": ("1", "2", "3"), "strategy.allgather_bucket": ("1000", "500M"),
    "strategy.reduce_bucket": ("1000", "200M"), "strategy.shard": ("2", "4", "8", "16"),
    "optimizer.lr": ("1e-5", "2e-5", "5e-6", "1e-6", "3e-4", "1e-4", "1e-8", "0.1"),
    "optimizer.eps": ("1e-8", "1e-6"), "optimizer.weight_decay": ("0", "0.1", "0.01"),
    "optimizer.clip": ("0", "0.2", "1", "1.0"), "optimizer.betas": ("[0.9, 0.95]", "[0.9, 0.999]", "[0, 0.5]"),
    "schedule.warmup": ("0", "1", "40", "3%", "10%", "100", "99%"), "schedule.decay": ("10%", "20%", "100", "5"),
    "schedule.min_lr": ("0", "1e-7", "1e-6", "10%", "100%"), "eval.split": ("test", "validation"),
    "eval.tasks": ("[hellaswag]", "[leaderboard]", "[leaderboard_bbh, gsm8k]", '["task.yaml"]', "[humaneval]"),
    "model.eos": ('"<|im_end|>"',), "model.pad": ('"<|pad|>"', '"<|endoftext|>"'),
    "model.revision": ("main", "v2", f'"{COMMIT}"'), "track.name": ('"run-1"', '"a \\"b\\" $(c) `d`"'),
    "track.project": ('"p"',), "data.system": ('"be brief"',), "data.prompt_template": ('"Q: {{ prompt }}"',),
    "data.prompt": ("prompt", "question"),
    "optimizer.targets": ("all-linear", "[q_proj, v_proj]"), "optimizer.rank": ("64", "128"),
    "optimizer.scale": ("0.25", "1"), "optimizer.update_proj_gap": ("200",), "optimizer.momentum": ("0.9", "0"),
    "optimizer.adamw_lr": ("1e-5", "1e-4"), "optimizer.adjust_lr": ("original", "match_rms_adamw"),
    "schedule.max_lr": ("1e-4", "100%"), "schedule.warmup_lr": ("0", "1e-7", "10%"), "schedule.cycles": ("1", "3"),
    "schedule.power": ("1", "2"), "schedule.timescale": ("1000",), "schedule.factor": ("0.1", "0.5", "0.95"),
    "schedule.patience": ("0", "3", "10"), "strategy.context_parallel": ("1", "2", "4"),
    "save.hub.name": ("me/model", '"me/model"'), "save.hub.revision": ("main", "run-1"),
    "model.chat_template": ('file("template.jinja")', 'file("template.jinja")', "chatml", "llama3.1", "zephyr"),
    "launch.nccl_timeout": ("30m", "14400s", "2h"),
    "launch.partition": ("gpu", '"a100,h100"'), "launch.account": ("lab",), "launch.time": ("12h", "2d"),
    "launch.image": ('"lab/train:1"',), "launch.volume": ("claim",), "launch.secret": ("tokens",),
    "lora.rank": ("8", "16", "64"), "lora.alpha": ("16", "32", "8"), "lora.dropout": ("0", "0.05", "0.1"),
    "lora.modules_to_save": ("[norm]", "[lm_head]"),
    "freeze.except_first": ("1", "2"), "freeze.layer_modules": ("[mlp]",), "freeze.except_modules": ("[norm]",),
    "freeze.except_parameters": ('["^lm_head.weight$"]',), "model.tokens": ('["<|think|>"]',),
    "lora.targets": ("all-linear", "[q_proj, v_proj]", "[q_proj, k_proj, v_proj, o_proj]"), "lora.bits": ("4", "8"),
    "method.beta": ("0.1", "0.01", "0.04", "0", "0.5"), "method.max_prompt": ("128", "512"),
    "method.generations": ("2", "4", "8", "16"), "method.max_completion": ("64", "256", "1024"),
    "method.temperature": ("0.7", "0.9", "1"), "method.top_p": ("0.9", "1"), "method.top_k": ("0", "50"),
    "method.min_p": ("0.05", "0"), "method.repetition_penalty": ("1", "1.05"), "method.iterations": ("1", "2", "4"),
    "method.steps_per_generation": ("1", "2", "4"), "method.epsilon": ("0.2", "0.1"),
    "method.epsilon_high": ("0.28", "0.3"),
    "method.lmbda": ("1", "0.5", "0"), "method.delta": ("1.5", "4"), "method.label_smoothing": ("0.1", "0"),
    "method.rpo": ("1", "0.5"), "method.desirable": ("1", "1.33"), "method.undesirable": ("1", "0.75"),
    "method.center": ("0.01",), "method.sync_reference.every": ("64", "512"),
    "method.sync_reference.mixup": ("0.6", "0.9"), "method.vllm.gpu_memory": ("30%", "70%"),
    "method.vllm.tensor_parallel": ("1", "2"), "method.vllm.max_length": ("2048", "4096"),
    "method.vllm.port": ("8000",), "method.vllm.timeout": ("4m", "240s"),
    "method.rewards": ("[accuracy(weight=1), format(weight=0.5)]", "accuracy", "[format, tag_count]",
                       '"rewards.py:shorter"', '[accuracy, "rewards.py:shorter"]'),
}  # fmt: skip
"""Maps settings to the texts of the values that random specs may state."""
KINDS: Mapping[str, tuple[str, ...]] = {
    k.FLAG.name: ("true", "true", "false"), k.STEPS_OR_SHARE.name: ("0", "40", "3%"), k.REAL.name: ("0", "0.1", "1"),
    k.REAL_OR_SHARE.name: ("0", "1e-7", "10%"), k.EVERY.name: ("1", "10", "100", "5%", "33.3%", "epoch", "never"),
    k.ROWS_OR_SHARE.name: ("2", "5%", "2000"), k.DURATION.name: ("30m", "14400s"), k.REALS.name: ("[0.9, 0.95]",),
    k.TOKENS.name: ("256", "1Ki"), k.INT.name: ("1", "2", "8"), k.NAME.name: ("main",), k.TEXT.name: ('"a"',),
    k.SHARE.name: ("30%", "70%"),
}  # fmt: skip
"""Maps kinds of settings to the values for those settings of the kind that are not in POOLS."""
TRL: Mapping[str, tuple[str, ...]] = {
    "neftune_noise_alpha": ("5", "0.1"), "dataloader_num_workers": ("0", "2", "4"),
    "label_smoothing_factor": ("0", "0.1"), "dataloader_prefetch_factor": ("2",),
    "eval_delay": ("0", "10"), "eval_accumulation_steps": ("1", "4"),
    "data_seed": ("7",), "ddp_bucket_cap_mb": ("25",), "pad_to_multiple_of": ("8", "64"),
    "optim_args": ('"fused=false"',),
    "metric_for_best_model": ('"loss"', '"eval_loss"', '"accuracy"'), "torch_compile_backend": ('"inductor"',),
    "torch_compile_mode": ('"default"', '"reduce-overhead"'), "torch_empty_cache_steps": ("1", "10"),
    "dataset_text_field": ('"text"',), "include_num_input_tokens_seen": ("true", "false"),
    "router_aux_loss_coef": ("0.001",), "length_column_name": ('"length"',), "past_index": ("-1",),
    "optim_target_modules": ('"all-linear"', '["q_proj"]'), "label_names": ('["labels"]',),
    "include_for_metrics": ('["loss"]',), "generation_batch_size": ("64", "128"), "num_completions_to_print": ("4",),
    "max_tool_calling_iterations": ("2",), "f_alpha_divergence_coef": ("0.5",), "ld_alpha": ("0.5",),
    "discopop_tau": ("0.05",), "num_generations_eval": ("2", "4"), "sapo_temperature_neg": ("1.05",),
    "vllm_importance_sampling_cap": ("2",), "chat_template_path": (), "dataset_kwargs": (),
}  # fmt: skip
"""Maps arguments under `extra trl` to values for them. Their types do not tell which values are legal. An empty tuple
excludes the argument.
"""
