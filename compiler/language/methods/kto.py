"""Method `kto`: Kahneman-Tversky optimization. A row is one answer with a label that says whether the answer is good or
bad.
"""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.methods.definition import Method
from xpc.compiler.language.methods.dpo import references
from xpc.compiler.language.setting import Setting

KTO = Method(
    "kto",
    "learns from single answers with a label, good or bad",
    ("unpaired", "preference"),
    (
        "method.loss", "method.beta", "method.max_prompt", "method.precompute", "method.sync_reference",
        "method.sync_reference.every", "method.sync_reference.mixup", "batch.seq", "data.max_tokens", "data.chat",
        "memory.offload_activations",
    ),
    (
        Setting("method.desirable", k.REAL, "weight of the losses of good answers", low=0, args=("desirable_weight",),
                methods=("kto",), inner=True, example="1.33"),
        Setting("method.undesirable", k.REAL, "weight of the losses of bad answers", low=0,
                args=("undesirable_weight",), methods=("kto",), inner=True, example="1"),
    ),
    references=references,
    aliases="kahneman tversky; kto pairwise; unpaired preference",
)  # fmt: skip
