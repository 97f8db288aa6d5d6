"""THE table: every setting of the language, once.

A row states path, kind, doc, default, choices, bounds, and the arguments of the trainer that it decides (`args`, named
as in the default target; `xpc.compiler.stacks` renames them for the others). The resolver, did-you-mean, the rules and
the lowering read this table; nothing about a setting is stated anywhere else. A default of `None` means that the value
is derived, taken from the target's table, or simply absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from xpc.compiler.language import kinds as k
from xpc.compiler.language.launch_settings import LAUNCH
from xpc.compiler.language.methods import DEFAULT, METHODS, readers
from xpc.compiler.language.optimizers import NAMES as OPTIMIZERS
from xpc.compiler.language.setting import ROLE_SETTINGS, Path
from xpc.compiler.language.setting import Setting as Setting
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

ADAPTERS: Final = ("lora", "qlora", "oft")
"""Clauses of adapters; their settings have one home, `lora`."""
OF_ONE_KIND = ("rank", "alpha", "block_size", "rslora", "dora", "parameters", "lr_ratio", "embedding_lr")
"""Settings that low-rank matrices and rotations do not share, or mean differently."""
REWARDS = (
    "accuracy", "format", "tag_count", "reasoning_steps", "length", "len", "cosine", "repetition_penalty",
    "code_format", "soft_overlong_punishment",
)  # fmt: skip
"""Reward functions that the runtime has by name: those of Open-R1 that execute no code."""
MATH = ("accuracy", "cosine", "len", "length")
"""Those that compare with a solution by math-verify."""
TEMPLATES = (
    "chatml", "qwen2.5", "qwen3", "llama3", "llama3.1", "gemma", "gemma3", "mistral", "phi3", "smollm2", "smollm3",
    "zephyr", "vicuna",
)  # fmt: skip
"""Chat templates that a bundle can have by name (compiler/registry/templates), with the answers marked for the loss."""
LATER = "reserved by the language; this version does not compile it"

MAX_PROCESSES = 1024
"""Most nodes, and most processes of a node, that a spec may ask for."""

SPREADS = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp1": 3, "hsdp": 3}
"""The strategies, by what they spread: 1 the optimizer's states, 2 the gradients too, 3 the weights too."""
FSDP = ("fsdp", "fsdp1", "hsdp")
"""Those of PyTorch's FSDP."""
OLD_STRATEGIES: Mapping[str, tuple[str, Mapping[Path, object]]] = {
    "full_shard": ("fsdp", {"strategy.reshard": True}),
    "shard_grad_op": ("fsdp", {"strategy.reshard": False}),
    "no_shard": ("ddp", {}),
    "hybrid_shard": ("hsdp", {"strategy.reshard": True}),
    "hybrid_shard_zero2": ("hsdp", {"strategy.reshard": False}),
}
"""FSDP1's sharding strategies: the strategy and settings that mean the same today."""


def _of_methods(path: Path, kind: k.Kind, doc: str, **more: Any) -> Setting:
    """A setting that only the methods read whose records name it."""
    return Setting(path, kind, doc, methods=readers(path), **more)


TABLE: tuple[Setting, ...] = (
    # the header
    Setting("train.epochs", k.REAL, "passes over the data", low=0, args=("num_train_epochs",), inner=True),
    Setting("train.steps", k.INT, "optimizer steps in all", low=1, high=10**12, args=("max_steps",), inner=True),
    # model
    Setting("model.attn", k.CHOICE, "attention implementation",
            choices=("flash2", "flash3", "sdpa", "eager", "flex")),
    Setting("model.compile", k.FLAG, "compile each layer by `torch.compile` (regional compilation)", default=False),
    Setting("model.chat_template", k.TEMPLATE, "chat template that replaces the tokenizer's own: a built-in one by its "
            "name, or a Jinja file", choices=TEMPLATES, bare=False),
    Setting("model.eos", k.TEXT, "end-of-turn token; must be in the vocabulary", args=("eos_token",)),
    Setting("model.pad", k.TEXT, "padding token; must be in the vocabulary", args=("pad_token",)),
    Setting("model.tokens", k.NAMES, "tokens that are added to the vocabulary", inner=True),
    Setting("model.dtype", k.CHOICE, "dtype that the weights are loaded in", default="fp32",
            choices=("fp32", "bf16", "fp16"), bare=False, args=("dtype",)),
    Setting("model.rope", k.TEXT, "RoPE scaling", pending=LATER),
    Setting("model.trust_remote_code", k.FLAG, "run code that comes with the model; needs a pinned revision",
            default=False, args=("trust_remote_code",)),
    Setting("model.pickle", k.FLAG, "read pickled weights where there are no safetensors; of the hub, of a commit",
            default=False, inner=True),
    Setting("model.revision", k.NAME, "branch, tag or commit of the model", inner=True, args=("model_revision",)),
    Setting("model.config", k.FILE, "a config.json that gives the architecture of an unregistered model"),
    # adapters
    Setting("lora", k.FLAG, "train low-rank adapters; the model's own weights are frozen", head=True),
    Setting("qlora", k.FLAG, "train low-rank adapters over a 4-bit base", head=True),
    Setting("oft", k.FLAG, "train rotations of the inputs of layers (OFT); the model's own weights are frozen",
            head=True),
    Setting("lora.rank", k.INT, "rank of the adapters; of oft, the number of blocks in a layer, instead of "
            "`block_size`", low=1,
            high=2**16, inner=True),
    Setting("lora.block_size", k.INT, "inputs of a layer that are rotated together (oft)",
            low=2, high=2**16, inner=True),
    Setting("lora.alpha", k.REAL, "scale of the adapters: alpha / rank", low=0, inner=True),
    Setting("lora.dropout", k.REAL, "dropout before the adapters", low=0, high=1, inner=True),
    Setting("lora.targets", k.TARGETS, "modules that get an adapter", inner=True),
    Setting("lora.within", k.NAME, "module of the model in which alone `targets` get an adapter: language_model",
            inner=True),
    Setting("lora.bits", k.INT, "bits of the frozen base: 4 or 8", inner=True),
    Setting("lora.double_quant", k.FLAG, "also quantize the scales of a 4-bit base", inner=True),
    Setting("lora.rslora", k.FLAG, "scale the adapters by alpha over the square root of the rank", inner=True),
    Setting("lora.dora", k.FLAG, "also train the lengths of the weights' columns (DoRA)", inner=True),
    Setting("lora.parameters", k.NAMES, "stacks of experts that get an adapter (lora)", inner=True),
    Setting("lora.modules_to_save", k.NAMES, "modules that are trained in full and saved with the adapter", inner=True),
    Setting("lora.lr_ratio", k.REAL, "learning rate of the B matrices, as a multiple of the others' (LoRA+)",
            low=0, inner=True),
    Setting("lora.from", k.PATH, "folder of an adapter whose training continues: its weights are what this run begins "
            "with, and its rank, alpha and targets hold", inner=True),
    Setting("lora.embedding_lr", k.REAL, "learning rate of adapters on embeddings (LoRA+)", low=0, inner=True),
    Setting("freeze", k.FLAG, "train some of the weights; the others are frozen", head=True),
    Setting("freeze.except_last", k.INT, "layers at the end that are trained", low=1, high=10**4, inner=True),
    Setting("freeze.except_first", k.INT, "layers at the beginning that are trained", low=1, high=10**4, inner=True),
    Setting("freeze.layer_modules", k.NAMES, "modules of these layers that are trained; unset, all", inner=True),
    Setting("freeze.except_parameters", k.NAMES, "patterns of the names of parameters that are trained", inner=True),
    Setting("freeze.except_modules", k.NAMES, "modules outside the layers that are trained", inner=True),
    # data
    Setting("data.seed", k.INT, "seed of the mixture's shuffles and of the holdout", low=0, inner=True),
    Setting("data.workers", k.INT, "processes that map and tokenize", inner=True, args=("dataset_num_proc",),
            low=1, high=4096),
    Setting("data.holdout", k.ROWS_OR_SHARE, "rows kept out of training for evaluation", low=0),
    Setting("data.shuffle", k.FLAG, "shuffle the training rows", default=True),
    Setting("data.unique", k.FLAG, "leave out rows that are the same as an earlier one", inner=True),
    _of_methods("data.min_tokens", k.TOKENS, "leave out rows that have fewer tokens", low=1, inner=True),
    _of_methods("data.max_tokens", k.TOKENS, "leave out rows that have more tokens, instead of cutting them at `seq`",
                low=1, high=2**31, inner=True),
    Setting("data.format", k.CHOICE, "shape of the rows", bare=False, inner=True,
            choices=("messages", "conversations", "prompt_completion", "alpaca", "text", "preference", "unpaired",
                     "prompt")),
    Setting("data.system", k.TEXT_OR_FILE, "system prompt put before conversations that have none", inner=True),
    Setting("data.system_column", k.NAME, "column of each row's system prompt, instead of `system`", inner=True),
    Setting("data.prompt_template", k.TEXT_OR_FILE, "Jinja template that makes a row's prompt of its columns, each in "
            "two braces", inner=True),
    *ROLE_SETTINGS,
    Setting("data.columns", k.NAMES, "the rows' columns in the shape's order, in every source that has none of its own",
            inner=True),
    Setting("data.prompt", k.NAME, "column that holds the prompt, in every source that has no `columns`", inner=True),
    Setting("data.context", k.NAME, "column whose text follows the prompt after an empty line, where it has any",
            inner=True),
    _of_methods("data.chat", k.FLAG, "columns of text become turns of a conversation: the prompt the user's, the "
                "answer the assistant's", default=False, inner=True),
    # method
    Setting("method", k.CHOICE, "what is trained for", default=DEFAULT, head=True,
            choices=tuple(METHODS)),
    _of_methods("method.loss", k.WEIGHTED, "loss of the method, or a weighted list of them (dpo)",
            args=("loss_type", "loss_weights")),
    _of_methods("method.beta", k.REAL, "strength of the reference (dpo, kto, grpo, rloo), weight of the odds ratio "
            "(orpo), or which divergence (distill): 0 forward KL, 1 reverse KL, between them Jensen-Shannon", low=0,
                args=("beta",)),
    _of_methods("method.max_prompt", k.TOKENS, "longest prompt, in tokens; trl-1.16 leaves out rows with a longer one",
            low=1, high=2**31, args=("max_prompt_length",)),
    _of_methods("method.precompute", k.FLAG, "compute the reference's log-probabilities once, before training",
            args=("precompute_ref_log_probs",), inner=True),
    _of_methods("method.sync_reference", k.FLAG, "move the reference towards the model while training",
            args=("sync_ref_model",)),
    _of_methods("method.sync_reference.every", k.INT, "steps between two moves", low=1,
                args=("ref_model_sync_steps",), inner=True),
    _of_methods("method.sync_reference.mixup", k.REAL, "share of the model in the new reference", low=0, high=1,
            args=("ref_model_mixup_alpha",), inner=True),
    _of_methods("method.generations", k.INT, "completions for each prompt", low=2, high=10**6,
                args=("num_generations",)),
    _of_methods("method.max_completion", k.TOKENS, "longest completion, in tokens", low=1, high=2**31,
            args=("max_completion_length", "max_new_tokens")),
    _of_methods("method.temperature", k.REAL, "temperature of sampling; of distill also of the loss", low=0,
                args=("temperature",)),
    _of_methods("method.top_p", k.REAL, "nucleus sampling: sample from the likeliest tokens that have this share of "
            "the probability", low=0, high=1,
                args=("top_p",)),
    _of_methods("method.top_k", k.INT, "number of likeliest tokens that are sampled from; 0 means all",
            low=0, args=("top_k",)),
    _of_methods("method.min_p", k.REAL, "least probability of a sampled token, relative to the likeliest one",
            low=0, high=1,
            args=("min_p",)),
    _of_methods("method.repetition_penalty", k.REAL, "penalty on tokens that occurred before; 1 is none", low=0,
            args=("repetition_penalty",)),
    _of_methods("method.iterations", k.INT, "optimizer passes over one set of completions", low=1,
            args=("num_iterations",), inner=True),
    _of_methods("method.steps_per_generation", k.INT, "micro-batches that one round of generation fills; unset, "
            "the accumulation", low=1, args=("steps_per_generation",), inner=True),
    _of_methods("method.epsilon", k.REAL, "clipping range of the probability ratio", low=0, args=("epsilon",),
                inner=True),
    _of_methods("method.epsilon_high", k.REAL, "upper clipping range, where it differs", low=0,
                args=("epsilon_high",), inner=True),
    _of_methods("method.mask_truncated", k.FLAG, "no loss on completions that did not end",
            args=("mask_truncated_completions",), inner=True),
    _of_methods("method.log_completions", k.FLAG, "log some prompts with their completions and rewards",
            args=("log_completions",), inner=True),
    _of_methods("method.rewards", k.WEIGHTED, "reward functions: registered names and functions of files",
            args=("reward_weights",)),
    _of_methods("method.vllm", k.FLAG, "generation by vLLM instead of transformers", args=("use_vllm",)),
    _of_methods("method.vllm.mode", k.CHOICE, "vLLM inside the training processes, or a server beside them",
            choices=("colocate", "server"), bare=False, inner=True, args=("vllm_mode",)),
    _of_methods("method.vllm.gpu_memory", k.SHARE, "share of each GPU that a colocated vLLM takes", inner=True,
            args=("vllm_gpu_memory_utilization",)),
    _of_methods("method.vllm.tensor_parallel", k.INT, "GPUs that share one colocated vLLM", low=1, inner=True,
            args=("vllm_tensor_parallel_size",)),
    _of_methods("method.vllm.max_length", k.TOKENS, "context of vLLM: prompt and completion", low=1, inner=True,
            args=("vllm_max_model_length",)),
    _of_methods("method.vllm.sleep", k.FLAG, "vLLM frees its memory during the optimizer step", inner=True,
            args=("vllm_enable_sleep_mode",)),
    _of_methods("method.vllm.port", k.INT, "port of the server; its host is given at the launch by XPC_VLLM_HOST",
            low=1,
            high=65535, inner=True, args=("vllm_server_port",)),
    _of_methods("method.vllm.timeout", k.DURATION, "longest wait for the server", inner=True,
            args=("vllm_server_timeout",)),
    *(row for method in METHODS.values() for row in method.settings),
    # hardware
    Setting("hardware", k.HARDWARE, "GPUs of one node, or CPU processes", head=True),
    Setting("nodes", k.INT, "number of machines", default=1, head=True, low=1, high=MAX_PROCESSES),
    # strategy
    Setting("strategy", k.CHOICE, "how model states are spread over processes", head=True,
            choices=(*SPREADS, *OLD_STRATEGIES)),
    Setting("strategy.offload", k.CHOICE, "what is kept in host memory", default="none",
            choices=("none", "optimizer", "cpu"), bare=False, alone="cpu"),
    Setting("strategy.overlap_comm", k.FLAG, "overlap gradient reduction with the backward pass"),
    Setting("strategy.allgather_bucket", k.INT, "elements gathered at once (ZeRO)", low=1),
    Setting("strategy.reduce_bucket", k.INT, "elements reduced at once (ZeRO)", low=1),
    Setting("strategy.round_robin_gradients", k.FLAG, "spread gradient copies over ranks (ZeRO 1 and 2)"),
    Setting("strategy.reduce_scatter", k.FLAG, "reduce-scatter gradients instead of all-reduce (ZeRO)"),
    Setting("strategy.contiguous_gradients", k.FLAG, "copy gradients to one buffer (ZeRO)"),
    Setting("strategy.reshard", k.FLAG, "free gathered parameters after the forward pass (FSDP)"),
    Setting("strategy.shard", k.INT, "ranks that share one copy of the model (hsdp)", low=1),
    Setting("strategy.state_dict", k.CHOICE, "form of checkpoints (FSDP)", choices=("full", "sharded"), bare=False),
    Setting("strategy.context_parallel", k.INT, "processes that share one sequence (FSDP2, ZeRO)", low=1,
            high=MAX_PROCESSES),
    Setting("strategy.activation_checkpointing", k.FLAG, "never legal; use `memory { checkpointing }`"),
    # precision
    Setting("precision", k.CHOICE, "dtype of the computation", head=True, choices=("bf16", "fp16", "fp32", "fp8"),
            args=("bf16", "fp16")),
    Setting("precision.tf32", k.FLAG, "TensorFloat-32 for fp32 matrix products", default=False, args=("tf32",)),
    Setting("precision.nan", k.CHOICE, "what happens if the loss is nan or infinite: stop the run at that step, or "
            "go on",
            default="stop", choices=("stop", "allow"), bare=False),
    # batch
    Setting("batch.gbs", k.INT, "global batch: sequences in one optimizer step", low=1, high=10**9),
    Setting("batch.micro", k.INT, "micro-batch: sequences in one forward pass of one process",
            args=("per_device_train_batch_size",), low=1, high=10**9),
    Setting("batch.accum", k.INT, "forward passes in one optimizer step", args=("gradient_accumulation_steps",),
            low=1, high=10**9),
    _of_methods("batch.seq", k.TOKENS, "longest sequence, in tokens", default=1024, args=("max_length",),
            low=1, high=2**31),
    _of_methods("batch.packing", k.FLAG, "several documents in one sequence", default=False, args=("packing",)),
    _of_methods("batch.packing.strategy", k.CHOICE, "how documents are put together", inner=True,
            choices=("bfd", "bfd_split", "wrapped", "ffd"), bare=False, args=("packing_strategy",)),
    _of_methods("batch.packing.isolate", k.CHOICE, "what keeps documents apart", inner=True,
            choices=("flash", "mask"), bare=False),
    _of_methods("batch.packing.eval", k.FLAG, "pack evaluation rows too", inner=True, args=("eval_packing",)),
    _of_methods("batch.padding_free", k.FLAG, "flatten the micro-batch instead of padding it", default=False,
            args=("padding_free",)),
    Setting("batch.mean", k.CHOICE, "which tokens a step's loss is averaged over", bare=False,
            choices=("global_tokens", "local_tokens"), args=("average_tokens_across_devices",)),
    # optimizer and schedule
    Setting("optimizer", k.CHOICE, "optimizer", default="adamw", head=True, choices=OPTIMIZERS, args=("optim",)),
    Setting("optimizer.lr", k.REAL, "peak learning rate", default=2e-5, low=0, high=1, args=("learning_rate",)),
    Setting("optimizer.betas", k.REALS, "decay rates of Adam's moments", default=(0.9, 0.999),
            args=("adam_beta1", "adam_beta2")),
    Setting("optimizer.eps", k.REAL, "Adam's epsilon", default=1e-8, low=0, args=("adam_epsilon",)),
    Setting("optimizer.weight_decay", k.REAL, "decoupled weight decay", default=0.0, low=0, args=("weight_decay",)),
    Setting("optimizer.clip", k.REAL, "largest gradient norm; 0 turns clipping off", default=1.0, low=0,
            args=("max_grad_norm",)),
    Setting("optimizer.targets", k.TARGETS, "linear modules whose gradients are projected (galore, apollo)",
            args=("optim_target_modules",), inner=True),
    Setting("optimizer.rank", k.INT, "rank of the projection (galore, apollo)", low=1, high=2**16, inner=True),
    Setting("optimizer.scale", k.REAL, "scale of the projected update (galore, apollo)", low=0, inner=True),
    Setting("optimizer.update_proj_gap", k.INT, "steps between two projections (galore, apollo)", low=1, inner=True),
    Setting("optimizer.momentum", k.REAL, "momentum (sgd, rmsprop)", low=0, high=1, inner=True),
    Setting("schedule", k.CHOICE, "shape of the learning rate", default="linear", head=True,
            choices=("linear", "cosine", "constant", "wsd", "polynomial", "inverse_sqrt", "cosine_with_restarts",
                     "reduce_lr_on_plateau", "greedy"), args=("lr_scheduler_type",)),
    Setting("schedule.warmup", k.STEPS_OR_SHARE, "linear warm-up", default=k.Amount("count", 0), low=0,
            args=("warmup_steps", "warmup_ratio")),
    Setting("schedule.min_lr", k.REAL_OR_SHARE, "learning rate at the end (cosine, wsd, polynomial), or the lowest "
            "(reduce_lr_on_plateau, greedy)", low=0, args=("lr_scheduler_kwargs",)),
    Setting("schedule.max_lr", k.REAL_OR_SHARE, "highest learning rate (greedy); unset, the peak", low=0, inner=True),
    Setting("schedule.warmup_lr", k.REAL_OR_SHARE, "learning rate at the start of the warm-up (cosine with `min_lr`)",
            low=0, inner=True),
    Setting("schedule.decay", k.STEPS_OR_SHARE, "length of the final decay (wsd)", low=0),
    Setting("schedule.decay_type", k.CHOICE, "shape of the final decay (wsd)", choices=("cosine", "linear", "sqrt"),
            bare=False, inner=True),
    Setting("schedule.cycles", k.INT, "number of times the rate restarts (cosine_with_restarts)", low=1, high=10**6,
            inner=True),
    Setting("schedule.power", k.REAL, "power of the decay (polynomial)", low=0, inner=True),
    Setting("schedule.timescale", k.INT, "steps in which the rate falls by the square root of two (inverse_sqrt)",
            low=1, inner=True),
    Setting("schedule.factor", k.REAL, "what the rate is multiplied by (reduce_lr_on_plateau, greedy)", low=0, high=1,
            inner=True),
    Setting("schedule.patience", k.INT, "evaluations without progress before the rate changes (reduce_lr_on_plateau, "
            "greedy)", low=0, inner=True),
    # memory
    Setting("memory.liger", k.FLAG, "Liger's fused Triton kernels", default=False, args=("use_liger_kernel",)),
    Setting("memory.checkpointing", k.FLAG, "recompute activations in the backward pass", default=True,
            args=("activation_checkpointing", "gradient_checkpointing")),
    Setting("memory.checkpointing.reentrant", k.FLAG, "use torch's older, reentrant implementation",
            default=False, inner=True,
            args=("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs")),
    _of_methods("memory.checkpointing.selective", k.FLAG, "keep what attention computed, and recompute the rest",
                default=False, inner=True),
    _of_methods("memory.offload_activations", k.FLAG, "keep activations in host memory", default=False,
            args=("activation_offloading",)),
    # eval, save, track
    Setting("eval.every", k.EVERY, "how often to evaluate", default=k.NEVER, inner=True,
            args=("eval_strategy", "eval_steps")),
    Setting("eval.micro", k.INT, "micro-batch of evaluation", inner=True, args=("per_device_eval_batch_size",),
            low=1, high=10**9),
    Setting("eval.split", k.NAME, "split of the data to evaluate on", inner=True),
    Setting("eval.data", k.SOURCES, "rows of their own to evaluate on: a file, a dataset or a `data` block; a list is "
            "several sets, each with metrics of its own", inner=True),
    Setting("eval.patience", k.INT, "end the run after so many evaluations in a row without a better value; unset, "
            "it goes on", low=1, high=10**6, inner=True),
    Setting("eval.tasks", k.TASKS, "tasks of lm-evaluation-harness, for evaluate.sh: its names, or task files of "
            "your own",
            inner=True),
    Setting("eval.allow_code_execution", k.FLAG, "let tasks execute the code that the model writes, without a sandbox",
            inner=True),
    Setting("save", k.PATH, "where checkpoints, metrics and the final model go", head=True, args=("output_dir",)),
    Setting("save.every", k.EVERY, "how often to save a checkpoint", default=k.EPOCH, inner=True,
            args=("save_strategy", "save_steps")),
    Setting("save.keep", k.INT, "newest checkpoints that are kept; where a metric says which is the best, that one "
            "stays, too", inner=True, args=("save_total_limit",), low=1),
    Setting("save.hub", k.FLAG, "push to the hub: `hub`, or `hub = me/model`", default=False,
            args=("push_to_hub",)),
    Setting("save.hub.name", k.REPOSITORY, "repository that is pushed to; unset, the last part of `save`", inner=True,
            args=("hub_model_id",)),
    Setting("save.hub.private", k.FLAG, "make the repository private; unset, your account or organization decides",
            inner=True, args=("hub_private_repo",)),
    Setting("save.hub.strategy", k.CHOICE, "what is pushed: the model at every save, at the end alone, or with the "
            "newest checkpoint or all of them, optimizer and all",
            choices=("every_save", "end", "checkpoint", "all_checkpoints"), bare=False, inner=True,
            args=("hub_strategy",)),
    Setting("save.hub.revision", k.NAME, "branch that is pushed to; unset, main", inner=True, args=("hub_revision",)),
    Setting("save.hub.checkpoint_branches", k.FLAG, "also push each checkpoint to a branch of its own: "
            "`main-step-000000100`", inner=True),
    Setting("save.merge", k.FLAG, "also save the model with the adapters merged into it, in the folder `merged`",
            default=False, inner=True),
    Setting("save.full_state", k.FLAG, "keep optimizer, scheduler and RNG states in checkpoints", default=True,
            inner=True, args=("save_only_model",)),
    Setting("save.resume", k.CHOICE, "whether to resume from the checkpoints in the output folder",
            default="auto", inner=True,
            choices=("auto", "never"), bare=False, args=("resume_from_checkpoint",)),
    Setting("track", k.CHOICES, "experiment trackers", default=("none",), head=True,
            choices=("wandb", "trackio", "tensorboard", "none"), args=("report_to",)),
    Setting("track.name", k.TEXT, "name of the run", inner=True, args=("run_name",)),
    Setting("track.project", k.TEXT, "project of the tracker", inner=True, args=("project",)),
    Setting("track.every", k.EVERY, "how often to log", default=k.Amount("count", 10), inner=True,
            args=("logging_steps", "logging_strategy")),
    *LAUNCH,
    Setting("seed", k.INT, "seed of weights, dropout and data order", default=42, low=0, high=2**32 - 1, head=True,
            args=("seed",)),
    Setting("target", k.NAME, "stack that the bundle is written for", head=True),
    Setting("sweep", k.BLOCK, "several runs from one spec: lists of values, and `zip { }`", head=True),
)  # fmt: skip

CHOICE_PENDING = {
    ("precision", "fp8"): LATER,
}
"""Choices that the language reserves and this version does not compile."""

BY_PATH: Mapping[str, Setting] = {row.path: row for row in TABLE}
CLAUSES = (*dict.fromkeys(row.path.partition(".")[0] for row in TABLE), "extra")
EXTRA_TARGETS = ("trl", "accelerate", "deepspeed")
SOURCE_SETTINGS = {
    "chat": evolve(BY_PATH["data.chat"], inner=False),
    "columns": Setting("data.columns", k.NAMES, "columns that are read"),
    "context": Setting("data.context", k.NAME, "column whose text follows the prompt"),
    "format": evolve(BY_PATH["data.format"], inner=False),
    "limit": Setting("data.limit", k.INT, "most rows that are read, from the beginning", low=1),  # type: ignore[arg-type]
    "take": Setting("data.take", k.ROWS_OR_SHARE, "rows that are used", low=0),  # type: ignore[arg-type]
}
"""What a row of a `data` block may say about its source."""
OF_A_BLOCK = ("data.format", "data.prompt", "data.context", "data.columns")
"""What a `data` block that is evaluated on may say beside its sources."""


def path_of(text: str) -> Path:
    """A path that was put together, `f"method.{name}"`. Raises KeyError where it is no setting."""
    return BY_PATH[text].path


def children(clause: str) -> Iterator[Setting]:
    """The settings that stand directly in a clause or flag: `batch`, `batch.packing`."""
    prefix = clause + "."
    for row in TABLE:
        if row.path.startswith(prefix) and "." not in row.path[len(prefix) :]:
            yield row


@cache
def outer_names() -> Mapping[str, str]:
    """Names that stand for one setting anywhere (`gbs`, `liger`), to its path."""
    return {row.name: row.path for row in TABLE if not row.inner}


@cache
def bare_choices() -> Mapping[str, str]:
    """Choice names that stand for their setting anywhere (`zero2`, `bf16`), to its path."""
    return {name: row.path for row in TABLE if row.choices and row.bare for name in row.choices if name != "none"}


def owner_of(argument: str) -> Setting | None:
    """The setting that decides a trainer argument: the lowering column read backwards."""
    return next((row for row in TABLE if argument in row.args), None)
