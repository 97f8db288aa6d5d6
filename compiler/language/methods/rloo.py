"""Method `rloo`: REINFORCE leave-one-out. The reward of each completion is compared with the mean reward of the
prompt's other completions.
"""

from __future__ import annotations

from xpc.compiler.language.methods.definition import Method
from xpc.compiler.language.methods.grpo import REINFORCEMENT, references

RLOO = Method(
    "rloo",
    "learns from rewards of its own completions, minus the mean reward of the other completions for the prompt",
    ("prompt",),
    REINFORCEMENT,
    counts="completions",
    generates=True,
    grouped=True,
    scores_twice=True,
    references=references,
    aliases="reinforce; reinforce leave one out",
)
