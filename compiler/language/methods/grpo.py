"""Method `grpo`: group relative policy optimization, which is reinforcement learning with reward functions."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.methods.definition import Get, Method
from xpc.compiler.language.setting import Path, Setting

REINFORCEMENT: tuple[Path, ...] = (
    "method.beta", "method.max_prompt", "method.sync_reference", "method.sync_reference.every",
    "method.sync_reference.mixup", "method.generations", "method.max_completion", "method.temperature", "method.top_p",
    "method.top_k", "method.min_p", "method.repetition_penalty", "method.iterations", "method.steps_per_generation",
    "method.epsilon", "method.epsilon_high", "method.mask_truncated", "method.log_completions", "method.rewards",
    "method.vllm", "method.vllm.mode", "method.vllm.gpu_memory", "method.vllm.tensor_parallel",
    "method.vllm.max_length", "method.vllm.sleep", "method.vllm.port", "method.vllm.timeout",
)  # fmt: skip


def references(get: Get) -> int:
    """The number of reference models in memory: 1 if `beta`, the weight of the KL penalty, is above 0; otherwise 0."""
    return int(bool(get("method.beta")))


GRPO = Method(
    "grpo",
    "learns from rewards of its own completions, each compared with the other completions for its prompt",
    ("prompt",),
    ("method.loss", *REINFORCEMENT),
    (
        Setting("method.tools", k.FUNCTIONS, "functions that the model may call while it generates, as FILE:NAME",
                methods=("grpo",)),
        Setting("method.environment", k.FUNCTIONS, "class in a file, with methods that the model may call; each "
                "completion has its own instance: `reset` starts it, and `get_reward` may return its reward",
                methods=("grpo",), inner=True, example='"env.py:Maze"'),
        Setting("method.tool_turns", k.INT, "maximum rounds of tool calls in a completion; default is as many as fit "
                "in `max_completion`", low=1, high=10**6, args=("max_tool_calling_iterations",), methods=("grpo",),
                inner=True, example="4"),
        Setting("method.tool_timeout", k.DURATION, "maximum time of one call of a tool, or of a method of the "
                "environment", low=1, high=86400, methods=("grpo",), inner=True, example="30s"),
        Setting("method.delta", k.REAL, "upper bound of the importance ratio (two-sided clipping)", low=0,
                args=("delta",), methods=("grpo",), inner=True, example="1.5"),
        Setting("method.level", k.CHOICE, "one importance ratio for each token, or for each sequence (GSPO)",
                choices=("token", "sequence"), bare=False, inner=True, args=("importance_sampling_level",),
                methods=("grpo",), example="sequence"),
        Setting("method.scale_rewards", k.CHOICE, "what rewards are divided by: their standard deviation in the "
                "group of a prompt, or in the batch, or nothing", choices=("group", "batch", "none"), bare=False,
                inner=True, args=("scale_rewards",), methods=("grpo",), example="batch"),
    ),
    counts="completions",
    generates=True,
    grouped=True,
    references=references,
    aliases="rl; group relative; gspo; dapo; group norm; rlvr; group relative policy optimization; group rpo",
)  # fmt: skip
