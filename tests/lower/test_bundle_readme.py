"""The README of a bundle says what must be installed and started by hand."""

from __future__ import annotations

import pytest
from case_support import spec
from compile_support import compiled

from xpc.compiler import stacks


@pytest.mark.parametrize("stack", stacks.names())
def test_flash_attention_without_a_compiler_where_the_hub_has_kernels(stack: str) -> None:
    text = compiled(spec("model { attn = flash2 }", f"target {stack}"))["README.md"].decode()
    found = stacks.load(stack)
    assert found is not None
    assert "flash-attn comes as source. Its build takes minutes to hours" in text
    built = f"`pip install kernels=={found.facts.kernels}`\nneeds no compiler: transformers fetches the built kernels"
    assert (built in text) == bool(found.facts.kernels)


def test_no_line_about_flash_attention_without_it() -> None:
    assert "flash-attn" not in compiled(spec("model { attn = sdpa }"))["README.md"].decode()
