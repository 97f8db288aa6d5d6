"""Text prompts of grpo and rloo become user turns, so a chat template and a system prompt are used."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_support import spec
from compile_support import checked, put

ROWS = '{"prompt": "2 + 2?", "solution": "$4$", "system": "Be short."}\n' * 40


@pytest.mark.parametrize("setting", [
    "chat_template = qwen2.5", 'data(system="Be short.")', "data(system_column=system)", "seed 7",
])  # fmt: skip
@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_the_template_and_the_system_prompt_of_texts_are_used(method: str, setting: str, tmp_path: Path) -> None:
    train = 'qwen2.5-3b-instruct on "rows.jsonl" for 3 epochs'
    text = spec(f"method {method}(rewards=accuracy)", setting, train=train, batch="gbs=128 micro=16")
    found = {one.code for one in checked(text, put(tmp_path, {"rows.jsonl": ROWS})).problems}
    assert not found & {"XP546", "XP557", "XP558", "XP774"}


def test_a_template_without_a_place_refuses_a_system_prompt_for_texts(tmp_path: Path) -> None:
    train = 'qwen2.5-3b-instruct on "rows.jsonl" for 3 epochs'
    settings = ("method grpo(rewards=accuracy)", "chat_template = gemma", 'data(system="Be short.")')
    found = checked(spec(*settings, train=train, batch="gbs=128 micro=16"), put(tmp_path, {"rows.jsonl": ROWS}))
    assert "XP567" in {one.code for one in found.problems}
