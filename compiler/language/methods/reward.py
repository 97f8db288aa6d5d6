"""Method `reward`: trains a reward model, which returns a score for an answer."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.methods.definition import Method
from xpc.compiler.language.setting import Setting

REWARD = Method(
    "reward",
    "learns to give the better of two answers the higher score",
    ("preference",),
    ("batch.seq", "data.max_tokens", "data.chat", "memory.offload_activations"),
    (
        Setting("method.center", k.REAL, "weight of the penalty that keeps rewards around zero", low=0,
                args=("center_rewards_coefficient",), methods=("reward",), inner=True, example="0.01"),
    ),
    sequences=2,
    counts="pairs",
    scores=True,
    cuts_rows="dropped",
    head="model",
    aliases="rm; reward model; reward modeling; rewards; bradley terry; reward model training; rm training",
)  # fmt: skip
