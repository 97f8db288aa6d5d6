"""An unknown name in a clause stands for the setting of the clause whose names have its words."""

from __future__ import annotations

import pytest
from compile_support import checked, edited

from xpc.grammar.diagnostic import ERROR, Diagnostic

HEAD = "xpc 1\ntrain qwen2.5-3b on infinity-instruct\n"


def named(clause: str, line: str) -> tuple[str, Diagnostic]:
    """Return a spec with one line in a clause, and the first error about a name in this line."""
    text = f"{HEAD}{clause} {{\n  {line}\n}}\n"
    return text, next(one for one in checked(text).problems if one.severity == ERROR and one.code == "XP101")


@pytest.mark.parametrize(("clause", "line", "right"), [
    ("launch k8s", 'taints = ["gpu:NoSchedule"]', 'tolerations = ["gpu:NoSchedule"]'),
    ("launch slurm", 'node_features = "h100"', 'constraint = "h100"'),
    ("launch slurm", "quality_of_service = high", 'qos = "high"'),
    ("schedule reduce_lr_on_plateau", "reduction_factor = 0.5", "factor = 0.5"),
    ("lora", "alpha_value = 16", "alpha = 16"),
    ("optimizer sgd", "momentum_value = 0.9", "momentum = 0.9"),
])  # fmt: skip
def test_a_name_that_describes_a_setting_becomes_it(clause, line, right):
    text, found = named(clause, line)
    assert f"  {right}\n" in edited(text, found), found


@pytest.mark.parametrize(("clause", "line", "right"), [
    ("eval", "per_device = 8", "micro = 8"),
    ("data", "rng = 3", "seed = 3"),
    ("optimizer galore_adamw", "r = 128", "rank = 128"),
])  # fmt: skip
def test_a_setting_of_the_clause_is_preferred_to_one_that_is_called_alike(clause, line, right):
    text, found = named(clause, line)
    assert f"  {right}\n" in edited(text, found), found


@pytest.mark.parametrize("line", ["batch_size = 8", "with batch size 8", "with a batch size of 8"])
def test_a_batch_size_may_be_that_of_a_step_or_of_a_process(line):
    text = f"{HEAD}{line}\n" if "=" in line else f"{HEAD.rstrip()} {line}\n"
    helps = [one.help or "" for one in checked(text).problems if one.code == "XP101"]
    assert any("`gbs=8`" in help and "`micro=8`" in help for help in helps), helps


def test_what_follows_a_value_after_of_is_read():
    found = checked(f"{HEAD.rstrip()} with batch size of 8 seq 512\n").problems
    assert [one.code for one in found if one.severity == "error"] == ["XP101", "XP104"], found
    assert [edit.text for one in found if one.code == "XP104" for edit in one.edits] == ["seq=512"]
