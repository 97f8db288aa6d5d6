"""Libraries have different names for the same thing. The runtime treats such names as equal when it compares values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from xpc.runtime.library_internals.transformers_trainer import attention


@pytest.mark.parametrize(
    ("resolved", "name"),
    [
        ("sdpa", "sdpa"),
        ("flash_attention_3", "flash_attention_3"),
        ("kernels-community/flash-attn2", "flash_attention_2"),
        ("kernels-community/flash-attn", "flash_attention_2"),
        ("kernels-community/vllm-flash-attn3", "flash_attention_3"),
    ],
)
def test_kernels_of_the_hub_are_flash_attention(resolved: str, name: str) -> None:
    config = SimpleNamespace(_attn_implementation=resolved)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config))
    assert attention(model) == name
