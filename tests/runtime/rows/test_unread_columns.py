"""A column of the data may say how a row should be trained on, although no trainer reads such a column. A run reports
these columns for every source.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.core.errors import RunError
from xpc.runtime.core.rows import KEPT
from xpc.runtime.features.messages import unread_columns
from xpc.runtime.features.rows import prompts

ASK, ANSWER = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}
TALK = [ASK, ANSWER]


class Stored(list[Any]):
    """Rows with those methods of a dataset that the tested code calls."""

    @property
    def column_names(self) -> list[str]:
        return list(dict.fromkeys(key for row in self for key in row))

    def select_columns(self, names: list[str]) -> Stored:
        return Stored({name: row.get(name) for name in names} for row in self)


def check(shape: str, *rows: dict[str, Any], method: str = "sft", **data: Any) -> None:
    bundle: Any = SimpleNamespace(data=data, method=method, row_format=lambda: prompts.FORMAT)
    source = {"id": "org/name", "shape": shape, "columns": None}
    unread_columns.check(bundle, source, Stored(rows))


@pytest.mark.parametrize(
    ("shape", "row", "words"),
    [
        ("messages", {"messages": TALK, "documents": ["The sky is blue."]}, "texts in a column `documents`"),
        ("messages", {"messages": TALK, "weight": 0.5}, "a `weight` other than 1"),
        ("messages", {"messages": TALK, "system_prompt": "Be brief."}, "a column that is not called `system`"),
        ("prompt_completion", {"prompt": "2", "completion": "3", "history": [["a", "b"]]}, "a column `history`"),
        ("prompt_completion", {"prompt": "2", "completion": "3", "label": False}, "a `label` of false"),
        ("preference", {"prompt": "2", "chosen": "3", "rejected": "4", "documents": ["5"]}, "a column `documents`"),
        ("unpaired", {"prompt": "2", "completion": "3", "label": True, "history": [["a", "b"]]}, "a column `history`"),
        ("preference", {"prompt": "2", "chosen": "3", "rejected": "4", "score_chosen": 1, "score_rejected": 5},
         "a lower score for `chosen`"),
        ("messages", {"messages": TALK, "reasoning": "2 and 2"}, "reasoning in a column of its own"),
        ("prompt_completion", {"prompt": "2", "completion": "3", "cot": "2, 3"}, "reasoning in a column of its own"),
        ("preference", {"chosen": "The sun.", "rejected": "The moon."}, "a common question, and no prompt"),
        ("preference", {"chosen": "3", "rejected": "4"}, "without a common question, and no prompt"),
    ],
)  # fmt: skip
def test_a_column_is_reported(shape: str, row: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    read = ("messages", "prompt", "completion", "chosen", "rejected", *(["label"] if shape == "unpaired" else []))
    check(shape, {name: value if name in read else None for name, value in row.items()}, row)
    printed = capsys.readouterr().out
    assert words in printed
    assert printed.startswith("[run] org/name: ")
    assert printed.endswith(f"which sft does not read (row {int('no prompt' not in words)} is the first)\n")


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        ("messages", {"messages": TALK, "documents": [], "weight": 1, "label": True}),
        ("messages", {"messages": [{"role": "system", "content": "Be."}, *TALK], "system_prompt": "Be brief."}),
        ("messages", {"messages": TALK, "tools": [{"name": KEPT[0]}], "system": "Be brief.", "id": 4}),
        ("preference", {"chosen": [ASK, ANSWER], "rejected": [ASK, {**ANSWER, "content": "5"}]}),
    ],
)
def test_other_columns_are_not_reported(shape: str, row: Any, capsys: pytest.CaptureFixture[str]) -> None:
    check(shape, row)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("method", "column", "words"),
    [
        ("distill", {"documents": ["The sky."]}, "texts in a column `documents`, which distill does not read"),
        ("distill", {"weight": 0}, "a `weight` other than 1, which distill does not read"),
        ("grpo", {"documents": ["The sky."]}, "`documents`, which only reward functions read"),
        ("rloo", {"history": [["a", "b"]]}, "a column `history`, which only reward functions read"),
        ("grpo", {"system_prompt": "Be brief."}, "not called `system`, which only reward functions read"),
        ("grpo", {"weight": 0, "solution": 4}, ""),
    ],
)
def test_unread_columns_next_to_prompts_are_reported(
    method: str, column: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check("prompt", {"prompt": "2", **column}, method=method)
    printed = capsys.readouterr().out
    assert bool(printed) == bool(words)
    assert words in printed


def test_a_named_system_column_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    check("messages", {"messages": TALK, "system_prompt": "Be brief."}, system_column="system_prompt")
    assert capsys.readouterr().out == ""


def test_pairs_without_their_question_stop_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    pair = {"instruction": "Which is warm?", "chosen": "The sun.", "rejected": "The moon."}
    with pytest.raises(RunError, match=r"org/name: the question of each pair is in a column .*data\(prompt=question\)"):
        check("preference", pair, pair)
    check("preference", {**pair, "instruction": ""}, pair)
    assert "1 of 2 compared rows have the question in a column other than `prompt`" in capsys.readouterr().out
