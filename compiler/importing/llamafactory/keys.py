"""LLaMA-Factory's key table, and groups of keys that several modules import."""

from __future__ import annotations

from xpc.compiler.importing.keys import load

KEYS = load("llamafactory/keys.toml")

FROZEN = ("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules")
LORA = {"lora_rank": "lora.rank", "lora_alpha": "lora.alpha", "lora_dropout": "lora.dropout"}
OFT = {"oft_rank": "lora.rank", "oft_block_size": "lora.block_size", "module_dropout": "lora.dropout"}
ADAPTER_OPTIONS = {
    "additional_target": "lora.modules_to_save", "use_rslora": "lora.rslora", "use_dora": "lora.dora",
    "loraplus_lr_ratio": "lora.lr_ratio", "loraplus_lr_embedding": "lora.embedding_lr",
}  # fmt: skip
"""Maps keys about adapters to the setting with the same meaning. The order matters: the setting of
`loraplus_lr_embedding` is legal only after that of `loraplus_lr_ratio`.
"""
PISSA = ("pissa_init", "pissa_iter", "pissa_convert")
TUNING_KEYS = (*FROZEN, *LORA, *OFT, *ADAPTER_OPTIONS, *PISSA, "lora_target", "oft_target")
STAGES = {"pt": "sft", "sft": "sft", "rm": "reward", "dpo": "dpo", "kto": "kto"}
VERBS = {"train": None, "sft": "sft", "dpo": "dpo", "rm": "reward"}
"""Maps each training subcommand of `llamafactory-cli` to its method. For `train`, the key `stage` determines the
method; the other subcommands read files in the newer layout (v1).
"""
MEDIA = (
    "image_max_pixels", "image_min_pixels", "image_do_pan_and_scan", "video_max_pixels", "video_min_pixels",
    "video_fps", "video_maxlen", "use_audio_in_video", "audio_sampling_rate", "crop_to_patches",
)  # fmt: skip
"""Keys about reading images, videos and audio. They have no effect if the model reads only text."""
SPLIT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size",
         "context_parallel_size", "virtual_pipeline_model_parallel_size")  # fmt: skip
"""Keys for Megatron's parallelism, which splits the model over GPUs; with 1, nothing is split."""
PADDED = "the spec pads rows, because the trainer truncates at `cutoff_len` only with padding; the loss is the same"
ADDED = ("add_tokens", "add_special_tokens")
"""Keys that list tokens to add to the vocabulary."""
PROJECTED = (
    "galore_layerwise", "galore_target", "galore_rank", "galore_scale", "galore_update_interval", "apollo_layerwise",
    "apollo_target", "apollo_rank", "apollo_scale", "apollo_update_interval",
)  # fmt: skip
"""Keys of GaLore and APOLLO, optimizers that project gradients to a low rank: the keys select layers and configure the
projection.
"""
SECOND = (
    "model", "model_class", "template", "trust_remote_code", "flash_attn", "init_config", "peft_config",
    "kernel_config", "quant_config", "train_dataset", "eval_dataset", "output_dir", "micro_batch_size",
    "global_batch_size", "cutoff_len", "learning_rate", "num_train_epochs", "max_steps", "max_grad_norm", "bf16",
    "batching_strategy", "batching_workers", "enable_activation_checkpointing", "dist_config", "optim_config",
    "lr_scheduler_config", "seed", "full_determinism", "logging_steps", "save_steps", "save_epochs",
    "save_total_limit", "save_ckpt_as_hf", "resume_from_checkpoint", "sample_backend", "max_new_tokens",
)  # fmt: skip
"""All keys of the newer layout (v1). LLaMA-Factory refuses a file in this layout with any other key. Source:
LLaMA-Factory 0.9.5, v1/config/.
"""
