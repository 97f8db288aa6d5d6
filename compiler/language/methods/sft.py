"""Method `sft`: supervised fine-tuning, and pretraining on plain text."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.methods.definition import Method
from xpc.compiler.language.setting import Setting

SFT = Method(
    "sft",
    "learns to continue the text of the rows",
    ("messages", "conversations", "prompt_completion", "text", "tokens", "images"),
    (
        "method.loss",
        "data.min_tokens",
        "data.max_tokens",
        "data.streaming",
        "data.shuffle_buffer",
        "data.max_pixels",
        "data.chat",
        "batch.seq",
        "batch.packing",
        "batch.packing.strategy",
        "batch.packing.isolate",
        "batch.packing.eval",
        "batch.padding_free",
        "memory.checkpointing.selective",
        "memory.offload_activations",
    ),
    (
        Setting(
            "method.assistant_only",
            k.FLAG,
            "loss on assistant turns only",
            default=False,
            args=("assistant_only_loss",),
            methods=("sft",),
        ),
        Setting(
            "method.completion_only",
            k.FLAG,
            "loss on completions only",
            args=("completion_only_loss",),
            methods=("sft",),
        ),
    ),
    aliases="supervised; finetune; instruction; instruct; pt; cpt; pretrain; pretraining; continued pretraining; "
    "supervised finetuning; none; instruction tuning; causal lm; clm; language modeling",
)
