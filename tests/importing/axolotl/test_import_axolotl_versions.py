"""The import knows the keys that axolotl 0.19 has and axolotl 0.18 does not have."""

from __future__ import annotations

import pytest
from import_support import imported

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
def test_key_of_axolotl_0_19(line: str, severity: str) -> None:
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
