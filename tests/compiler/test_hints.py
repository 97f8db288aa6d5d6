"""Findings that led astray: what they say now."""

from __future__ import annotations

import pytest
from compile_support import checked

from xpc.compiler import registry
from xpc.grammar.diagnostic import ERROR

LINE = "train qwen2.5-3b on infinity-instruct"


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("t4-16gb", "t4"),
        ("tesla-t4", "t4"),
        ("A100-SXM4-80GB", "a100-80gb"),
        ("h100-80gb-hbm3", "h100-80gb"),
        ("rtx4090", "rtx-4090"),
        ("v100-32", "v100-32gb"),
        ("h200-141gb", "h200"),
        ("a100", None),
        ("v100", None),
        ("h100", None),
        ("gh200-480gb", None),
        ("rtx-6000", None),
        ("rtx-4080", None),
        ("adamw8bit", None),
    ],
)
def test_a_shop_s_spelling_is_one_gpu_or_none(name, gpu):
    found = registry.find_gpu(name)
    assert (found.name if found else None) == gpu


@pytest.mark.parametrize("name", ["a100", "v100", "h100", "gh200-480gb", "rtx-6000", "rtx-4080", "m40", "mi300x"])
def test_no_edit_chooses_a_gpu_that_was_not_said(name):
    found = [one for one in checked(f"{LINE} with hardware = 8 x {name}\n").problems if one.code == "XP112"]
    assert found
    assert not found[0].edits


def test_one_note_for_datasets_that_are_not_registered():
    text = "xpc 1\ntrain qwen2.5-3b on mix\ndata mix {\n  org/a\n  org/b\n  org/a[test]\n}\n"
    assert [one.code for one in checked(text).problems].count("XP111") == 1


def test_a_learning_rate_above_1_is_an_error():
    (found,) = [one for one in checked(f"{LINE} with lr=2e5\n").problems if one.severity == ERROR]
    assert found.code == "XP107"
    assert found.help == "write `lr = 2e-5`"


def test_a_call_inside_of_extra_is_its_block():
    spec = checked(f"{LINE} with zero3 extra(deepspeed, zero_optimization(sub_group_size=1000))\n").spec
    assert spec is not None
    assert spec.extra["deepspeed"]["zero_optimization.sub_group_size"].value == 1000
