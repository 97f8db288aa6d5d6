"""The import knows the keys that axolotl 0.19 adds to those of 0.18."""

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
])  # fmt: skip
def test_key_of_axolotl_0_19(line: str, severity: str) -> None:
    key = line.partition(":")[0]
    found = [one for one in imported(FILE + line + "\n").draft.messages if key in one.text]
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert not any("does not know" in one.text for one in found)
