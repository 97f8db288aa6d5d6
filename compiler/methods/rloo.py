"""REINFORCE leave-one-out: reinforcement with the mean of the other completions as baseline."""

from __future__ import annotations

from xpc.compiler.methods.grpo import REINFORCEMENT, references
from xpc.compiler.methods.method import Method

RLOO = Method(
    "rloo",
    "learns from rewards of its own completions, less the mean of the others of their prompt",
    ("prompt",),
    REINFORCEMENT,
    counts="completions",
    generates=True,
    grouped=True,
    scores_twice=True,
    references=references,
    aliases="reinforce; reinforce leave one out",
)
