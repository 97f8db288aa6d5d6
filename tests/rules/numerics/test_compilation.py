"""The rule XP355 is about modes of torch.compile that use CUDA graphs. If the model is compiled with such a mode, the
rule's edit replaces the mode; it changes no other mode.
"""

from __future__ import annotations

import pytest
from case_support import spec
from compile_support import checked, only


@pytest.mark.parametrize(
    ("inside", "edits"),
    [
        ('torch_compile_mode = "reduce-overhead"', ['torch_compile_mode = "max-autotune-no-cudagraphs"']),
        ('torch_compile_backend = "cudagraphs"', []),
    ],
)
def test_only_a_mode_with_graphs_is_replaced(inside: str, edits: list[str]) -> None:
    found = only(checked(spec(f"extra trl {{\n  {inside}\n}}")), "XP355")
    assert [one.text for one in found.edits] == edits
