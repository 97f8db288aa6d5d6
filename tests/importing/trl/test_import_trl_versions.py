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

from trl_cases import CASES, HEAD

MACHINE = ("accelerator_config", "dataloader_pin_memory", "use_cpu", "output_dir", "run_name")
"""Arguments that depend on the machine, or name the run."""
UNUSED = {
    "ref_model_mixup_alpha": "`sync_ref_model` is off",
    "ref_model_sync_steps": "`sync_ref_model` is off",
    "per_device_eval_batch_size": "nothing is evaluated",
    "hub_private_repo": "nothing is pushed",
    "logging_nan_inf_filter": "a bundle reports a loss that is not a number",
    "ddp_find_unused_parameters": "the Trainer turns it off where weights are recomputed",
    "vllm_gpu_memory_utilization": "`use_vllm` is off",
}
"""Maps arguments to the reason why they do not change what these files train."""
UNSET = {
    "tf32": False,
    "eval_packing": False,
    "completion_only_loss": False,
    "gradient_checkpointing_kwargs": {"use_reentrant": True},
    "activation_checkpointing_kwargs": {"use_reentrant": False},  # transformers 5: modeling_utils.py
}
"""Maps arguments whose default is None to the value that TRL uses instead of None."""
SPELLED: dict[str, dict[str, Any]] = {
    "include_num_input_tokens_seen": {"no": False},
    "lr_scheduler_kwargs": {"{}": None},
    "loss_type": {"['sigmoid']": "sigmoid", "['ipo']": "ipo"},
}
"""Maps an argument to a mapping of values: as another TRL version writes them, to the current way of writing them."""
KNOWN = {(method, "remove_unused_columns") for method in ("kto", "orpo", "cpo")}
"""Pairs of a method and an argument: TRL's trainer of the method itself turns the argument off."""
ONE_PROCESS = {"0.22": {"average_tokens_across_devices"}}
"""Maps a TRL version to arguments. In a run of one process, such as the recorded one, transformers turns them off."""
REWARDS = "reward_funcs:\n- accuracy\n"


def answers() -> dict[str, dict[str, Any]]:
    """Maps each file to the arguments that were recorded from the parser of its TRL version."""
    with open(os.path.join(oracle_support.FOLDER, "trl_versions.jsonl"), encoding="utf-8") as handle:
        return {one["case"]: one["arguments"] for one in map(json.loads, handle)}


def test_every_case_has_an_answer() -> None:
    assert set(answers()) == set(CASES)


def plain(key: str, value: Any) -> Any:
    """The value of the argument `key` as the newest TRL spells it. None becomes the value that TRL uses instead of
    None.
    """
    value = SPELLED.get(key, {}).get(str(value), value)
    return UNSET.get(key) if value is None else value


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_has_the_arguments_of_the_version(case: str) -> None:
    version, method, text = CASES[case]
    theirs = answers()[case]
    rewards = REWARDS if METHODS[method].grouped else ""
    found = imported(HEAD + text + rewards, "--trl", version, "--method", method, "--hardware", "2 x h100-80gb")
    assert not found.errors, found.errors
    ignored = {
        *MACHINE,
        *UNUSED,
        *ONE_PROCESS.get(version, ()),
        *([] if theirs["gradient_checkpointing"] else ["gradient_checkpointing_kwargs"]),
    }
    differing = {
        key: (theirs[key], ours)
        for key, ours in found.arguments.items()
        if key in theirs and key not in ignored and (method, key) not in KNOWN
        if plain(key, theirs[key]) != plain(key, ours)
    }
    assert differing == {}


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
