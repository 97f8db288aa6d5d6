"""A prompt can be made by a template from several columns of a row, and the system prompt can come from a column."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import chat, prompts
from xpc.runtime.features.rows.prompt_template import PromptTemplate

QUESTION = {"shape": "prompt_completion", "columns": ["question", "answer"], "path": "rows.jsonl", "id": None}
TALKS = {"shape": "messages", "columns": None, "path": "rows.jsonl", "id": None}
TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def read(source: dict[str, Any], row: dict[str, Any], system: str | None = None, **data: str) -> dict[str, Any]:
    known = chat.FORMAT if source is TALKS else prompts.FORMAT
    bundle = SimpleNamespace(data=data, row_format=lambda: known)
    found = PromptTemplate().row_converter(bundle, known.to_row)(source, row, 3, system=system)  # type: ignore[arg-type]
    return dict(found)


@pytest.mark.parametrize(
    ("template", "more", "prompt"),
    [
        ("Q: {{ question }}\n", {}, "Q: 2 + 2?\n"),
        ("{{ question }}|{{ unit }}|", {"unit": None}, "2 + 2?||"),
        ("{% if unit is defined and unit %}{{ unit }}: {% endif %}{{ question }}", {}, "2 + 2?"),
        ("{% if unit is defined and unit %}{{ unit }}: {% endif %}{{ question }}", {"unit": "m"}, "m: 2 + 2?"),
        ("{{ question }} {{ number }}", {"number": 7}, "2 + 2? 7"),
    ],
)
def test_a_template_makes_the_prompt(template: str, more: dict[str, Any], prompt: str) -> None:
    row = {"question": "2 + 2?", "answer": "4", **more}
    assert read(QUESTION, row, prompt_template=template) == {"prompt": prompt, "completion": "4"}


def test_a_template_makes_the_question_of_a_conversation() -> None:
    found = read({**QUESTION, "wording": "chat"}, {"question": "2 + 2?", "answer": "4", "system": "Count."},
                 prompt_template="Q: {{ question }}", system_column="system")  # fmt: skip
    assert [turn["content"] for turn in found["prompt"]] == ["Count.", "Q: 2 + 2?"]


@pytest.mark.parametrize("template", ["{{ absent }}", "{{ question", "{% if %}", "{{ question.__class__.__mro__ }}"])
def test_a_template_that_cannot_be_filled_in_is_reported_with_its_row(template: str) -> None:
    with pytest.raises(RunError, match=r"row 3: prompt_template"):
        read(QUESTION, {"question": "2 + 2?", "answer": "4"}, prompt_template=template)


@pytest.mark.parametrize(
    ("row", "spec", "output"),
    [
        ({"persona": "Be kind."}, "Be brief.", "Be kind."),
        ({"persona": ""}, "Be brief.", "Be brief."),
        ({"persona": None}, "Be brief.", "Be brief."),
        ({}, None, None),
    ],
)
def test_the_system_prompt_of_a_row_comes_before_that_of_the_spec(
    row: dict[str, Any], spec: str | None, output: str | None
) -> None:
    found = read(TALKS, {"messages": TURNS, **row}, spec, system_column="persona")["messages"]
    assert [turn["content"] for turn in found if turn["role"] == "system"] == ([output] if output else [])


def test_a_conversation_keeps_its_own_system_prompt() -> None:
    own = [{"role": "system", "content": "Own."}, *TURNS]
    assert read(TALKS, {"messages": own, "persona": "Other."}, system_column="persona")["messages"] == own


def test_a_system_prompt_is_text() -> None:
    with pytest.raises(RunError, match="the persona is int"):
        read(TALKS, {"messages": TURNS, "persona": 4}, system_column="persona")


def test_a_judged_answer_may_be_the_last_turn() -> None:
    source = {"shape": "unpaired", "columns": ["messages", "label"], "path": "rows.jsonl", "id": None}
    found = prompts.to_row(source, {"messages": TURNS, "label": True}, 0, method="kto")
    assert found == {"prompt": TURNS[:1], "completion": TURNS[1:], "label": True}
    with pytest.raises(RunError, match="does not end with an answer"):
        prompts.to_row(source, {"messages": TURNS[:1], "label": True}, 0, method="kto")
    with pytest.raises(RunError, match="does not end with an answer"):
        prompts.to_row(source, {"messages": [*TURNS, TURNS[0]], "label": True}, 0, method="kto")
    with pytest.raises(RunError, match="does not end with an answer"):
        prompts.to_row(source, {"messages": TURNS[1:2], "label": True}, 0, method="kto")
