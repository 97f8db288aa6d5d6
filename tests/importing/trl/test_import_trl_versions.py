"""Files for TRL 0.12, 0.14, 0.18, 0.22, 0.24 and 1.16. The bundle has the arguments that the parser of the same TRL
version reads from the file.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import oracle_support
import pytest
from import_support import imported

from xpc.compiler.language.methods import METHODS

sys.path.append(oracle_support.FOLDER)

from trl_arguments import ONE_PROCESS, differing
from trl_cases import CASES, HEAD

REWARDS = "reward_funcs:\n- accuracy\n"


def answers() -> dict[str, dict[str, Any]]:
    """Maps each file to the arguments that were recorded from the parser of its TRL version."""
    with open(os.path.join(oracle_support.FOLDER, "trl_versions.jsonl"), encoding="utf-8") as handle:
        return {one["case"]: one["arguments"] for one in map(json.loads, handle)}


def test_every_case_has_an_answer() -> None:
    assert set(answers()) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_has_the_arguments_of_the_version(case: str) -> None:
    version, method, text = CASES[case]
    theirs = answers()[case]
    rewards = REWARDS if METHODS[method].grouped else ""
    found = imported(HEAD + text + rewards, "--trl", version, "--method", method, "--hardware", "2 x h100-80gb")
    assert not found.errors, found.errors
    ignored = ONE_PROCESS.get(version, ())
    assert differing(theirs, found, method, ignored) == {}


@pytest.mark.parametrize(("value", "wrong"), [("sequence", False), ("token", False), ("word", True)])
def test_unknown_level_of_importance_sampling_is_refused(value: str, wrong: bool) -> None:
    found = imported(HEAD + REWARDS + f"importance_sampling_level: {value}\n", "--method", "grpo")
    assert found.draft.wrong is wrong
    assert wrong or found.arguments["importance_sampling_level"] == value


@pytest.mark.parametrize(("version", "more", "expected"), [
    ("1.16", "eval_strategy: steps\n", {"eval_steps": 10, "logging_steps": 10}),
    ("1.16", "eval_strategy: steps\nlogging_steps: 25\n", {"eval_steps": 25, "logging_steps": 25}),
    ("1.16", "logging_strategy: steps\n", {"logging_steps": 10}),
    ("0.18", "eval_strategy: steps\nlogging_strategy: steps\n", {"eval_steps": 500, "logging_steps": 500}),
    ("1.16", "fp16: false\n", {"bf16": True}),
    ("1.16", "fp16: false\nbf16: false\n", {"bf16": False}),
    ("0.18", "fp16: false\n", {"bf16": False}),
    ("0.18", "gradient_checkpointing_kwargs: {use_reentrant: false}\n", {"gradient_checkpointing": False}),
    ("0.24", "gradient_checkpointing_kwargs: {use_reentrant: false}\n", {"gradient_checkpointing": True}),
])  # fmt: skip
def test_keys_without_a_number_or_with_false_leave_the_default_of_the_version(
    version: str, more: str, expected: dict[str, Any]
) -> None:
    found = imported(HEAD + more, "--trl", version, "--method", "sft", "--hardware", "2 x h100-80gb")
    assert {key: found.arguments[key] for key in expected} == expected


@pytest.mark.parametrize(("method", "more", "reported"), [
    ("kto", "max_length: 512\n", "max_prompt_length"),
    ("kto", "max_length: 1024\n", ""),
    ("dpo", "max_length: 512\n", ""),
    ("sft", "lr_scheduler_type: cosine_with_min_lr\n", "transformers stops: its schedule needs a final learning rate"),
    ("sft", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n", "schedule has no final learning"),
    ("sft", "lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n", ""),
    ("sft", "lr_scheduler_type: cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n", "one step"),
])  # fmt: skip
def test_a_default_or_schedule_with_which_trl_could_not_train_is_reported(
    method: str, more: str, reported: str
) -> None:
    found = imported(HEAD + more, "--trl", "0.24", "--method", method, "--hardware", "2 x h100-80gb")
    assert not found.draft.wrong
    assert len(found.messages) == bool(reported), found.messages
    assert reported in "".join(found.messages)
