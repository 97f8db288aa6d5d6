"""Method `dpo`: direct preference optimization, which learns from preference pairs with a reference model."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.methods.definition import Get, Method
from xpc.compiler.language.setting import Setting


def references(get: Get) -> int:
    """The number of reference models in memory: 0 with `precompute` or `reference_free`, otherwise 1."""
    return int(not (get("method.precompute") or get("method.reference_free")))


DPO = Method(
    "dpo",
    "learns to prefer the better of two answers, relative to the model before training",
    ("preference", "image_preference"),
    (
        "method.loss", "method.beta", "method.max_prompt", "method.precompute", "method.sync_reference",
        "method.sync_reference.every", "method.sync_reference.mixup", "batch.seq", "data.max_tokens", "data.max_pixels",
        "data.chat", "batch.padding_free", "memory.offload_activations",
    ),
    (
        Setting("method.label_smoothing", k.REAL, "share of preference pairs that are assumed to be flipped", low=0,
                high=1, args=("label_smoothing",), methods=("dpo",), inner=True),
        Setting("method.rpo", k.REAL, "weight of an additional likelihood loss on the chosen answer (trl-0.18, "
                "trl-0.24; elsewhere `loss = [sigmoid, sft]`)", low=0, args=("rpo_alpha",), methods=("dpo",),
                inner=True),
        Setting("method.reference_free", k.FLAG, "take a uniform distribution as the reference "
                "(trl-0.18, trl-0.24)", args=("reference_free",), methods=("dpo",), inner=True),
    ),
    sequences=2,
    counts="pairs",
    weighs_losses=True,
    references=references,
    aliases="direct preference; preference; direct preference optimization",
)  # fmt: skip
