"""A script may create its reward functions at run time: by a factory, a class or `functools.partial`. `xpc import
--rewards FILE` writes code into FILE that creates them in the same way. Without `--rewards`, the import writes a file
with only their signatures.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from import_support import Imported, imported

MADE = """
from functools import partial
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
BASE = 2
def score(text):
    return float(len(text)) / BASE
def make(limit, sign=1):
    top = limit * 2
    def short(completions, **kwargs):
        return [sign * score(one) if len(one) < top else 0.0 for one in completions]
    return short
def times(reward, factor):
    def product(completions, **kwargs):
        return [factor * one for one in reward(completions, **kwargs)]
    return product
class LengthJudge:
    def __call__(self, prompts, completions, answer: list, **kwargs):
        return [1.0 for _ in completions]
def scaled(completions, factor, **kwargs):
    return [factor for _ in completions]
def constant(completions, **kwargs):
    return [float(one == two) for one, two in zip(completions, kwargs.get("answer", []))]
def train():
    def inner(completions, **kwargs):
        return [0.0 for _ in completions]
    data = load_dataset("org/rows", split="train"){columns}
    GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=[{rewards}], args=GRPOConfig("out"), train_dataset=data).train()
train()
"""


def made(rewards: str, *options: str, columns: str = "") -> Imported:
    text = MADE.replace("{rewards}", rewards).replace("{columns}", columns)
    return imported(text, *options, name="train.py")


def names(found: Imported) -> list[str]:
    return re.findall(r"\.py:(\w+)", found.draft.settings["method.rewards"].text)


def test_rewards_of_a_factory_are_made_by_the_written_file() -> None:
    found = made("make(3), make(9, sign=-1)", "--rewards", "my_rewards.py")
    assert not found.draft.wrong, found.messages
    assert names(found) == ["short", "short_2"]
    scope: dict[str, Any] = {}
    # the importer has copied the function of the script that makes the rewards
    exec(found.draft.files["my_rewards.py"].decode(), scope)
    assert scope["short"](completions=["aaaa", "aaaaaaaa"], prompts=[]) == [2.0, 0.0]
    assert scope["short_2"](completions=["aaaa", "aaaaaaaa"], prompts=[]) == [-2.0, -4.0]
    assert "GRPOTrainer" not in scope


def test_a_factory_may_get_another_reward() -> None:
    found = made("times(constant, 0.5)", "--rewards", "my_rewards.py")
    assert not found.draft.wrong, found.messages
    scope: dict[str, Any] = {}
    exec(found.draft.files["my_rewards.py"].decode(), scope)
    assert scope["product"](completions=["a", "b"], prompts=[], answer=["a", "c"]) == [0.5, 0.0]


@pytest.mark.parametrize(
    "rewards", ["inner", "times(inner, 2.0)", "LengthJudge()", "partial(scaled, factor=0.5)", "make(open('n').read())"]
)
def test_rewards_that_no_file_can_make_are_an_error_with_rewards(rewards: str) -> None:
    found = made(rewards, "--rewards", "my_rewards.py")
    assert found.draft.wrong
    assert any("reward_funcs" in one for one in found.messages)


def test_rewards_that_the_script_makes_have_stubs() -> None:
    found = made("make(3), LengthJudge(), partial(scaled, factor=0.5), lambda completions, **more: [0.0], inner")
    assert names(found) == ["short", "length_judge", "scaled", "reward", "inner"]
    text = found.draft.files["rewards.py"].decode()
    for line in (
        "short(completions, **kwargs)",
        "length_judge(prompts, completions, answer, **kwargs)",
        "scaled(completions, **kwargs)",
        "reward(completions, **more)",
        "inner(completions, **kwargs)",
    ):
        assert f"def {line}:" in text
    assert any("only the script's code computes this" in one for one in found.messages)


def test_rewards_of_a_factory_get_the_columns_that_the_script_computes() -> None:
    columns = ".map(lambda x: {'prompt': [{'role': 'user', 'content': x['question']}], 'answer': x['solution']})"
    found = made("constant, make(3)", "--rewards", "my_rewards.py", columns=columns)
    assert not found.draft.wrong, found.messages
    text = found.draft.files["my_rewards.py"].decode()
    assert "constant = _with_columns(constant)" in text
    assert "short = _with_columns(short)" in text
