"""The table of settings, in which every setting of the language appears once.

A `Setting` states its path, kind, documentation, default, choices, bounds, and the trainer arguments that it decides.
These arguments (`args`) have the names of the default stack; `xpc.compiler.stacks` renames them for other stacks. A
default of `None` means that the table has no default: the value is derived, comes from the stack's table, or is absent.

The resolver, the suggestions, the rules and the lowering all read this table, and no other table repeats its facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from xpc.compiler.language import kinds as k
from xpc.compiler.language.launch_settings import LAUNCH
from xpc.compiler.language.methods import DEFAULT, METHODS, readers
from xpc.compiler.language.model_choices import ROPE, TEMPLATES
from xpc.compiler.language.optimizer_settings import OPTIMIZER
from xpc.compiler.language.setting import ROLE_SETTINGS, Path
from xpc.compiler.language.setting import Setting as Setting
from xpc.compiler.language.strategies import OLD_STRATEGIES, SPREADS
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

ADAPTERS: Final = ("lora", "qlora", "oft", "vera", "loha", "miss")
"""The clauses for adapters. The paths of all their settings begin with `lora.`: `rank` in `oft` is `lora.rank`."""
OF_ONE_KIND = (
    "rank", "alpha", "block_size", "rslora", "dora", "init", "init_iterations", "init_rows", "parameters", "lr_ratio",
    "embedding_lr",
)  # fmt: skip
"""Settings whose meaning depends on the kind of adapter. A spec does not inherit them from its base (`extends`) if the
two have different kinds of adapters.
"""
OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "oft": ("rank", "block_size"), "vera": ("rank",), "loha": ("rank", "alpha"), "miss": ("rank",),
}  # fmt: skip
"""Maps a kind of adapter to the settings in `OF_ONE_KIND` that it has. The kinds `lora` and `qlora` are not in this
table: they have all of these settings except `block_size`.
"""
MAX_PROCESSES = 1024
"""The largest number of nodes of a spec, and also the largest number of processes on a node."""


def _of_methods(path: Path, kind: k.Kind, doc: str, **more: Any) -> Setting:
    """Make a setting that not all methods read. A method reads it if its path is in `Method.reads`."""
    return Setting(path, kind, doc, methods=readers(path), **more)


TABLE: tuple[Setting, ...] = (
    # settings of the line `train`, such as `for 3 epochs`
    Setting("train.epochs", k.REAL, "passes over the data", low=0, args=("num_train_epochs",), inner=True),
    Setting("train.steps", k.INT, "number of optimizer steps", low=1, high=10**12, args=("max_steps",), inner=True),
    # model
    Setting("model.attn", k.CHOICE, "attention implementation",
            choices=("flash2", "flash3", "sdpa", "eager", "flex")),
    Setting("model.compile", k.FLAG, "compile each layer by `torch.compile` (regional compilation)", default=False),
    Setting("model.chat_template", k.TEMPLATE, "chat template that replaces the tokenizer's own: a built-in one by its "
            "name, or a Jinja file; arguments in parentheses apply unless a row's `chat_template_kwargs` set them",
            choices=TEMPLATES, bare=False),
    Setting("model.eos", k.TEXT, "end-of-turn token; must be in the vocabulary", args=("eos_token",)),
    Setting("model.pad", k.TEXT, "padding token; must be in the vocabulary", args=("pad_token",)),
    Setting("model.tokens", k.NAMES, "tokens to add to the vocabulary", inner=True),
    Setting("model.dtype", k.CHOICE, "dtype of the loaded weights", default="fp32",
            choices=("fp32", "bf16", "fp16"), bare=False, args=("dtype",)),
    Setting("model.rope", k.ROPE, "scaling of rotary positions, for a context `factor` times as long; the saved "
            "config.json contains the scaling", choices=tuple(ROPE), bare=False),
    Setting("model.trust_remote_code", k.FLAG, "run code from the model's repository; needs a pinned revision",
            default=False, args=("trust_remote_code",)),
    Setting("model.pickle", k.FLAG, "read pickled weights if there are no safetensors; a hub model needs a pinned "
            "commit", default=False, inner=True),
    Setting("model.revision", k.NAME, "branch, tag or commit of the model", inner=True, args=("model_revision",)),
    Setting("model.config", k.FILE, "config.json that describes the architecture of a model outside of the registry"),
    # adapters
    Setting("lora", k.FLAG, "train low-rank adapters; the model's own weights are frozen", head=True),
    Setting("qlora", k.FLAG, "train low-rank adapters over a 4-bit base", head=True),
    Setting("oft", k.FLAG, "train rotations of the inputs of layers (OFT); the model's own weights are frozen",
            head=True),
    Setting("vera", k.FLAG, "train two vectors for each layer, which scale random matrices that all layers share "
            "(VeRA); the model's own weights are frozen", head=True),
    Setting("loha", k.FLAG, "train element-wise products of two low-rank matrices (LoHa); the model's own weights are "
            "frozen", head=True),
    Setting("miss", k.FLAG, "train one matrix for each layer, shared by blocks of its inputs (MiSS); the model's own "
            "weights are frozen", head=True),
    Setting("lora.rank", k.INT, "rank of the adapters; number of blocks in a layer, instead of `block_size` (oft); "
            "number of a layer's inputs in a block (miss)", low=1,
            high=2**16, inner=True),
    Setting("lora.block_size", k.INT, "number of a layer's inputs that are rotated together (oft)",
            low=2, high=2**16, inner=True),
    Setting("lora.alpha", k.REAL, "the adapters are scaled by alpha / rank", low=0, inner=True),
    Setting("lora.dropout", k.REAL, "dropout of the adapters' inputs", low=0, high=1, inner=True),
    Setting("lora.targets", k.TARGETS, "modules that get an adapter", inner=True),
    Setting("lora.within", k.NAME, "a module such as `language_model`: only modules inside of it get an adapter",
            inner=True),
    Setting("lora.bits", k.INT, "bits of the frozen base: 4 or 8", inner=True),
    Setting("lora.double_quant", k.FLAG, "also quantize the scales of a 4-bit base", inner=True),
    Setting("lora.rslora", k.FLAG, "scale the adapters by alpha over the square root of the rank", inner=True),
    Setting("lora.dora", k.FLAG, "also train the magnitudes of the weights' columns (DoRA)", inner=True),
    Setting("lora.init", k.CHOICE, "initial weights of the adapters: a part of the adapted layer's weights (pissa, "
            "olora), what rounding them to 4 bits loses (loftq), the main directions of its inputs (eva), or random "
            "numbers (gaussian)",
            choices=("pissa", "olora", "loftq", "eva", "gaussian"), bare=False, inner=True),
    Setting("lora.init_iterations", k.INT, "compute PiSSA's decomposition approximately, with this many iterations, "
            "which is faster", low=1, high=1000, inner=True, example="16"),
    Setting("lora.init_rows", k.INT, "number of first training rows that EVA reads; default 256", low=1,
            high=10**6, inner=True, example="256"),
    Setting("lora.parameters", k.NAMES, "stacked weights of experts that get an adapter (lora)", inner=True),
    Setting("lora.modules_to_save", k.NAMES, "modules that are trained in full and saved with the adapter", inner=True),
    Setting("lora.lr_ratio", k.REAL, "learning rate of the B matrices, as a multiple of `lr` (LoRA+)",
            low=0, inner=True),
    Setting("lora.from", k.PATH, "folder of an adapter to continue training: the run starts from its weights, with its "
            "rank, alpha and targets", inner=True),
    Setting("lora.embedding_lr", k.REAL, "learning rate of adapters on embeddings (LoRA+)", low=0, inner=True),
    Setting("freeze", k.FLAG, "train some of the weights; the others are frozen", head=True),
    Setting("freeze.except_last", k.INT, "number of last layers to train", low=1, high=10**4, inner=True),
    Setting("freeze.except_first", k.INT, "number of first layers to train", low=1, high=10**4, inner=True),
    Setting("freeze.layer_modules", k.NAMES, "modules to train in the layers that `except_first` and `except_last` "
            "select; default all", inner=True),
    Setting("freeze.except_parameters", k.NAMES, "regular expressions for names of parameters to train", inner=True),
    Setting("freeze.except_modules", k.NAMES, "modules to train outside of the layers, such as `lm_head`", inner=True),
    # data
    Setting("data.seed", k.INT, "seed that shuffles the mixture and selects the holdout", low=0, inner=True),
    Setting("data.workers", k.INT, "number of processes that convert and tokenize the rows", inner=True,
            args=("dataset_num_proc",), low=1, high=4096),
    Setting("data.holdout", k.ROWS_OR_SHARE, "rows kept out of training for evaluation", low=0),
    Setting("data.exhausted", k.CHOICE, "in a mixture with shares: stop when a source has no more rows, or repeat its "
            "rows until every source is used up; default stop", choices=("stop", "repeat"), bare=False, inner=True),
    Setting("data.documents", k.CHOICE, "what a row of a .txt file is: a line, a paragraph between empty lines, or the "
            "whole file; default line", choices=("line", "paragraph", "file"), bare=False, inner=True),
    Setting("data.long", k.CHOICE, "texts with more tokens than `seq`: cut there, or split into several rows; default "
            "cut", choices=("cut", "chunk"), bare=False, inner=True),
    Setting("data.shuffle", k.FLAG, "shuffle the training rows", default=True),
    _of_methods("data.streaming", k.FLAG, "read the rows during training instead of before it; needs the number of "
                "steps, `for 1000 steps`", inner=True),
    _of_methods("data.shuffle_buffer", k.INT, "rows in the shuffle buffer of a stream; default 10000", low=2,
                high=10**7, inner=True),
    Setting("data.unique", k.FLAG, "drop rows that are equal to an earlier row", inner=True),
    _of_methods("data.min_tokens", k.TOKENS, "drop rows with fewer tokens", low=1, inner=True),
    _of_methods("data.max_tokens", k.TOKENS, "drop rows with more tokens, instead of cutting them at `seq`",
                low=1, high=2**31, inner=True),
    _of_methods("data.max_pixels", k.INT, "largest number of pixels of an image; larger images are scaled down; "
                "default: the limit of the model's processor", low=3136, high=2**26, inner=True,
                example="602112"),
    Setting("data.format", k.CHOICE, "shape of the rows", bare=False, inner=True,
            choices=("messages", "conversations", "prompt_completion", "alpaca", "text", "tokens", "images",
                     "preference", "image_preference", "unpaired", "prompt")),
    Setting("data.system", k.TEXT_OR_FILE, "system prompt for conversations without one", inner=True),
    Setting("data.system_column", k.NAME, "column with the system prompt of each row, instead of `system`", inner=True),
    Setting("data.prompt_template", k.TEXT_OR_FILE, "Jinja template that builds the prompt of a row from its columns, "
            "written as `{{ column }}`", inner=True),
    *ROLE_SETTINGS,
    Setting("data.omit", k.CHOICES, "parts of a row that the chat template may drop; any other lost part stops the run",
            choices=("content", "tool_calls", "reasoning", "tools"), bare=False, inner=True),
    Setting("data.columns", k.NAMES, "columns of the rows, in the order of the format; a source may have its own",
            inner=True),
    Setting("data.prompt", k.NAME, "column with the prompt, for every source without `columns` of its own", inner=True),
    Setting("data.context", k.NAME, "column whose text is added to the prompt after an empty line",
            inner=True),
    _of_methods("data.chat", k.FLAG, "turn columns of text into a conversation: the prompt is the user's turn, "
                "the answer the assistant's", default=False, inner=True),
    # method
    Setting("method", k.CHOICE, "training method", default=DEFAULT, head=True,
            choices=tuple(METHODS)),
    _of_methods("method.loss", k.WEIGHTED, "loss of the method, or a weighted list of them (dpo)",
            args=("loss_type", "loss_weights")),
    _of_methods("method.beta", k.REAL, "weight of the reference (dpo, kto, grpo, rloo), of the odds ratio (orpo) or "
            "of the difference in likelihood (cpo); for distill the divergence: 0 forward KL, 1 reverse KL, between "
            "them Jensen-Shannon", low=0,
                args=("beta",)),
    _of_methods("method.max_prompt", k.TOKENS, "longest prompt, in tokens; trl-1.16 drops rows with a longer one",
            low=1, high=2**31, args=("max_prompt_length",)),
    _of_methods("method.precompute", k.FLAG, "compute the log-probabilities of the reference once, before training",
            args=("precompute_ref_log_probs",), inner=True),
    _of_methods("method.sync_reference", k.FLAG, "move the reference towards the model while training",
            args=("sync_ref_model",)),
    _of_methods("method.sync_reference.every", k.INT, "steps between two updates of the reference", low=1,
                args=("ref_model_sync_steps",), inner=True),
    _of_methods("method.sync_reference.mixup", k.REAL, "share of the model in the updated reference", low=0, high=1,
            args=("ref_model_mixup_alpha",), inner=True),
    _of_methods("method.generations", k.INT, "number of completions for each prompt", low=2, high=10**6,
                args=("num_generations",)),
    _of_methods("method.max_completion", k.TOKENS, "longest completion, in tokens", low=1, high=2**31,
            args=("max_completion_length", "max_new_tokens")),
    _of_methods("method.temperature", k.REAL, "temperature of the sampling, and for distill of the loss", low=0,
                args=("temperature",)),
    _of_methods("method.top_p", k.REAL, "nucleus sampling: sample from the likeliest tokens with this share of the "
            "probability", low=0, high=1,
                args=("top_p",)),
    _of_methods("method.top_k", k.INT, "number of likeliest tokens that are sampled from; 0 means all",
            low=0, args=("top_k",)),
    _of_methods("method.min_p", k.REAL, "minimum probability of a sampled token, relative to the likeliest one",
            low=0, high=1,
            args=("min_p",)),
    _of_methods("method.repetition_penalty", k.REAL, "penalty on repeated tokens; 1 is no penalty", low=0,
            args=("repetition_penalty",)),
    _of_methods("method.iterations", k.INT, "how often the optimizer trains on each set of completions", low=1,
            args=("num_iterations",), inner=True),
    _of_methods("method.steps_per_generation", k.INT, "micro-batches per round of generation; default is "
            "`accum`", low=1, args=("steps_per_generation",), inner=True),
    _of_methods("method.epsilon", k.REAL, "clipping range of the importance ratio", low=0, args=("epsilon",),
                inner=True),
    _of_methods("method.epsilon_high", k.REAL, "upper clipping range; default is `epsilon`", low=0,
                args=("epsilon_high",), inner=True),
    _of_methods("method.mask_truncated", k.FLAG, "no loss on truncated completions",
            args=("mask_truncated_completions",), inner=True),
    _of_methods("method.log_completions", k.FLAG, "log some prompts with their completions and rewards",
            args=("log_completions",), inner=True),
    _of_methods("method.rewards", k.WEIGHTED, "reward functions, with weights and arguments: built-in names, and "
            'functions of files, as `file("rewards.py:right", weight=0.5)`, which get `prompts`, `completions` and the '
            "other columns of the rows by name",
            args=("reward_weights",)),
    _of_methods("method.vllm", k.FLAG, "generate with vLLM instead of transformers", args=("use_vllm",)),
    _of_methods("method.vllm.mode", k.CHOICE, "where vLLM runs: inside the training processes, or as a separate server",
            choices=("colocate", "server"), bare=False, inner=True, args=("vllm_mode",)),
    _of_methods("method.vllm.gpu_memory", k.SHARE, "share of each GPU that a colocated vLLM takes", inner=True,
            args=("vllm_gpu_memory_utilization",)),
    _of_methods("method.vllm.tensor_parallel", k.INT, "tensor-parallel size of a colocated vLLM", low=1, inner=True,
            args=("vllm_tensor_parallel_size",)),
    _of_methods("method.vllm.max_length", k.TOKENS, "vLLM's context: prompt and completion together, in tokens", low=1,
            inner=True, args=("vllm_max_model_length",)),
    _of_methods("method.vllm.sleep", k.FLAG, "free vLLM's memory during the optimizer step", inner=True,
            args=("vllm_enable_sleep_mode",)),
    _of_methods("method.vllm.port", k.INT, "port of the server; XPC_VLLM_HOST gives its host at the launch",
            low=1,
            high=65535, inner=True, args=("vllm_server_port",)),
    _of_methods("method.vllm.timeout", k.DURATION, "maximum time to wait for the server", inner=True,
            args=("vllm_server_timeout",)),
    *(row for method in METHODS.values() for row in method.settings),
    # hardware
    Setting("hardware", k.HARDWARE, "GPUs of one node, or CPU processes", head=True),
    Setting("nodes", k.INT, "number of machines", default=1, head=True, low=1, high=MAX_PROCESSES),
    # strategy
    Setting("strategy", k.CHOICE, "how model states are sharded over processes", head=True,
            choices=(*SPREADS, *OLD_STRATEGIES)),
    Setting("strategy.offload", k.CHOICE, "model states kept in host memory: those of the optimizer (`optimizer`), or "
            "also the weights (`cpu`)", default="none", choices=("none", "optimizer", "cpu"), bare=False, alone="cpu"),
    Setting("strategy.overlap_comm", k.FLAG, "overlap gradient reduction with the backward pass"),
    Setting("strategy.allgather_bucket", k.INT, "elements that ZeRO gathers at a time", low=1),
    Setting("strategy.reduce_bucket", k.INT, "elements that ZeRO reduces at a time", low=1),
    Setting("strategy.round_robin_gradients", k.FLAG, "spread gradient copies over ranks (ZeRO 1 and 2)"),
    Setting("strategy.reduce_scatter", k.FLAG, "reduce-scatter gradients instead of all-reduce (ZeRO)"),
    Setting("strategy.contiguous_gradients", k.FLAG, "copy gradients to one buffer (ZeRO)"),
    Setting("strategy.reshard", k.FLAG, "free gathered parameters after the forward pass (FSDP)"),
    Setting("strategy.shard", k.INT, "number of ranks that share one copy of the model (hsdp)", low=1),
    Setting("strategy.state_dict", k.CHOICE, "format of checkpoints (FSDP)", choices=("full", "sharded"), bare=False),
    Setting("strategy.context_parallel", k.INT, "number of processes that share one sequence (FSDP2, ZeRO)", low=1,
            high=MAX_PROCESSES),
    Setting("strategy.activation_checkpointing", k.FLAG, "FSDP's own activation checkpointing, always refused; use "
            "`memory { checkpointing }`"),
    # precision
    Setting("precision", k.CHOICE, "dtype of the computation", head=True, choices=("bf16", "fp16", "fp32", "fp8"),
            args=("bf16", "fp16")),
    Setting("precision.tf32", k.FLAG, "TensorFloat-32 for fp32 matrix products", default=False, args=("tf32",)),
    Setting("precision.nan", k.CHOICE, "if the loss is nan or infinite: stop the run at that step, or go on",
            default="stop", choices=("stop", "allow"), bare=False),
    Setting("precision.idle", k.CHOICE, "if the run learns nothing in 10 logged steps after the warm-up: stop it, "
            "warn once, or do not check", default="warn", choices=("stop", "warn", "allow"), bare=False),
    # batch
    Setting("batch.gbs", k.INT, "global batch: sequences in one optimizer step", low=1, high=10**9),
    Setting("batch.micro", k.INT, "micro-batch: sequences in one forward pass of one process",
            args=("per_device_train_batch_size",), low=1, high=10**9),
    Setting("batch.accum", k.INT, "forward passes in one optimizer step", args=("gradient_accumulation_steps",),
            low=1, high=10**9),
    _of_methods("batch.seq", k.TOKENS, "longest sequence, in tokens", default=1024, args=("max_length",),
            low=1, high=2**31),
    _of_methods("batch.packing", k.FLAG, "put several documents into one sequence", default=False, args=("packing",)),
    _of_methods("batch.packing.strategy", k.CHOICE, "how packing combines documents into rows", inner=True,
            choices=("bfd", "bfd_split", "wrapped", "ffd"), bare=False, args=("packing_strategy",)),
    _of_methods("batch.packing.isolate", k.CHOICE, "what separates the documents of a row: a flash kernel, or a mask",
                inner=True, choices=("flash", "mask"), bare=False),
    _of_methods("batch.packing.eval", k.FLAG, "pack evaluation rows too", inner=True, args=("eval_packing",)),
    _of_methods("batch.padding_free", k.FLAG, "flatten the micro-batch instead of padding it", default=False,
            args=("padding_free",)),
    Setting("batch.mean", k.CHOICE, "tokens over which a step's loss is averaged: of all processes, or of each process",
            bare=False, choices=("global_tokens", "local_tokens"), args=("average_tokens_across_devices",)),
    *OPTIMIZER,
    # memory
    Setting("memory.liger", k.FLAG, "Liger's fused Triton kernels", default=False, args=("use_liger_kernel",)),
    Setting("memory.checkpointing", k.FLAG, "recompute activations in the backward pass", default=True,
            args=("activation_checkpointing", "gradient_checkpointing")),
    Setting("memory.checkpointing.reentrant", k.FLAG, "use torch's older, reentrant checkpointing",
            default=False, inner=True,
            args=("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs")),
    _of_methods("memory.checkpointing.selective", k.FLAG, "recompute all activations except the outputs of attention",
                default=False, inner=True),
    _of_methods("memory.offload_activations", k.FLAG, "keep activations in host memory", default=False,
            args=("activation_offloading",)),
    # eval, save, track
    Setting("eval.every", k.EVERY, "how often to evaluate", default=k.NEVER, inner=True,
            args=("eval_strategy", "eval_steps")),
    Setting("eval.micro", k.INT, "micro-batch of evaluation", inner=True, args=("per_device_eval_batch_size",),
            low=1, high=10**9),
    Setting("eval.split", k.NAME, "another split of the training data, to evaluate on", inner=True),
    Setting("eval.data", k.SOURCES, "separate rows to evaluate on: a file, a dataset or a `data` block; a list is "
            "several sets, each with its own metrics", inner=True),
    Setting("eval.patience", k.INT, "stop the run after this many evaluations in a row without improvement; "
            "default never", low=1, high=10**6, inner=True),
    Setting("eval.tasks", k.TASKS, "tasks of lm-evaluation-harness that evaluate.sh runs: names such as `gsm8k`, or "
            "your own task files",
            inner=True),
    Setting("eval.allow_code_execution", k.FLAG, "let tasks execute code that the model wrote, without a sandbox",
            inner=True),
    Setting("save", k.PATH, "folder for checkpoints, metrics and the final model, relative to the folder in which "
            "the run starts", head=True, args=("output_dir",)),
    Setting("save.every", k.EVERY, "how often to save a checkpoint", default=k.EPOCH, inner=True,
            args=("save_strategy", "save_steps")),
    Setting("save.keep", k.INT, "number of newest checkpoints to keep; the best one by a metric is kept too",
            inner=True, args=("save_total_limit",), low=1),
    Setting("save.hub", k.FLAG, "push to the hub: `hub`, or `hub = me/model`", default=False,
            args=("push_to_hub",)),
    Setting("save.hub.name", k.REPOSITORY, "repository to push to; default is the last part of `save`", inner=True,
            args=("hub_model_id",)),
    Setting("save.hub.private", k.FLAG, "make the repository private; default is the account's own setting",
            inner=True, args=("hub_private_repo",)),
    Setting("save.hub.strategy", k.CHOICE, "what is pushed: the model at every save, or only at the end; `checkpoint` "
            "also pushes the newest checkpoint with its optimizer states, `all_checkpoints` each checkpoint",
            choices=("every_save", "end", "checkpoint", "all_checkpoints"), bare=False, inner=True,
            args=("hub_strategy",)),
    Setting("save.hub.revision", k.NAME, "branch to push to; default main", inner=True, args=("hub_revision",)),
    Setting("save.hub.checkpoint_branches", k.FLAG, "also push each checkpoint to its own branch: "
            "`main-step-000000100`", inner=True),
    Setting("save.merge", k.FLAG, "also save the model with the adapters merged into it, in the folder `merged`",
            default=False, inner=True),
    Setting("save.full_state", k.FLAG, "keep optimizer, scheduler and RNG states in checkpoints", default=True,
            inner=True, args=("save_only_model",)),
    Setting("save.resume", k.CHOICE, "whether to resume from the checkpoints in the output folder",
            default="auto", inner=True,
            choices=("auto", "never"), bare=False, args=("resume_from_checkpoint",)),
    Setting("track", k.CHOICES, "experiment trackers", default=("none",), head=True,
            choices=("wandb", "trackio", "tensorboard", "mlflow", "swanlab", "clearml", "none"), args=("report_to",)),
    Setting("track.name", k.TEXT, "name of the run", inner=True, args=("run_name",)),
    Setting("track.project", k.TEXT, "the run's project in the tracker", inner=True, args=("project",)),
    Setting("track.every", k.EVERY, "how often to log", default=k.Amount("count", 10), inner=True,
            args=("logging_steps", "logging_strategy")),
    *LAUNCH,
    Setting("seed", k.INT, "seed of weights, dropout and data order", default=42, low=0, high=2**32 - 1, head=True,
            args=("seed",)),
    Setting("target", k.NAME, "stack (set of library versions) for which the bundle is written", head=True),
    Setting("sweep", k.BLOCK, "several runs from one spec: a list of values for each varied setting", head=True),
)  # fmt: skip

CHOICE_REFUSED = {
    ("lora.init", "corda"): "write eva: CorDA needs a program that passes over the data before the run",
}
"""Choices of the libraries that the language refuses, each with a help text that gives the reason."""

BY_PATH: Mapping[str, Setting] = {row.path: row for row in TABLE}
CLAUSES = (*dict.fromkeys(row.path.partition(".")[0] for row in TABLE), "extra")
EXTRA_TARGETS = ("trl", "accelerate", "deepspeed")
SOURCE_SETTINGS = {
    "chat": evolve(BY_PATH["data.chat"], inner=False),
    "columns": Setting("data.columns", k.NAMES, "columns of this source, in the order of the format"),
    "context": Setting("data.context", k.NAME, "column whose text is added to the prompt"),
    "format": evolve(BY_PATH["data.format"], inner=False),
    "limit": Setting("data.limit", k.INT, "maximum number of rows to read, from the start of the source", low=1),  # type: ignore[arg-type]
    "share": Setting("data.share", k.SHARE, "share of the mixture (30%), stated for all sources or for none"),  # type: ignore[arg-type]
    "take": Setting("data.take", k.ROWS_OR_SHARE, "rows of the source to use: 1000, or 5%", low=0),  # type: ignore[arg-type]
}
"""The settings that a source in a `data` block may have."""
OF_A_BLOCK = ("data.format", "data.prompt", "data.context", "data.columns")
"""Settings of a `data` block that a block for evaluation data may contain."""


def path_of(text: str) -> Path:
    """Convert a text to the type `Path`, for a path that is built at run time, such as `f"method.{name}"`. Raises
    KeyError if there is no such setting.
    """
    return BY_PATH[text].path


def children(clause: str) -> Iterator[Setting]:
    """The settings directly inside a clause (`batch`), or inside a setting with settings of its own
    (`batch.packing`).
    """
    prefix = clause + "."
    for row in TABLE:
        if row.path.startswith(prefix) and "." not in row.path[len(prefix) :]:
            yield row


@cache
def outer_names() -> Mapping[str, str]:
    """Map the names that may stand outside of their clause (`gbs`, `liger`) to the paths of their settings."""
    return {row.name: row.path for row in TABLE if not row.inner}


@cache
def bare_choices() -> Mapping[str, str]:
    """Map the choices that may stand without the name of their setting (`zero2`, `bf16`) to the paths of their
    settings.
    """
    return {name: row.path for row in TABLE if row.choices and row.bare for name in row.choices if name != "none"}


def owner_of(argument: str) -> Setting | None:
    """The setting that decides a trainer argument, or None. For `per_device_train_batch_size`, it is `batch.micro`."""
    return next((row for row in TABLE if argument in row.args), None)
