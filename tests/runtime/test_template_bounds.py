"""A chat template that does not end, or writes without bound, is reported before rows are converted."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.model import chat_template
from xpc.runtime.features.model.chat_template import ChatTemplate

NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}@{% endfor %}{% endfor %}"
BUNDLE: Any = SimpleNamespace(
    tokenizer={"chat_template": None},
    row_format=lambda: SimpleNamespace(conversations=lambda row: [row["messages"]]),
)
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"


def tokenizer(template: str) -> Any:
    jinja = pytest.importorskip("jinja2.sandbox")
    compiled = jinja.ImmutableSandboxedEnvironment().from_string(template)

    def apply_chat_template(messages: Any, tokenize: bool) -> str:
        return str(compiled.render(messages=messages))

    return SimpleNamespace(chat_template=template, apply_chat_template=apply_chat_template)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 0.3)


@pytest.mark.parametrize("inner", ["", "x", "{% set y = 1 %}"])
def test_a_template_that_does_not_end_stops_the_launch(inner: str) -> None:
    start = time.monotonic()
    with pytest.raises(RunError, match="for more than 0 s: it may never end"):
        ChatTemplate().tokenizer_loaded(BUNDLE, tokenizer(NESTED.replace("@", inner)))
    assert time.monotonic() - start < 20


def test_a_template_that_does_not_end_for_a_row_stops_the_launch() -> None:
    template = "{% if messages|length > 2 %}" + NESTED + "{% endif %}" + PLAIN
    made = tokenizer(template)
    ChatTemplate().tokenizer_loaded(BUNDLE, made)
    row = {"messages": [{"role": "user", "content": "x"}] * 3}
    with pytest.raises(RunError, match=r"writes row 0 of rows\.jsonl for more than"):
        ChatTemplate().check_first_row(BUNDLE, "rows.jsonl", row, made)


def test_a_large_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "LARGEST", 1000)
    with pytest.raises(RunError, match="writes 2,000 characters for a conversation of two words"):
        ChatTemplate().tokenizer_loaded(BUNDLE, tokenizer("{{ 'x' * 2000 }}"))


@pytest.mark.parametrize("template", [PLAIN, "{{ raise_exception('no') }}", "{{ missing.name }}"])
def test_other_templates_are_not_stopped(template: str) -> None:
    ChatTemplate().tokenizer_loaded(BUNDLE, tokenizer(template))
