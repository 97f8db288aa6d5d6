"""torchtune's keys by name: which setting each is, what changes nothing, and what the stack cannot do.

Source: torchtune 0.6.1, recipes/ and the signatures of the components that its files name.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.importing.text.entries import Entry, text

Entries = Mapping[str, Entry]

SAME = {
    "output_dir": "save",
    "batch_size": "batch.micro",
    "gradient_accumulation_steps": "batch.accum",
    "epochs": "train.epochs",
    "shuffle": "data.shuffle",
    "enable_activation_checkpointing": "memory.checkpointing",
    "fsdp_reshard_after_forward": "strategy.reshard",
    "optimizer.lr": "optimizer.lr",
    "optimizer.weight_decay": "optimizer.weight_decay",
    "optimizer.eps": "optimizer.eps",
    "optimizer.momentum": "optimizer.momentum",
    "model.lora_rank": "lora.rank",
    "model.lora_alpha": "lora.alpha",
    "model.lora_dropout": "lora.dropout",
    "loss.beta": "method.beta",
    "loss.gamma": "method.beta",
    "loss.label_smoothing": "method.label_smoothing",
    "dataset.packed": "batch.packing",
    "dataset.new_system_prompt": "data.system",
}
"""Keys of the same meaning and unit."""
READ = (
    "model", "model.lora_attn_modules", "model.apply_lora_to_mlp", "model.apply_lora_to_output", "model.use_dora",
    "model.quantize_base", "checkpointer.checkpoint_dir", "ref_checkpointer", "resume_from_checkpoint",
    "save_adapter_weights_only", "tokenizer", "tokenizer.max_seq_len", "tokenizer.prompt_template", "dataset",
    "dataset.source", "dataset.name", "dataset.subset", "dataset.split", "dataset.data_files", "dataset.column",
    "dataset.column_map", "dataset.conversation_column", "dataset.conversation_style", "dataset.train_on_input",
    "dataset.add_eos", "dataset.split_across_pack", "dataset.max_seq_len", "seed", "optimizer", "optimizer.betas",
    "optimizer.fused", "optimizer_in_bwd", "lr_scheduler", "lr_scheduler.num_warmup_steps", "lr_scheduler.num_cycles",
    "loss", "max_steps_per_epoch", "clip_grad_norm", "compile", "dtype", "device", "metric_logger",
    "metric_logger.project", "metric_logger.name", "log_every_n_steps", "enable_activation_offloading",
    "fsdp_cpu_offload", "tensor_parallel_dim",
)  # fmt: skip
"""Keys that the functions of torchtune.py and torchtune_data.py read."""
WEIGHTS = "the weights and the tokenizer are the model's own"
QUIET = {
    **dict.fromkeys(
        ("checkpointer.checkpoint_files", "checkpointer._component_", "checkpointer.model_type",
         "checkpointer.safe_serialization",
         "tokenizer.path", "tokenizer.merges_file", "tokenizer.vocab_path", "tokenizer.merges_path",
         "tokenizer.special_tokens_path"),
        WEIGHTS,
    ),
    "checkpointer.output_dir": "`output_dir` is where a bundle saves",
    **dict.fromkeys(
        ("checkpointer.recipe_checkpoint", "checkpointer.adapter_checkpoint"), "it is read by `resume_from_checkpoint`"
    ),
    "checkpointer.keep_last_n_checkpoints": "a checkpoint of each epoch is kept",
    "enable_async_checkpointing": "how a checkpoint is written, not what it holds",
    "custom_sharded_layers": "which layers are sharded apart, not what they compute",
    "memory_efficient_fsdp_wrap": "which layers are sharded apart, not what they compute",
    "fsdp.cpu_offload": "no recipe reads it",
    "ac_mode": "which layers are recomputed, not what they compute",
    "ac_option": "which layers are recomputed, not what they compute",
    "tensor_parallel_plan": "nothing is split",
    "loss.num_output_chunks": "how the loss is computed, not what it is",
    "loss.ignore_index": "padding is never in the loss",
    "log_peak_memory_stats": "reporting only",
    "log_level": "console only",
    "low_cpu_ram": "how weights are read, not what they are",
    "metric_logger.log_dir": "metrics are written beside the checkpoints",
    "metric_logger.filename": "metrics are written beside the checkpoints",
    "profiler": "a profile changes no number",
    "dataset.data_dir": "a folder of the repository",
}  # fmt: skip
IMPOSSIBLE = {
    "tensor_parallel_dim": "the language has no tensor parallelism",
    "resume_from_checkpoint": "a bundle takes up checkpoints of its own folder only",
    "cudnn_deterministic_mode": "the language has no such mode",
    "optimizer.amsgrad": "the language has no such optimizer",
    "optimizer.maximize": "the language has no such optimizer",
    "optimizer.nesterov": "the language has no such optimizer",
    "dataset.filter_fn": "the language has no such filter of rows",
    "dataset.image_tag": "the language trains on text",
    "metric_logger.group": "the language has no groups of runs",
    "metric_logger.entity": "WANDB_ENTITY says it at the launch",
    "ref_checkpointer": "the reference is the model itself",
}
REFUSED = {
    "policy_model": "the language has no ppo",
    "ppo_epochs": "the language has no ppo",
    "teacher_model": "the language has no distillation of a teacher's logits on written answers",
    "kd_loss": "the language has no distillation of a teacher's logits on written answers",
    "quantizer": "the language has no quantization-aware training",
}
"""Keys of recipes that the language will not have."""
NO_TRAINING = "it names no optimizer: a file of evaluation, generation or quantization, which trains nothing"
VISION = "the language trains models of text"

OPTIMIZERS = {
    "torch.optim.AdamW": ("adamw_torch", 1e-3, 0.01),
    "torch.optim.SGD": ("sgd", 1e-3, 0.0),
    "bitsandbytes.optim.AdamW": ("adamw_torch", 1e-3, 0.01),
    "bitsandbytes.optim.AdamW8bit": ("adamw8bit", 1e-3, 0.01),
    "bitsandbytes.optim.PagedAdamW": ("paged_adamw", 1e-3, 0.01),
    "bitsandbytes.optim.PagedAdamW8bit": ("paged_adamw8bit", 1e-3, 0.01),
}
"""The language's name of each optimizer, with the rate and the decay that the class has by itself."""
COSINE = ("torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
          "torchtune.modules.get_cosine_schedule_with_warmup")  # fmt: skip
LOSSES = ("CEWithChunkedOutputLoss", "LinearCrossEntropyLoss", "CrossEntropyLoss")
PAIRS = {"DPOLoss": "sigmoid", "RSOLoss": "hinge"}
LOGGERS = {"DiskLogger": "none", "StdoutLogger": "none", "WandBLogger": "wandb", "TensorBoardLogger": "tensorboard"}
PUBLISHERS = {
    "llama": "meta-llama", "code_llama": "meta-llama", "mistral": "mistralai", "gemma": "google", "phi": "microsoft",
    "qwen": "Qwen",
}  # fmt: skip
"""Who publishes the models of a folder of torchtune.models, by the beginning of its name."""
FOLDERS = r"(?:Meta-Llama|Llama|CodeLlama|Mistral|gemma|[Pp]hi|Qwen)-?[\w.\-]*"
"""Folders that `tune download PUBLISHER/NAME` writes by itself."""
FUSED = ("phi3", "phi4")
"""Folders of models whose published layers are qkv_proj and gate_up_proj."""


def at(entries: Entries, path: str) -> Entry | None:
    """The entry of `optimizer.lr`, or None."""
    head, *rest = path.split(".")
    one = entries.get(head)
    for name in rest:
        one = None if one is None else one.mapping.get(name)
    return one


def component(entry: Entry | None) -> str:
    """The name of the class or function that builds a part of the recipe."""
    said = None if entry is None else entry.mapping.get("_component_")
    return (text(said) if said is not None else None) or ""
