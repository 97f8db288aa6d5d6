"""A reward function may read a column that the script computes. Then the file that `--rewards` writes also computes
this column.
"""

from __future__ import annotations

from typing import Any

import pytest
from import_support import Imported, imported

SCRIPT = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
MARK = "####"
def gold(text):
    return text.split(MARK)[-1].strip()
def right(completions, answer, **kwargs):
    return [float(one == wanted) for one, wanted in zip(completions, answer)]
def rows(system):
    data = load_dataset("org/rows", split="train")
    return data.map({function}{more})
data = rows("Think.")
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=[right], args=GRPOConfig("out"), train_dataset=data).train()
"""
PROMPT = "'prompt': [{'role': 'user', 'content': x['question']}]"


def script(function: str, *options: str, more: str = "") -> Imported:
    """Import a script in which a function builds the rows."""
    text = SCRIPT.replace("{function}", function).replace("{more}", more)
    return imported(text, *(options or ("--rewards", "my_rewards.py")), name="train.py")


def rewards(found: Imported, **columns: list[Any]) -> list[float]:
    """Run the reward function of the file that the import wrote, for two prompts; return its results."""
    scope: dict[str, Any] = {}
    # safe to run: the import copies this code from the scripts that this test file contains
    exec(found.draft.files["my_rewards.py"].decode(), scope)
    assert scope["right"].__name__ == "right"
    prompts = [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]]
    result: list[float] = scope["right"](prompts=prompts, completions=["7", "8"], **columns)
    return result


@pytest.mark.parametrize(("function", "columns"), [
    (f"lambda x: {{{PROMPT}, 'answer': gold(x['solution'])}}", {"solution": ["s #### 7", "s #### 7"]}),
    (f"lambda x: {{{PROMPT}, 'answer': gold(x['answer'])}}", {"answer": ["s #### 7", "s #### 7"]}),
    (f"lambda x: {{{PROMPT}, 'answer': x['solution']}}", {"solution": ["7", "7"]}),
    (f"lambda x: {{{PROMPT}, 'answer': '7'}}", {}),
])  # fmt: skip
def test_column_is_made_by_the_written_file(function: str, columns: dict[str, list[str]]) -> None:
    found = script(function)
    assert not found.draft.wrong, found.messages
    assert rewards(found, **columns) == [1.0, 0.0]


@pytest.mark.parametrize(("function", "more"), [
    (f"lambda x: {{{PROMPT}, 'answer': gold(x['question'])}}", ""),
    (f"lambda x: {{{PROMPT}, 'answer': gold(x['solution'] + system)}}", ""),
    ("lambda x: {'prompt': x['question'], 'answer': [gold(one) for one in x['solution']]}", ", batched=True"),
])  # fmt: skip
def test_column_that_the_file_cannot_make_is_an_error(function: str, more: str) -> None:
    found = script(function, more=more)
    assert any("the column `answer`" in one for one in found.messages if one.startswith("error")), found.messages


def test_column_without_a_file_for_the_rewards_is_an_error() -> None:
    found = script(f"lambda x: {{{PROMPT}, 'answer': gold(x['solution'])}}", "--hardware", "1 x h100-80gb")
    assert any("the column `answer`: only the script's code computes this" in one for one in found.messages)
    assert any("`--rewards FILE` writes the functions" in one.help for one in found.draft.messages)
