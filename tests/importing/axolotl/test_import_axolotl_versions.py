"""The import knows the keys that axolotl 0.19 has and axolotl 0.18 does not have."""

from __future__ import annotations

import json
import sys
from functools import cache

import oracle_support
import pytest
from import_support import HARDWARE, imported

sys.path.append(oracle_support.FOLDER)

from file_cases import CASES, table

FILE = """
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: org/rows
    type: chat_template
micro_batch_size: 1
num_epochs: 1
learning_rate: 1.0e-5
"""


@pytest.mark.parametrize(("line", "severity"), [
    ("fp8_config:\n  recipe: rowwise", "error"),
    ("ple_cpu_offload: true", "error"),
    ("ple_cpu_offload: false", ""),
    ("liger_kernel_impl: cutedsl", "warning"),
    ("attn_implementation: flash_attention_torch", "error"),
    ("optimizer: polora", "error"),
])  # fmt: skip
def test_key_of_axolotl_0_19_is_known(line: str, severity: str) -> None:
    key = line.partition(":")[0]
    found = [one for one in imported(FILE + line + "\n").draft.messages if key in one.text]
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert not any("does not know" in one.text for one in found)


def test_arguments_of_trl_that_axolotl_0_19_adds() -> None:
    given = {"entropy_coef": 0.01, "use_adaptive_entropy": "true", "entropy_target": 0.3, "entropy_coef_delta": 0.001,
             "entropy_coef_min": 0.1, "entropy_coef_max": 0.9, "log_multimodal": "false", "scale_rewards": "batch",
             "vllm_importance_sampling_clip_min": 0.5, "vllm_importance_sampling_clip_max": 4.0}  # fmt: skip
    lines = "".join(f"  {key}: {one}\n" for key, one in given.items())
    found = imported(f"{FILE.replace('chat_template', 'null')}rl: grpo\ntrl:\n  reward_funcs: [rewards.right]\n{lines}")
    assert not found.draft.wrong, found.messages
    outcomes = {key: found.outcomes[f"trl.{key}"] for key in given}
    assert set(outcomes.values()) <= {"mapped", "extra"}, outcomes


@cache
def newer() -> dict[str, oracle_support.Record]:
    """Map each file to the record of axolotl 0.19. The records are made with the environment .venv-axolotl-0.19."""
    return oracle_support.records("axolotl-0.19")[1]


@pytest.mark.parametrize("name", [one for one in oracle_support.records("axolotl")[1] if "/ebft/" not in one])
def test_both_versions_train_a_file_alike(name: str) -> None:
    assert oracle_support.axolotl(name) == oracle_support.axolotl(name, "axolotl-0.19")


@pytest.mark.parametrize("kind", ["rows", "irrelevant"])
def test_both_versions_make_the_same_rows_and_ignore_the_same_keys(kind: str) -> None:
    assert oracle_support.lines(f"axolotl-0.19_{kind}")[1:] == oracle_support.lines(f"axolotl_{kind}")[1:]


@pytest.mark.parametrize("name", CASES["axolotl-0.19"])
def test_arguments_that_only_the_newer_version_has(name: str) -> None:
    theirs = newer()[f"own/{name}"]["arguments"]
    found = imported(json.dumps(table("axolotl-0.19", name)), *HARDWARE)
    given = {*CASES["axolotl-0.19"][name]["trl"]} - {"reward_funcs"}
    assert {key: found.arguments[key] for key in given} == {key: theirs[key] for key in given}


@pytest.mark.parametrize(("line", "differs"), [("", True), ("  max_completion_length: 512\n", False)])
def test_length_of_completions_that_axolotl_does_not_limit(line: str, differs: bool) -> None:
    assert newer()["own/a bonus for entropy"]["arguments"]["max_completion_length"] is None
    file = FILE.replace("chat_template", "null") + "rl: grpo\ntrl:\n  reward_funcs: [rewards.right]\n" + line
    assert ("max_completion_length" in imported(file).draft.differences) is differs
