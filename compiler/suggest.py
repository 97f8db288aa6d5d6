"""Did-you-mean: the nearest legal name, and what other tools call our settings."""

from __future__ import annotations

from collections.abc import Iterable

from xpc.compiler import schema

FOREIGN = {
    "max_seq_length": "seq", "max_seq_len": "seq", "sequence_len": "seq", "sequence_length": "seq", "cutoff_len": "seq",
    "model_max_length": "seq", "block_size": "seq", "context_length": "seq", "batch_size": "micro",
    "micro_batch_size": "micro", "per_gpu_train_batch_size": "micro", "global_batch_size": "gbs",
    "train_batch_size": "gbs", "effective_batch_size": "gbs", "grad_accum": "accum", "grad_accumulation": "accum",
    "gradient_accumulation": "accum", "accumulation": "accum", "learning_rate": "lr", "lr_scheduler": "schedule",
    "scheduler": "schedule", "flash_attention": "attn", "attn_implementation": "attn", "attention": "attn",
    "flash_attn": "attn", "sample_packing": "packing", "pack": "packing", "gradient_checkpoint": "checkpointing",
    "grad_checkpointing": "checkpointing", "epochs": "for N epochs", "num_epochs": "for N epochs",
    "num_train_epochs": "for N epochs", "max_steps": "for N steps", "steps": "for N steps", "output": "save",
    "gpus": "hardware", "num_gpus": "hardware", "num_processes": "hardware", "nproc_per_node": "hardware",
    "num_nodes": "nodes", "nnodes": "nodes", "num_machines": "nodes", "deepspeed": "strategy", "zero": "strategy",
    "zero_stage": "zero2", "sharding": "strategy", "report": "track", "wandb_project": "project",
    "torch_dtype": "dtype", "max_norm": "clip", "gradient_clipping": "clip", "grad_clip": "clip", "wd": "weight_decay",
    "warmup_ratio": "warmup", "num_warmup_steps": "warmup", "min_lr_rate": "min_lr",
    "dataloader_num_workers": "workers",
    "num_proc": "workers",
    "eval_size": "holdout", "val_size": "holdout", "val_set_size": "holdout",
    "test_size": "holdout", "train_on_inputs": "assistant_only",
    "flash_attention_2": "flash2", "zero_1": "zero1", "zero_2": "zero2", "zero_3": "zero3", "fsdp2": "fsdp",
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "mixed_precision": "precision", "dtype": "dtype",
    "use_liger": "liger", "use_liger_kernel": "liger", "liger_kernel": "liger", "trust_remote": "trust_remote_code",
    "save_strategy": "save(every=epoch)", "eval_strategy": "eval(every=epoch)", "do_eval": "eval(every=epoch)",
    "evaluation_strategy": "eval(every=epoch)", "logging_strategy": "track(every=10)",
    "load_in_4bit": "qlora", "load_in_8bit": "qlora", "use_reentrant": "checkpointing(reentrant=false)",
    "finetune": "train MODEL on DATA", "fine_tune": "train MODEL on DATA", "base_model": "train MODEL on DATA",
    "model_name": "train MODEL on DATA", "model_name_or_path": "train MODEL on DATA",
    "dataset": "train MODEL on DATA", "datasets": "train MODEL on DATA", "dataset_name": "train MODEL on DATA",
    "save_steps": "save(every=100)", "eval_steps": "eval(every=100)", "logging_steps": "track(every=10)",
    "save_total_limit": "save(keep=1)", "run_name": "track(name=...)",
}  # fmt: skip
"""Names that people type, from TRL, axolotl, LLaMA-Factory, torchtune and accelerate, to ours."""


def owner_name(name: str) -> str | None:
    """Our name for a trainer argument or another tool's spelling of it, or None."""
    plain = name.replace("-", "_").lower()
    if plain in FOREIGN:
        return FOREIGN[plain]
    row = schema.owner_of(plain)
    return None if row is None else row.name


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` most likely means, or None when nothing is near."""
    from difflib import SequenceMatcher  # costs 5 ms; only misspelt specs pay

    name = name[:80]
    plain = _plain(name)
    best, best_score = None, 0.0
    for candidate in candidates:
        other = _plain(candidate)
        matcher = SequenceMatcher(None, plain, other)
        if matcher.real_quick_ratio() < 0.6:
            continue
        score = matcher.ratio()
        if sorted(plain) == sorted(other):
            score += 0.2  # swapped letters
        if other.startswith(plain) or plain.startswith(other):
            score += 0.1
        if score > best_score:
            best, best_score = candidate, score
    return best if best_score >= 0.6 else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(".", "")
