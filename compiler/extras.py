"""`extra TARGET { }`: which names it may hold, and which belong to a setting of the language."""

from __future__ import annotations

from xpc.compiler.schema import owner_of
from xpc.compiler.targets import Target

OWNED = {
    "trl": {
        "use_cpu": "hardware", "ddp_backend": "hardware", "dataloader_pin_memory": "hardware",
        "shuffle_dataset": "data.shuffle", "use_cache": "memory.checkpointing",
    },
    "accelerate": {
        "compute_environment": "launch", "distributed_type": "strategy", "mixed_precision": "precision",
        "use_cpu": "hardware", "num_machines": "nodes", "num_processes": "hardware", "machine_rank": "nodes",
        "main_process_ip": "nodes",
        "main_process_port": "nodes", "rdzv_backend": "nodes", "same_network": "nodes", "gpu_ids": "hardware",
        "deepspeed_config": "strategy", "fsdp_config": "strategy", "parallelism_config": "strategy",
        "fsdp_version": "strategy", "fsdp_sharding_strategy": "strategy",
        "fsdp_reshard_after_forward": "strategy.reshard",
        "fsdp_state_dict_type": "strategy.state_dict", "fsdp_offload_params": "strategy.offload",
        "fsdp_auto_wrap_policy": "strategy", "fsdp_transformer_layer_cls_to_wrap": "strategy",
    },
    "deepspeed": {
        "zero_optimization.stage": "strategy", "zero_optimization.overlap_comm": "strategy.overlap_comm",
        "zero_optimization.allgather_bucket_size": "strategy.allgather_bucket",
        "zero_optimization.reduce_bucket_size": "strategy.reduce_bucket",
        "zero_optimization.round_robin_gradients": "strategy.round_robin_gradients",
        "zero_optimization.reduce_scatter": "strategy.reduce_scatter",
        "zero_optimization.contiguous_gradients": "strategy.contiguous_gradients",
        "zero_optimization.offload_optimizer": "strategy.offload",
        "zero_optimization.offload_param": "strategy.offload",
        "zero_optimization": "strategy", "train_batch_size": "batch.gbs",
        "train_micro_batch_size_per_gpu": "batch.micro",
        "gradient_accumulation_steps": "batch.accum", "gradient_clipping": "optimizer.clip", "bf16": "precision",
        "fp16": "precision", "bfloat16": "precision", "optimizer": "optimizer", "scheduler": "schedule",
        "activation_checkpointing": "memory.checkpointing",
    },
}  # fmt: skip
"""Names that a setting decides although it does not carry them in the schema's `args` column."""


def owner(escape: str, name: str) -> str | None:
    """The path of the setting that decides a name of an escape, or None."""
    if escape == "trl":
        row = owner_of(name)
        if row is not None:
            return row.path
    owned = OWNED[escape]
    head = name.rpartition(".")[0]
    return owned.get(name) or (owned.get(head) if head and head != "zero_optimization" else None)


def wrong_value(target: Target, escape: str, name: str, value: object) -> str | None:
    """What a value of `extra trl` should be instead, or None where it fits or the type is not a plain one."""
    field = target.fields().get(name) if escape == "trl" else None
    if field is None:
        return None
    if field.choices:
        return None if value in field.choices else "one of " + ", ".join(map(str, field.choices))
    words = sorted({word.strip() for word in field.type.split("|")} - {"None"})
    if words and all(word.startswith("dict") for word in words):
        return "a mapping, which `extra` cannot write"
    kinds: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}
    if not words or not set(words) <= set(kinds):
        return None
    fits = any(isinstance(value, kinds[word]) and isinstance(value, bool) is (word == "bool") for word in words)
    return None if fits else " or ".join(words)


def legal_names(target: Target, escape: str) -> frozenset[str]:
    """What an escape may name: the target's own names that no setting decides."""
    if escape == "trl":
        known = frozenset(target.base_arguments())
    elif escape == "accelerate":
        known = target.keys("accelerate") | target.keys("fsdp_config")
    else:
        known = target.keys("deepspeed") | {f"zero_optimization.{key}" for key in target.zero_defaults()}
    return frozenset(name for name in known if owner(escape, name) is None)
