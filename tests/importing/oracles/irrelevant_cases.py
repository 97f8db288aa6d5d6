"""For each key that an import of axolotl or LLaMA-Factory calls irrelevant: a value with which the key is tested.

`ask_irrelevant.py` gives the tool two files, one with the key at this value and one without the key. It records which
of the tool's arguments differ: none, or only arguments about reporting or the machine. If the tool reads the key only
together with other keys, `NEEDED` lists these, and both files have them.
"""

from __future__ import annotations

from typing import Any

from file_cases import LLAMAFACTORY, SECOND

Keys = dict[str, Any]

KERNELS = {"plugins": ["axolotl.integrations.kernels.KernelsPlugin"]}
LIGER = {"plugins": ["axolotl.integrations.liger.LigerPlugin"]}
CUT = {"plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"]}
PACKED = {"sample_packing": True, "attn_implementation": "flash_attention_2"}
TUNED = {"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True}
FLASH = {"attn_implementation": "flash_attention_2"}
HELD = {"val_set_size": 0.1, "eval_strategy": "steps", "eval_steps": 10}
CONTEXT = {"context_parallel_size": 2, "attn_implementation": "flash_attention_2"}

VALUES: dict[str, Keys] = {
    "axolotl": {
        **dict.fromkeys(
            ("use_kernels", "flash_optimum", "tiled_mlp", "is_llama_derived_model", "is_mistral_derived_model",
             "is_falcon_derived_model", "is_qwen_derived_model", "strict", "dataset_keep_in_memory",
             "pad_to_sequence_len", "sample_packing_sequentially", "tokenizer_use_fast", "tokenizer_legacy",
             "lora_on_cpu", "embeddings_skip_upcast", "low_cpu_mem_usage", "experimental_skip_move_to_device",
             "include_tkps", "include_tokens_per_second", "use_otel_metrics", "ddp", "freeze_mm_modules",
             "resize_token_embeddings_to_32x", "fix_untrained_tokens", "lora_fan_in_fan_out", "do_causal_lm_eval",
             "flash_attn_fuse_mlp", "flash_attn_cross_entropy", "cut_cross_entropy", "liger_rms_norm_gated",
             "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "use_scattermoe", "use_sonicmoe",
             "fused_attn_kernel", "use_glm_dsa_kernels", "gptq", "use_ray", "gemma4_hybrid_attn_impl",
             "dataloader_pin_memory"),
            True,
        ),
        "experts_implementation": "grouped_mm", "flex_attn_compile_kwargs": {"dynamic": False},
        "model_type": "AutoModelForCausalLM", "tokenizer_type": "AutoTokenizer", "cls_model_config": "AutoConfig",
        "num_labels": 1, "dataset_prepared_path": "prepared", "sample_packing_group_size": 50000,
        "sample_packing_bin_size": 100, "sample_packing_eff_est": 0.9, "total_num_tokens": 1000000,
        "wandb_watch": "gradients", "wandb_log_model": "checkpoint", "wandb_mode": "offline",
        "trackio_space_id": "me/space", "gpu_memory_limit": "20GiB", "heads_k_stride": 2,
        "ring_attn_func": "batch_ring", "push_dataset_to_hub": "me/rows", "ray_run_name": "a run", "gc_steps": 10,
        "gc_collect_steps": 10, "profiler_steps": 5, "profiler_steps_start": 2, "otel_metrics_host": "example.org",
        "otel_metrics_port": 9999, "eot_tokens": ["</s>"], "device": "cuda", "device_map": "auto", "batch_size": 64,
        "world_size": 4, "eval_causal_lm_metrics": ["chrf"],
        "eval_table_size": 3, "eval_max_new_tokens": 64, "vllm": {"tensor_parallel_size": 2},
    },
    "llamafactory": {
        **dict.fromkeys(
            ("plot_loss", "overwrite_cache", "use_v1_kernels", "print_param_status", "data_shared_file_system",
             "include_effective_tokens_per_second", "enable_torch_profiler", "profiler_with_stack", "sortish_sampler"),
            True,
        ),
        **dict.fromkeys(
            ("use_fast_tokenizer", "low_cpu_mem_usage", "profiler_profile_memory", "profiler_record_shapes"), False
        ),
        **dict.fromkeys(
            ("profiler_active_steps", "profiler_repeat", "profiler_wait_steps", "profiler_warmup_steps"), 7
        ),
        **dict.fromkeys(("hf_hub_token", "ms_hub_token", "om_hub_token"), "a token"),
        "profiler_output_dir": "profiles", "profile_modules": "all", "batching_workers": 3, "save_ckpt_as_hf": True,
        "max_new_tokens": 64, "infer_backend": "huggingface", "preprocessing_batch_size": 10,
        "ray_init_kwargs": {"address": "auto"}, "sample_backend": "hf", "model_class": "llm",
        "init_config": {"name": "init_on_meta"},
    },
}  # fmt: skip
NEEDED: dict[str, Keys] = {
    "liger_rms_norm_gated": LIGER, "cut_cross_entropy": CUT, "use_scattermoe": KERNELS, "use_sonicmoe": KERNELS,
    "sample_packing_sequentially": PACKED, "sample_packing_group_size": PACKED, "sample_packing_bin_size": PACKED,
    "sample_packing_eff_est": PACKED, "pad_to_sequence_len": PACKED, "lora_on_cpu": TUNED, "lora_mlp_kernel": TUNED,
    "lora_qkv_kernel": TUNED, "lora_o_kernel": TUNED, "lora_fan_in_fan_out": TUNED, "fused_attn_kernel": TUNED,
    "flash_attn_fuse_mlp": FLASH, "flash_attn_cross_entropy": FLASH, "wandb_watch": {"wandb_project": "p"},
    "wandb_log_model": {"wandb_project": "p"}, "wandb_mode": {"wandb_project": "p"},
    "trackio_space_id": {"trackio_project_name": "p"}, "eval_table_size": HELD, "eval_max_new_tokens": HELD,
    "eval_causal_lm_metrics": {**HELD, "do_causal_lm_eval": True}, "do_causal_lm_eval": HELD,
    "heads_k_stride": CONTEXT, "ring_attn_func": CONTEXT, "profiler_steps_start": {"profiler_steps": 5},
    "num_labels": {}, "flex_attn_compile_kwargs": {"attn_implementation": "flex_attention"},
    "experts_implementation": KERNELS, "push_dataset_to_hub": {"hf_use_auth_token": True},
    "batch_size": {"gradient_accumulation_steps": None, "batch_size": 32},
    "flash_optimum": {"bf16": False},
    **{key: {**dict.fromkeys(LLAMAFACTORY), **SECOND} for key in (
        "sample_backend", "model_class", "init_config", "batching_workers", "save_ckpt_as_hf")},
}  # fmt: skip
"""Maps a key to other keys. The tool does not read the key in a file without these other keys."""
