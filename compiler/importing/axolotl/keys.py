"""axolotl's keys that are read by name alone: other names, kernels, and what no TRL, PEFT and accelerate can run."""

from __future__ import annotations

import os
from collections.abc import Mapping

from xpc.compiler.importing.text.entries import Entry, boolean, text
from xpc.compiler.language.schema import ADAPTERS
from xpc.grammar.nearest import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.importing.draft import Draft

Entries = Mapping[str, Entry]
VERSION = "0.18.0"


def names(of: str = "") -> frozenset[str]:
    """Every key that axolotl itself knows, with those of its plugins, or of a data set (`of` is `datasets.`): its
    classes' own fields (`make oracles`)."""
    with open(os.path.join(os.path.dirname(__file__), "names.txt"), encoding="utf-8") as handle:
        every = handle.read().split()
    return frozenset(one.removeprefix(of) for one in every if one.startswith(of) and "." not in one.removeprefix(of))


def known(draft: Draft, entries: Entries, of: str = "") -> Entries:
    """The keys that axolotl knows, of a file or of a data set (`of` is `datasets.`); it goes on without the others, and
    says nothing of them."""
    all_names = names(of)
    for key, entry in entries.items():
        if key not in all_names:
            near = nearest(key, sorted(all_names))
            draft.note(entry, f"axolotl {VERSION} knows no such key")
            draft.warn(
                entry,
                f"axolotl {VERSION} knows no such key and goes on without it",
                f"did you mean `{near}`?" if near else "",
            )
    return {key: entry for key, entry in entries.items() if key in all_names}


PAIRS = {
    "dpo_loss_type": "loss_type", "dpo_loss_weights": "loss_weights", "dpo_label_smoothing": "label_smoothing",
    "dpo_padding_free": "padding_free", "dpo_use_liger_kernel": "use_liger_kernel",
    "dpo_use_weighting": "use_weighting",
}  # fmt: skip
"""Names of its own for what TRL has under `rl: dpo`; no other method reads them."""
SAME = {
    "base_model": "model_name_or_path",
    "revision_of_model": "model_revision",
    "model_revision": "model_revision",
    "micro_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "num_epochs": "num_train_epochs",
    "optimizer": "optim",
    "lr_scheduler": "lr_scheduler_type",
    "sequence_len": "max_length",
    "dataset_processes": "dataset_num_proc",
    "dataset_num_proc": "dataset_num_proc",
    "kto_desirable_weight": "desirable_weight",
    "kto_undesirable_weight": "undesirable_weight",
    "rpo_alpha": "rpo_alpha",
    "evaluation_strategy": "eval_strategy",
    "noisy_embedding_alpha": "neftune_noise_alpha",
    "sequence_parallel_degree": "context_parallel_size",
}
"""Its names for what TRL has, too."""
KERNEL = "a kernel: the same arithmetic in another build"
QUIET = {
    **dict.fromkeys(
        (
            "lora_mlp_kernel",
            "lora_qkv_kernel",
            "lora_o_kernel",
            "experts_implementation",
            "use_scattermoe",
            "use_sonicmoe",
            "use_kernels",
            "fused_attn_kernel",
            "flex_attn_compile_kwargs",
            "gemma4_hybrid_attn_impl",
            "use_glm_dsa_kernels",
            "flash_attn_fuse_mlp",
            "flash_attn_cross_entropy",
            "flash_optimum",
            "cut_cross_entropy",
            "tiled_mlp",
            "liger_rms_norm_gated",
        ),
        KERNEL,
    ),
    "model_type": "the model says its class",
    "tokenizer_type": "the model says its tokenizer's class",
    "cls_model_config": "the model says its class",
    "is_llama_derived_model": "the model says its class",
    "is_mistral_derived_model": "the model says its class",
    "is_falcon_derived_model": "the model says its class",
    "is_qwen_derived_model": "the model says its class",
    "num_labels": "a reward is one number",
    "strict": "how the model's own files are read",
    "dataset_prepared_path": "a bundle tokenizes its data itself",
    "dataset_keep_in_memory": "how rows are held",
    "pad_to_sequence_len": "padding is not in the loss",
    "sample_packing_group_size": "how packing searches",
    "sample_packing_bin_size": "how packing searches",
    "sample_packing_eff_est": "how packing searches",
    "sample_packing_sequentially": "packing orders rows its own way",
    "total_num_tokens": "counted anew",
    "wandb_watch": "reporting only",
    "wandb_log_model": "reporting only",
    "wandb_mode": "WANDB_MODE says it at the launch",
    "trackio_space_id": "where a tracker publishes",
    **dict.fromkeys(("tokenizer_use_fast", "tokenizer_legacy"), "the tokenizer's own"),
    **dict.fromkeys(("lora_on_cpu", "gpu_memory_limit", "embeddings_skip_upcast"), "how weights are read"),
    "gptq": "the checkpoint says so itself",
    **dict.fromkeys(("heads_k_stride", "ring_attn_func"), "the target's own way of splitting a sequence"),
    "push_dataset_to_hub": "a bundle tokenizes its data itself",
    "low_cpu_mem_usage": "how weights are read, not what they are",
    "experimental_skip_move_to_device": "how weights are read, not what they are",
    "use_ray": "launch.sh starts the run",
    "ray_run_name": "launch.sh starts the run",
    **dict.fromkeys(
        (
            "include_tkps",
            "include_tokens_per_second",
            "gc_steps",
            "gc_collect_steps",
            "profiler_steps",
            "profiler_steps_start",
            "use_otel_metrics",
            "otel_metrics_host",
            "otel_metrics_port",
        ),
        "reporting only",
    ),
    "eot_tokens": "the template marks the answers",
    **dict.fromkeys(("device", "device_map", "ddp"), "the hardware is `hardware`"),
    "batch_size": "axolotl accumulates by `gradient_accumulation_steps` alone, which is 1 where it is not set",
    "freeze_mm_modules": "rows of text train no other part of the model",
    "resize_token_embeddings_to_32x": "rows of no token are not added",
    "fix_untrained_tokens": "the tokenizer's own",
    "world_size": "the launch's",
    "streaming_multipack_buffer_size": "how rows are held",
    "lora_fan_in_fan_out": "PEFT knows the layers",
    "eval_causal_lm_metrics": "evaluation computes the loss",
    "do_causal_lm_eval": "evaluation computes the loss",
    "eval_table_size": "evaluation computes the loss",
    "eval_max_new_tokens": "evaluation computes the loss",
    "vllm": "the server's own options: it is started apart",
    "dataloader_pin_memory": "follows the hardware",
}
TEXT = "the language trains on text"
IMPOSSIBLE = {
    **dict.fromkeys(("processor_type", "processor_kwargs", "image_size", "image_resize_algorithm"), TEXT),
    **dict.fromkeys(
        ("max_packed_sequence_len", "flash_attn_rms_norm", "s2_attention"), f"axolotl {VERSION} refuses it, too"
    ),
    "process_reward_model": "the stack has no trainer of process rewards",
    "use_dsv4_kernels": "the stack trains no such weights",
    **dict.fromkeys(("lisa_n_layers", "lisa_step_interval", "lisa_layers_attribute"), "the stack has no LISA"),
    **dict.fromkeys(
        (
            "relora_prune_ratio",
            "relora_prune_method",
            "relora_cpu_offload",
            "jagged_restart_warmup_steps",
            "jagged_restart_anneal_steps",
        ),
        "the stack has no ReLoRA",
    ),
    **dict.fromkeys(
        ("use_eaft", "eaft_alpha", "eaft_k", "ebft", "diffusion", "kd_trainer", "kd_alpha", "kd_temperature"),
        "the stack has no such trainer",
    ),
    **dict.fromkeys(
        ("qat", "quantization", "nvfp4_merge_aware", "dsv4_fp4_grouped_mode", "use_onebitllms"),
        "the stack trains no such weights",
    ),
    **dict.fromkeys(
        ("expert_parallel_num_nvl_bytes", "expert_parallel_token_capacity"), "the stack has no expert parallelism"
    ),
    "peft_layers_to_transform": "the language puts adapters on every layer",
    "relora": "the stack has no ReLoRA",
    "jagged_restart_steps": "the stack has no ReLoRA",
    "peft": "the language starts adapters at zero",
    "added_tokens_overrides": "a bundle adds no tokens",
    "tokenizer_config": "the tokenizer is the model's own",
    "reinit_weights": "the language begins with the weights as they are",
    "cosine_constant_lr_ratio": "the language has no such schedule",
    "llama4_linearized_experts": "the stack has no such model",
    "rope_scaling": "a bundle reads the model as its config.json has it: the scaling of positions stands there",
    **dict.fromkeys(
        ("overrides_of_model_kwargs", "model_kwargs"),
        "a bundle reads the model as its config.json has it",
    ),
    **dict.fromkeys(
        ("use_pose", "pose_max_context_len", "pose_num_chunks", "pose_split_on_token_ids"),
        "the language has no positions with gaps",
    ),
    **dict.fromkeys(
        ("trainer_cls", "use_mora", "mora", "mora_type", "dense_mixer", "hatchery"), "the stack has no such trainer"
    ),
    **dict.fromkeys(
        (
            "peft_init_lora_weights",
            "peft_layer_replication",
            "peft_layers_pattern",
            "lora_rank_pattern",
            "lora_alpha_pattern",
            "peft_trainable_token_indices",
            "peft_ensure_weight_tying",
        ),
        "the language has adapters of one shape, on every layer, that begin at zero",
    ),
    "shrink_embeddings": "the language keeps the vocabulary",
    "lr_groups": "the language has one rate, and another for LoRA+",
    **dict.fromkeys(("embedding_lr", "embedding_lr_scale"), "the language has one rate, and another for LoRA+"),
    "sage_attention": "the language has no such attention",
}
TRACKER = "the language has wandb, trackio and tensorboard"
KEPT = {
    **dict.fromkeys(
        (
            "use_mlflow",
            "mlflow_tracking_uri",
            "mlflow_experiment_name",
            "mlflow_run_name",
            "hf_mlflow_log_artifacts",
            "use_comet",
            "comet_api_key",
            "comet_workspace",
            "comet_project_name",
            "comet_experiment_key",
            "comet_mode",
            "comet_online",
            "comet_experiment_config",
        ),
        TRACKER,
    ),
    **dict.fromkeys(
        ("lm_eval_tasks", "lm_eval_model", "lm_eval_batch_size", "lm_eval_post_train"),
        "lm-eval runs after the training, on the model that it leaves",
    ),
    **dict.fromkeys(("do_bench_eval", "bench_dataset", "bench_split"), "evaluation computes the loss"),
    **dict.fromkeys(
        (
            "generate_samples",
            "num_generation_samples",
            "generation_interval",
            "generation_steps",
            "generation_max_length",
            "generation_max_new_tokens",
            "generation_temperature",
            "generation_do_sample",
            "generation_top_k",
            "generation_top_p",
            "generation_prompt_ratio",
        ),
        "axolotl shows samples of the model while it trains",
    ),
    "save_first_step": "axolotl saves a checkpoint after the first step, too",
    "max_memory": "where weights are placed",
    "lora_embedding_kernel": KERNEL,
    "tiled_mlp_num_shards": KERNEL,
    "sample_packing_mp_start_method": "how packing searches",
    "num_dataset_shards_to_save": "a bundle tokenizes its data itself",
    "tokenizer_save_jinja_files": "how the tokenizer is saved",
    "fsdp_final_state_dict_type": "a bundle gathers the weights that it saves",
    **dict.fromkeys(
        (
            "gradio_title",
            "gradio_share",
            "gradio_server_name",
            "gradio_server_port",
            "gradio_max_new_tokens",
            "gradio_temperature",
        ),
        "inference only",
    ),
    **dict.fromkeys(
        ("loss_watchdog_threshold", "loss_watchdog_patience"),
        "axolotl ends a run whose loss stays above the threshold, and this run goes on",
    ),
    "wandb_entity": "WANDB_ENTITY says it at the launch",
    "hf_use_auth_token": "HF_TOKEN is set at the launch",
    "quantize_moe_experts": "a bundle quantizes linear layers only: experts stay in 16 bits",
    "tokenizer_use_mistral_common": "the runtime reads tokenizers by transformers",
    **dict.fromkeys(
        (
            "use_swanlab",
            "swanlab_project",
            "swanlab_experiment_name",
            "swanlab_description",
            "swanlab_workspace",
            "swanlab_log_model",
            "swanlab_log_completions",
            "swanlab_completion_log_interval",
            "swanlab_completion_max_buffer",
            "swanlab_mode",
        ),
        TRACKER,
    ),
}
"""What changes no number: kept in a comment."""
WHOLE = {"model.language_model.*", "^model.language_model.*", "lm_head.*", "^lm_head.*", "lm_head", "embed_tokens"}
PLUGINS = {
    "CutCrossEntropyPlugin": KERNEL,
    "LigerPlugin": "",
    "KernelsPlugin": KERNEL,
    "SwanLabPlugin": "a tracker",
    "ExpertParallelPlugin": "see `expert_parallel_size`",
}


def plugins(draft: Draft, entry: Entry, names: list[str]) -> None:
    """Liger is a setting, kernels compute the same, anything else is a trainer of its own."""
    for name in names:
        last = name.rpartition(".")[2]
        if last == "LigerPlugin":
            draft.put("memory.liger", True, entry)
        elif last in PLUGINS:
            draft.mark(entry, "mapped", "", PLUGINS[last])
        else:
            draft.error(entry, f"the stack has no {last}")


def rest(draft: Draft, named: Entries) -> None:
    """Liger's single kernels, fp8, and everything that is read by its name alone."""
    for key, one in named.items():
        if key.startswith("liger_") and key not in QUIET:
            if boolean(one) and draft.has("memory.liger"):
                draft.mark(one, "mapped", "memory.liger", "a bundle applies every kernel of Liger to the model")
            else:
                draft.note(one, "it is off" if one.off else "the Liger plugin is not on")
    for key, why in QUIET.items():
        if key in named:
            for one in named[key].mapping.values() or [named[key]]:
                draft.note(one, why)
    draft.keep(named, KEPT)
    eight = named.get("fp8")
    for key in ("fp8", "fp8_enable_fsdp_float8_all_gather"):
        said = named.get(key)
        if said is not None and (said.off or eight is None or eight.off):
            draft.note(said, "fp8 is off")
        elif said is not None:
            draft.reserve(said, f"{key}: {text(said)}", "this version has no fp8: bf16 is computed in")
    _unfrozen(draft, named.get("unfrozen_parameters"))


def _unfrozen(draft: Draft, entry: Entry | None) -> None:
    """Patterns of the weights that are trained: all those of the language model are no restriction."""
    if entry is None:
        return
    names = {text(one) for one in entry.items}
    if entry.empty or (names <= WHOLE and any("language_model" in str(name) for name in names)):
        draft.note(entry, "every weight of the language model")
    elif any(map(draft.has, ADAPTERS)):
        draft.error(entry, "adapters freeze every weight of the model", "`lora_modules_to_save` trains whole modules")
    elif not all(names) or any(str(one).endswith("]") and ":" in str(one) for one in names):
        draft.error(entry, "the language names whole parameters, and no range of their rows")
    else:
        draft.put("freeze", True, entry)
        draft.put("freeze.except_parameters", tuple(str(text(one)) for one in entry.items), entry)
