"""For each getter of `Spec`, the type of the paths that it can read.

Generated from the table of settings (schema.py) by `make docs`. Imported only for its types.
"""

from typing import Literal

FlagPath = Literal[
    "model.compile", "model.trust_remote_code", "model.pickle", "lora", "qlora", "oft", "vera", "loha", "miss",
    "lora.double_quant", "lora.rslora", "lora.dora", "freeze", "data.shuffle", "data.streaming", "data.unique",
    "data.chat", "method.precompute", "method.sync_reference", "method.mask_truncated", "method.log_completions",
    "method.vllm", "method.vllm.sleep", "method.assistant_only", "method.completion_only", "method.reference_free",
    "strategy.overlap_comm", "strategy.round_robin_gradients", "strategy.reduce_scatter",
    "strategy.contiguous_gradients", "strategy.reshard", "strategy.activation_checkpointing", "precision.tf32",
    "batch.packing", "batch.packing.eval", "batch.padding_free", "memory.liger", "memory.checkpointing",
    "memory.checkpointing.reentrant", "memory.checkpointing.selective", "memory.offload_activations",
    "eval.allow_code_execution", "save.hub", "save.hub.private", "save.hub.checkpoint_branches", "save.merge",
    "save.full_state", "launch.exclusive", "launch.requeue",
]  # fmt: skip
IntegerPath = Literal[
    "train.steps", "lora.rank", "lora.block_size", "lora.bits", "lora.init_iterations", "lora.init_rows",
    "freeze.except_last", "freeze.except_first", "data.seed", "data.workers", "data.shuffle_buffer", "data.min_tokens",
    "data.max_tokens", "data.max_pixels", "method.max_prompt", "method.sync_reference.every", "method.generations",
    "method.max_completion", "method.top_k", "method.iterations", "method.steps_per_generation",
    "method.vllm.tensor_parallel", "method.vllm.max_length", "method.vllm.port", "method.vllm.timeout",
    "method.tool_turns", "method.tool_timeout", "nodes", "strategy.allgather_bucket", "strategy.reduce_bucket",
    "strategy.shard", "strategy.context_parallel", "batch.gbs", "batch.micro", "batch.accum", "batch.seq",
    "optimizer.rank", "optimizer.update_proj_gap", "schedule.cycles", "schedule.timescale", "schedule.patience",
    "eval.micro", "eval.patience", "save.keep", "launch.nccl_timeout", "launch.retries", "launch.cpus",
    "launch.host_memory", "launch.time", "seed",
]  # fmt: skip
RealPath = Literal[
    "train.epochs", "lora.alpha", "lora.dropout", "lora.lr_ratio", "lora.embedding_lr", "method.beta",
    "method.sync_reference.mixup", "method.temperature", "method.top_p", "method.min_p", "method.repetition_penalty",
    "method.epsilon", "method.epsilon_high", "method.label_smoothing", "method.rpo", "method.desirable",
    "method.undesirable", "method.center", "method.delta", "method.lmbda", "method.margin", "method.likelihood",
    "optimizer.lr", "optimizer.eps", "optimizer.weight_decay", "optimizer.clip", "optimizer.scale",
    "optimizer.momentum", "optimizer.adamw_lr", "schedule.power", "schedule.factor",
]  # fmt: skip
TextPath = Literal[
    "model.attn", "model.eos", "model.pad", "model.dtype", "model.revision", "lora.within", "lora.init", "lora.from",
    "data.exhausted", "data.documents", "data.long", "data.format", "data.system_column", "data.prompt", "data.context",
    "method", "method.vllm.mode", "method.level", "method.scale_rewards", "method.teacher_dtype", "hardware",
    "strategy", "strategy.offload", "strategy.state_dict", "precision", "precision.nan", "precision.idle",
    "batch.packing.strategy", "batch.packing.isolate", "batch.mean", "optimizer", "optimizer.adjust_lr", "schedule",
    "schedule.decay_type", "eval.split", "save", "save.hub.name", "save.hub.strategy", "save.hub.revision",
    "save.resume", "track.name", "track.project", "launch", "launch.launcher", "launch.rendezvous", "launch.partition",
    "launch.account", "launch.qos", "launch.constraint", "launch.container", "launch.image", "launch.volume",
    "launch.secret", "launch.pull_secret", "target",
]  # fmt: skip
AmountPath = Literal[
    "data.holdout", "method.vllm.gpu_memory", "schedule.warmup", "schedule.min_lr", "schedule.max_lr",
    "schedule.warmup_lr", "schedule.decay", "eval.every", "save.every", "track.every",
]  # fmt: skip
RealsPath = Literal[
    "optimizer.betas",
]  # fmt: skip
NamesPath = Literal[
    "model.tokens", "lora.targets", "lora.parameters", "lora.modules_to_save", "freeze.layer_modules",
    "freeze.except_parameters", "freeze.except_modules", "data.user_roles", "data.assistant_roles", "data.system_roles",
    "data.tool_roles", "data.omit", "data.columns", "optimizer.targets", "eval.tasks", "track", "launch.env",
    "launch.mounts", "launch.extra_args", "launch.tolerations", "launch.node_selector",
]  # fmt: skip
WeightedPath = Literal[
    "method.loss", "method.rewards", "method.tools", "method.environment",
]  # fmt: skip
OtherPath = Literal[
    "model.chat_template", "model.rope", "model.config", "data.system", "data.prompt_template", "method.teacher",
    "eval.data", "launch.setup", "sweep",
]  # fmt: skip
Path = FlagPath | IntegerPath | RealPath | TextPath | AmountPath | RealsPath | NamesPath | WeightedPath | OtherPath
