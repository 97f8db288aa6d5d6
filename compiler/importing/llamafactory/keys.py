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
    **dict.fromkeys(("use_fast_tokenizer", "low_cpu_mem_usage"), "how it is loaded, not what it is"),
    **dict.fromkeys(("hf_hub_token", "ms_hub_token", "om_hub_token"), "a token stands in the environment"),
    **dict.fromkeys(
        (
            "enable_torch_profiler", "profile_modules", "profiler_active_steps", "profiler_output_dir",
            "profiler_profile_memory", "profiler_record_shapes", "profiler_repeat", "profiler_wait_steps",
            "profiler_warmup_steps", "profiler_with_stack",
        ),
        "reporting only",
    ),
    "sortish_sampler": "no trainer reads it any more",
    "batching_workers": "who puts batches together, not what they hold",
    "save_ckpt_as_hf": "a bundle's checkpoints are in this format",
}  # fmt: skip
KEPT = {
    **dict.fromkeys(
        (
            "max_length",
            "do_sample",
            "temperature",
            "top_p",
            "top_k",
            "num_beams",
            "length_penalty",
            "repetition_penalty",
            "skip_special_tokens",
            "generation_max_length",
            "generation_num_beams",
            "eval_num_beams",
            "use_kv_cache",
            "generation_config",
            "predict_with_generate",
            "infer_dtype",
            "vllm_maxlen",
            "vllm_gpu_util",
            "vllm_enforce_eager",
            "vllm_max_lora_rank",
            "vllm_config",
            "sglang_maxlen",
            "sglang_mem_fraction",
            "sglang_tp_size",
            "sglang_config",
            "sglang_lora_backend",
        ),
        "inference only",
    ),
    **dict.fromkeys(
        (
            "export_dir",
            "export_size",
            "export_device",
            "export_quantization_bit",
            "export_quantization_dataset",
            "export_quantization_nsamples",
            "export_quantization_maxlen",
            "export_legacy_format",
            "export_hub_model_id",
        ),
        "read by `llamafactory-cli export`",
    ),
    **dict.fromkeys(("task", "task_dir", "lang", "n_shot", "save_dir"), "read by `llamafactory-cli eval`"),
    **dict.fromkeys(("master_addr", "master_port"), "the launch's"),
    **dict.fromkeys(
        (
            "use_swanlab",
            "swanlab_project",
            "swanlab_workspace",
            "swanlab_run_name",
            "swanlab_mode",
            "swanlab_api_key",
            "swanlab_logdir",
            "swanlab_lark_webhook_url",
            "swanlab_lark_secret",
        ),
        "the language has wandb, trackio and tensorboard",
    ),
    "cache_dir": "where files are downloaded to: `HF_HOME` says it",
    "buffer_size": "how streamed rows are shuffled",
    "compute_accuracy": "evaluation computes the loss",
    "offload_folder": "where weights are placed",
}
"""What training does not read: kept in a comment."""
KTRANSFORMERS = ("kt_config", "kt_cpu_activation", "kt_weight_path", "kt_expert_checkpoint_path", "kt_use_lora_experts",
                 "kt_lora_expert_num", "kt_lora_expert_intermediate_size")  # fmt: skip
PPO = ("reward_model", "reward_model_adapters", "reward_model_quantization_bit", "reward_model_type", "ppo_buffer_size",
       "ppo_epochs", "ppo_score_norm", "ppo_target", "ppo_whiten_rewards")  # fmt: skip
BADAM = ("badam_mode", "badam_start_block", "badam_switch_mode", "badam_switch_interval", "badam_update_ratio",
         "badam_mask_mode", "badam_verbose")  # fmt: skip
WITH = {
    **dict.fromkeys(BADAM, "use_badam"),
    **dict.fromkeys(("pissa_iter", "pissa_convert"), "pissa_init"),
    **dict.fromkeys(KTRANSFORMERS, "use_kt"),
    **dict.fromkeys(("apollo_proj", "apollo_proj_type", "apollo_scale_front"), "use_apollo"),
    "asft_alpha": "use_asft_loss", "eaft_alpha": "use_eaft_loss", "galore_proj_type": "use_galore",
    "hyper_parallel_args": "use_hyper_parallel", "init_special_tokens": "add_special_tokens",
    "new_special_tokens_config": "add_special_tokens", "interleave_probs": "mix_strategy",
    "adapter_folder": "adapter_name_or_path", "ref_model_adapters": "ref_model",
    "ref_model_quantization_bit": "ref_model",
}  # fmt: skip
"""A key, and the one without which nothing reads it."""
MEDIA = (
    "image_max_pixels", "image_min_pixels", "image_do_pan_and_scan", "video_max_pixels", "video_min_pixels",
    "video_fps", "video_maxlen", "use_audio_in_video", "audio_sampling_rate", "crop_to_patches",
)  # fmt: skip
"""How pictures, films and sounds are read: nothing, of a model that reads text alone."""
IMPOSSIBLE = {
    **dict.fromkeys((*MEDIA, "train_mm_proj_only", "freeze_language_model"), TEXT),
    **dict.fromkeys(("pissa_iter", "pissa_convert"), "the language starts adapters at zero"),
    **dict.fromkeys((*BADAM, "use_badam", "use_adam_mini", "use_muon"), "the language has no such optimizer"),
    "use_llama_pro": "the language has no block expansion",
    "mixture_of_depths": "the language has no mixture of depths",
    "use_asft_loss": "the stack has no such loss",
    "asft_alpha": "the stack has no such loss",
    "eaft_alpha": "the stack has no such loss",
    "use_eaft_loss": "the stack has no such loss",
    **dict.fromkeys(("use_kt", *KTRANSFORMERS), "the stack has no KTransformers"),
    **dict.fromkeys(("use_hyper_parallel", "hyper_parallel_args"), "the stack has no HyperParallel"),
    "use_mca": "the stack has no Megatron",
    **dict.fromkeys(
        ("sequence_parallel", "megatron_pretrained_checkpoint", "use_packed_sequences"), "the stack has no Megatron"
    ),
    "create_new_adapter": "a bundle continues an adapter: merge it into the model first for a new one",
    "pissa_init": "the language starts adapters at zero",
    "rope_scaling": "a bundle reads the model as its config.json has it: the scaling of positions stands there",
    "interleave_probs": "the language concatenates its sources",
    "simpo_gamma": "neither target trains simpo",
    **dict.fromkeys(PPO, "the language has no ppo"),
    "quantization_device_map": "the runtime places the weights",
    "shift_attn": "the language has no shifted attention",
}
PROJECTION = "the language names no kind of projection"
REFERENCE = "the reference is the model that training begins with"
FIXED: dict[str, tuple[tuple[object, ...], str, str]] = {
    "mix_strategy": (("concat",), "the sources follow each other", "the language concatenates its sources"),
    "ignore_pad_token_for_loss": ((True,), "padding is never learnt", "a bundle never learns padding"),
    "preserve_thinking": (
        (False,),
        "it is off",
        "the templates that are written leave out the thoughts of earlier turns",
    ),
    "tool_format": ((), "it says nothing", "tools are written as the template has them"),
    "apollo_proj": (("random",), "the optimizer's own", PROJECTION),
    "apollo_proj_type": (("std",), "the optimizer's own", PROJECTION),
    "apollo_scale_front": ((False,), "it is off", "the language names no such scaling"),
    "galore_proj_type": (("std",), "the optimizer's own", PROJECTION),
    "pref_bco_weight": ((0,), "no loss is added", "the language has no such loss beside"),
    "init_special_tokens": (("noise_init",), "new rows begin by chance", "new rows begin by chance in a bundle"),
    "new_special_tokens_config": ((), "it says nothing", "new rows begin by chance in a bundle"),
    "split_special_tokens": ((False,), "it is off", "special tokens are tokens of their own in a bundle"),
    "train_from_scratch": ((False,), "it is off", "a bundle begins with the model's weights"),
    "upcast_lmhead_output": ((True, False), "the loss is computed in fp32 anyway", ""),
    "adapter_folder": ((), "it says nothing", "name the adapter's own folder"),
    **dict.fromkeys(("ref_model_adapters", "ref_model_quantization_bit"), ((), "the model itself", REFERENCE)),
}
"""The values of a key that are a bundle's own, why these change nothing, and why others are refused."""
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
    "upcast_layernorm", "use_unsloth_gc", "default_system", "disable_shuffling", "data_seed",
    "enable_thinking", "mask_history", "rpo_alpha", "bf16", "tokenizer_name", "eval_on_each_dataset",
    "adapter_name_or_path", "early_stopping_steps", "ray_num_workers", "use_unsloth", "moe_aux_loss_coef",
    "enable_activation_checkpointing", "save_epochs", *FIXED,
    "ref_model", "use_apollo", "streaming", "apollo_layerwise", "apollo_target", "apollo_rank", "apollo_scale",
    "apollo_update_interval", "apollo_scale_type",
)  # fmt: skip
PROJECTED = (
    "galore_layerwise", "galore_target", "galore_rank", "galore_scale", "galore_update_interval", "apollo_layerwise",
    "apollo_target", "apollo_rank", "apollo_scale", "apollo_update_interval",
)  # fmt: skip
"""What is projected, and how."""
SECOND = (
    "model", "model_class", "template", "trust_remote_code", "flash_attn", "init_config", "peft_config",
    "kernel_config", "quant_config", "train_dataset", "eval_dataset", "output_dir", "micro_batch_size",
    "global_batch_size", "cutoff_len", "learning_rate", "num_train_epochs", "max_steps", "max_grad_norm", "bf16",
    "batching_strategy", "batching_workers", "enable_activation_checkpointing", "dist_config", "optim_config",
    "lr_scheduler_config", "seed", "full_determinism", "logging_steps", "save_steps", "save_epochs",
    "save_total_limit", "save_ckpt_as_hf", "resume_from_checkpoint", "sample_backend", "max_new_tokens",
)  # fmt: skip
"""Every key of the second layout; it refuses a file with another. Source: LLaMA-Factory 0.9.5, v1/config/."""
