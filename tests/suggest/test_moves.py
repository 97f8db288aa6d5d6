"""If a setting is in the block of a wrong clause, the suggested edit moves it out of the block."""

from __future__ import annotations

import pytest
from compile_support import checked, edited

LINE = "xpc 1\ntrain qwen2.5-3b on alpaca\n"


def moved(text: str) -> str:
    """Apply the edits of all findings about names, one after another, and return the resulting spec."""
    while (found := next((one for one in checked(text).problems if one.code in ("XP101", "XP102")), None)) is not None:
        assert found.edits, f"{found.message}: {found.help}"
        text = edited(text, found)
    return text


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("batch { gbs = 64, bf16 }", "batch { gbs = 64 }\nbf16"),
        ("batch { bf16, gbs = 64 }", "batch { gbs = 64 }\nbf16"),
        ("memory { zero3 }\nbf16", "zero3\nbf16"),
        ("lora { lr = 1e-4 }", "lora\nlr=1e-4"),
        ("model { lr = 1e-5, seed = 8 }", "lr=1e-5\nseed 8"),
        ("hardware 8 x h100-80gb nodes=2", "hardware 8 x h100-80gb\nnodes 2"),
        ("precision bf16 { attn = flash2 }", "precision bf16\nattn=flash2"),
        ("optimizer adamw(lr=1e-5, warmup=10)", "optimizer adamw(lr=1e-5)\nwarmup=10"),
        ("batch {\n  gbs = 64 # ours\n  zero2\n}", "batch {\n  gbs = 64 # ours\n}\nzero2"),
        ("batch {\n  gbs = 64  # a\n  zero2  # b\n}", "batch {\n  gbs = 64  # a\n}\nzero2  # b"),
        ("lora {\n  lr = 1e-4  # a\n}", "lora\nlr=1e-4  # a"),
        ("batch {  # a\n  # b\n  bf16  # c\n}", "# a\n# b\nbf16  # c"),
        ("memory {\n  liger\n  lora {\n    rank = 8\n  }\n}", "memory {\n  liger\n}\nlora {\n  rank = 8\n}"),
    ],
)
def test_an_edit_moves_a_setting_out_of_the_block(typed, right):
    assert moved(f"{LINE}{typed}\n") == f"{LINE}{right}\n"


def test_an_edit_moves_an_argument_out_of_a_call_of_the_first_line():
    text = moved("xpc 1\ntrain qwen2.5-3b on alpaca with batch(gbs=64, bf16) lora(rank=8)\n")
    assert text == "xpc 1\ntrain qwen2.5-3b on alpaca with batch(gbs=64) bf16 lora(rank=8)\n"


@pytest.mark.parametrize(
    "typed", ["batch { gbs = 64, lr }", "optimizer adamw {\n  lora_targets {\n    lr = 1e-5\n  }\n}"]
)
def test_an_example_of_a_value_is_not_moved(typed):
    found = next(one for one in checked(f"{LINE}{typed}\n").problems if one.code in ("XP101", "XP102"))
    assert "outside of" in (found.help or "")
    assert not found.edits


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("num_train_epochs: 3.0", ""),
        ("batch { epochs = 3, gbs = 32 }", "batch { gbs = 32 }\n"),
        ("data { epochs = 3 }", ""),
        ("stop after 3 epochs", ""),
        ("batch {\n  gbs = 32  # a\n  epochs = 3  # b\n}", "batch {\n  gbs = 32  # a\n# b\n}\n"),
    ],
)
def test_the_length_of_the_run_moves_into_the_first_line(typed, right):
    text = f"{LINE}{typed}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE.rstrip()} for 3 epochs\n{right}"


def test_a_second_length_is_not_moved():
    text = "xpc 1\ntrain qwen2.5-3b on alpaca for 2 epochs\nmax_steps = 500\n"
    assert not checked(text).problems[0].edits
