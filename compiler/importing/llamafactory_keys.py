"""LLaMA-Factory's keys by name: what TRL calls otherwise, what changes nothing, and what the stack cannot do."""

from __future__ import annotations

FROZEN = ("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")
LORA = {"lora_rank": "lora.rank", "lora_alpha": "lora.alpha", "lora_dropout": "lora.dropout"}
OFT = {"oft_rank": "lora.rank", "oft_block_size": "lora.block_size", "module_dropout": "lora.dropout"}
BESIDE = {
    "additional_target": "lora.modules_to_save", "use_rslora": "lora.rslora", "use_dora": "lora.dora",
    "loraplus_lr_ratio": "lora.lr_ratio", "loraplus_lr_embedding": "lora.embedding_lr",
}  # fmt: skip
"""What an adapter has beside; the ratio before what it switches on."""
READ = (*FROZEN, *LORA, *OFT, *BESIDE, "lora_target", "oft_target")
STAGES = {"pt": "sft", "sft": "sft", "rm": "reward", "dpo": "dpo", "kto": "kto"}
SAME = {
    "cutoff_len": "max_length",
    "preprocessing_num_workers": "dataset_num_proc",
    "enable_liger_kernel": "use_liger_kernel",
    "pref_beta": "beta",
    "dpo_label_smoothing": "label_smoothing",
    "kto_chosen_weight": "desirable_weight",
    "kto_rejected_weight": "undesirable_weight",
    "pref_ftx": "rpo_alpha",
    "micro_batch_size": "per_device_train_batch_size",
    "model": "model_name_or_path",
}
"""Names of its own for what TRL has, too; the last two are the second generation's."""
TEXT = "the language trains on text"
QUIET = {
    "plot_loss": "metrics are written anyway",
    "overwrite_cache": "a bundle tokenizes its data itself",
    "sample_backend": "inference only",
    "max_new_tokens": "inference only",
    "model_class": "the language trains text models",
    "init_config": "how weights are read, not what they are",
    "use_v1_kernels": "kernels of other hardware",
    "infer_backend": "inference only",
    "print_param_status": "console only",
    "data_shared_file_system": "the launch's",
    "include_effective_tokens_per_second": "reporting only",
    "preprocessing_batch_size": "when rows are tokenized, not what they become",
    "media_dir": TEXT,
    **dict.fromkeys(
        ("freeze_vision_tower", "freeze_multi_modal_projector"), "rows of text train no other part of the model"
    ),
    "ray_init_kwargs": "launch.sh starts the run",
}
IMPOSSIBLE = {
    **dict.fromkeys(
        (
            "image_max_pixels",
            "image_min_pixels",
            "image_do_pan_and_scan",
            "video_max_pixels",
            "video_min_pixels",
            "video_fps",
            "video_maxlen",
            "use_audio_in_video",
            "audio_sampling_rate",
            "train_mm_proj_only",
            "freeze_language_model",
        ),
        TEXT,
    ),
    **dict.fromkeys(
        (
            "badam_mode",
            "badam_start_block",
            "badam_switch_mode",
            "badam_switch_interval",
            "badam_update_ratio",
            "badam_mask_mode",
            "badam_verbose",
        ),
        "the language has no such optimizer",
    ),
    **dict.fromkeys(("pissa_iter", "pissa_convert"), "the language starts adapters at zero"),
    **dict.fromkeys(("use_badam", "use_adam_mini", "use_muon"), "the language has no such optimizer"),
    "use_llama_pro": "the language has no block expansion",
    "mixture_of_depths": "the language has no mixture of depths",
    "use_asft_loss": "the stack has no such loss",
    "asft_alpha": "the stack has no such loss",
    "use_eaft_loss": "the stack has no such loss",
    "use_kt": "the stack has no KTransformers",
    "kt_config": "the stack has no KTransformers",
    "kt_cpu_activation": "the stack has no KTransformers",
    "kt_weight_path": "the stack has no KTransformers",
    "use_unsloth": "the stack has no Unsloth",
    "use_unsloth_gc": "the stack has no Unsloth",
    "use_mca": "the stack has no Megatron",
    **dict.fromkeys(
        ("sequence_parallel", "megatron_pretrained_checkpoint", "use_packed_sequences"), "the stack has no Megatron"
    ),
    "create_new_adapter": "a bundle continues an adapter: merge it into the model first for a new one",
    "pissa_init": "the language starts adapters at zero",
    "rope_scaling": "reserved by the language",
    "mask_history": "the language has the loss on all answers",
    "interleave_probs": "the language concatenates its sources",
    "simpo_gamma": "neither target trains simpo",
    "reward_model": "the language has no ppo",
    "quantization_device_map": "the runtime places the weights",
    "shift_attn": "the language has no shifted attention",
}
SPLIT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size",
         "context_parallel_size", "virtual_pipeline_model_parallel_size")  # fmt: skip
"""How Megatron splits a model over GPUs: 1 splits nothing."""
MEGATRON = (
    "use_distributed_optimizer", "overlap_param_gather", "overlap_grad_reduce", "bias_activation_fusion",
    "apply_rope_fusion", "masked_softmax_fusion", "cross_entropy_loss_fusion", "moe_grouped_gemm",
    "moe_token_dispatcher_type", "recompute_granularity", "recompute_method", "recompute_num_layers",
    "export_hf_on_finish", "mixed_precision",
)  # fmt: skip
"""Megatron's ways of computing the same."""
PADDED = "rows are padded: without padding the trainer would not cut them at `cutoff_len`; the loss is the same"
FP8 = ("fp8", "fp8_backend", "fp8_enable_fsdp_float8_all_gather")
ADDED = ("add_tokens", "add_special_tokens")
"""New tokens; special ones are left out of what is decoded, which training does not see."""
OURS = (
    *READ,
    *ADDED,
    "resize_vocab",
    "stage", "finetuning_type", "quantization_bit",
    "quantization_method", "quantization_type", "double_quantization", "template", "dataset", "dataset_dir",
    "max_samples", "val_size", "packing", "neat_packing", "flash_attn", "pure_bf16",
    "disable_gradient_checkpointing", "use_reentrant_gc", "train_on_prompt", "pref_loss", "use_dft_loss",
    "use_galore", "galore_layerwise", "galore_target", "galore_rank", "galore_scale", "galore_update_interval",
    "train_dataset", "peft_config", "quant_config", "dist_config", "optim_config", "batching_strategy",
    "global_batch_size", "kernel_config", "lr_scheduler_config", "eval_dataset", "tokenized_path",
    "upcast_layernorm", "use_swanlab", "default_system", "disable_shuffling", "data_seed",
    "enable_thinking", "rpo_alpha", "bf16", "tokenizer_name", "eval_on_each_dataset",
    "adapter_name_or_path", "early_stopping_steps", "ray_num_workers",
    "ref_model", "use_apollo", "streaming", "apollo_layerwise", "apollo_target", "apollo_rank", "apollo_scale",
    "apollo_update_interval", "apollo_scale_type",
)  # fmt: skip
PROJECTED = (
    "galore_layerwise", "galore_target", "galore_rank", "galore_scale", "galore_update_interval", "apollo_layerwise",
    "apollo_target", "apollo_rank", "apollo_scale", "apollo_update_interval",
)  # fmt: skip
"""What is projected, and how."""
