"""What the DeepSpeed files hold that axolotl (deepspeed_configs/) and LLaMA-Factory (examples/deepspeed/) bring along:
a source names them by a path into the tool's own folder."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, object]

COUNTS: Table = {
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}  # fmt: skip
CPU: Table = {"device": "cpu", "pin_memory": True}
ALL_OF_IT: Table = {"max_live_parameters": 0, "max_reuse_distance": 0, "gather_16bit_weights_on_model_save": True}
THIRD: Table = {
    "stage": 3, "overlap_comm": True, "contiguous_gradients": True, "sub_group_size": 0, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
}  # fmt: skip
OWN_OPTIMIZER: Table = {"zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True}
SECOND: Table = {
    "stage": 2, "allgather_partitions": True, "allgather_bucket_size": 5e8, "overlap_comm": False,
    "reduce_scatter": True, "reduce_bucket_size": 5e8, "contiguous_gradients": True, "round_robin_gradients": True,
}  # fmt: skip
LATER: Table = {
    "stage": 3, "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": 1e9,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": True,
}  # fmt: skip
ANY: Table = {"zero_allow_untested_optimizer": True}

FILES: Mapping[str, Table] = {
    "zero1.json": {"zero_optimization": {"stage": 1, "overlap_comm": True}, **COUNTS},
    "zero1_torch_compile.json": {"zero_optimization": {"stage": 1, "overlap_comm": True}, **COUNTS},
    "zero2.json": {
        "zero_optimization": {
            "stage": 2, "offload_optimizer": {"device": "cpu"}, "contiguous_gradients": True, "overlap_comm": True,
        },
        **COUNTS,
    },
    "zero3.json": {"zero_optimization": {**THIRD, **ALL_OF_IT}, **COUNTS},
    "zero3_bf16.json": {"zero_optimization": {**THIRD, **ALL_OF_IT}, **COUNTS},
    "zero3_bf16_cpuoffload_all.json": {
        **OWN_OPTIMIZER, "zero_optimization": {"offload_optimizer": CPU, "offload_param": CPU, **THIRD, **ALL_OF_IT},
        **COUNTS,
    },
    "zero3_bf16_cpuoffload_params.json": {
        **OWN_OPTIMIZER, "zero_optimization": {"offload_param": CPU, **THIRD, **ALL_OF_IT}, **COUNTS,
    },
    "ds_z0_config.json": {**ANY, "zero_optimization": {**SECOND, "stage": 0}, **COUNTS},
    "ds_z2_config.json": {**ANY, "zero_optimization": SECOND, **COUNTS},
    "ds_z2_offload_config.json": {**ANY, "zero_optimization": {**SECOND, "offload_optimizer": CPU}, **COUNTS},
    "ds_z3_config.json": {**ANY, "zero_optimization": LATER, **COUNTS},
    "ds_z3_offload_config.json": {
        **ANY, "zero_optimization": {**LATER, "offload_optimizer": CPU, "offload_param": CPU}, **COUNTS,
    },
}  # fmt: skip
"""By name. What every one of them says of precision, `auto` or on, follows the trainer's arguments."""
