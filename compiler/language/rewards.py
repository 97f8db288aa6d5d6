"""The built-in reward functions of grpo and rloo, such as `accuracy`."""

from __future__ import annotations

from collections.abc import Mapping

REWARDS: Mapping[str, str] = {
    "accuracy": "1 if the answer equals the row's `solution` (by math-verify), else 0",
    "format": "1 for <think> lines followed by <answer> lines and nothing else, else 0",
    "tag_count": "0.25 for each of the tags <think>, </think>, <answer>, </answer> that occurs exactly once",
    "reasoning_steps": "a third for each phrase that begins a step (Step 1:, First, ...), at most 1",
    "length": "0.5 for the shortest completion down to -0.5 for the longest; a wrong one gets at most 0",
    "len": "the same as `length`",
    "cosine": "1 (short) to 0.5 (from 1,000 characters on) for a correct answer; 0 (short) to -0.5 for a wrong one",
    "repetition_penalty": "0 to -1: the share of repeated groups of three words, as a negative number",
    "code_format": "the same as `format`, but the answer must contain a code block",
    "soft_overlong_punishment": "0, then falling to -1 over the last quarter of `max_completion` (DAPO)",
}
"""Maps each built-in reward function to its description. These are Open-R1's reward functions, but without the
functions that execute code which the model has written.
"""
REWARD_ARGUMENTS: Mapping[str, Mapping[str, type]] = {
    "cosine": {
        "min_value_wrong": float, "max_value_wrong": float, "min_value_correct": float, "max_value_correct": float,
        "max_len": int,
    },
    "repetition_penalty": {"ngram_size": int, "max_penalty": float},
    "soft_overlong_punishment": {"max_completion_len": int, "soft_punish_cache": int},
    "code_format": {"language": str},
}  # fmt: skip
"""Maps each built-in reward function to its arguments and their types: `cosine` has the argument `max_len`, an int."""
MATH = ("accuracy", "cosine", "len", "length")
"""Reward functions that compare an answer with the column `solution` by the package math-verify."""
