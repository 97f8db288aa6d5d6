"""Test conversations for chat templates, and a function that renders them as transformers does, but with a fixed
date.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
"""Values for the special tokens that templates name. Both templates of a comparison get the same values."""


def turn(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    """Make a turn of a conversation."""
    return {"role": role, "content": content, **more}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Make a tool call in the form that templates read."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "what it's <like>", "parameters": {"city": {"type": "string"}}},
}
SUM = {"type": "function", "function": {"name": "sum", "parameters": {"type": "object", "properties": {}}}}

Q, A = turn("user", "How much is 2 + 2?"), turn("assistant", "\n\nIt is 4.\n")
Q2, A2 = turn("user", " And 3 + 3? \n"), turn("assistant", "<think>\n3 + 3\n</think>\n<answer>\n6\n</answer>")
PLAIN: dict[str, list[dict[str, Any]]] = {
    "one turn": [Q, A],
    "a question alone": [Q],
    "several turns": [Q, A, Q2, A2, Q],
    "a system prompt": [turn("system", "Be kind.  "), Q, A],
    "a system prompt and turns": [turn("system", "Be kind."), Q, A, Q2, A2],
    "an empty answer": [Q, turn("assistant", ""), Q2],
    "quotes and braces": [
        turn("user", "{{ 'x' }} {% if %} \"y\" \\n <|user|> é 日本 🙂"),
        turn("assistant", "{# no #}"),
    ],
    "thinks": [turn("system", "Be kind. /think"), Q, A],
    "does not think": [turn("system", "Be kind. /no_think"), Q, A, Q2, A2],
    "no thought and no prompt": [turn("system", "/no_think"), Q, A],
    "system override": [turn("system", "Only this. /system_override"), Q, A],
    "a system prompt later": [Q, A, turn("system", "Be brief."), Q2, A2],
}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "a tool": [Q, turn("assistant", "", tool_calls=[call("sum", a=2, b=2)]), turn("tool", "4"), A],
    "a thought before a tool": [Q, turn("assistant", "Let me add.", tool_calls=[call("sum")]), turn("tool", "4"), A],
    "two tools": [
        turn("system", "Use tools."), Q,
        turn("assistant", "", tool_calls=[call("sum", a="2"), call("weather", city="Ulm")]),
        turn("tool", "4"), turn("tool", "rain"), A, Q2,
    ],
    "a tool first and last": [turn("tool", "4"), A, Q2, turn("tool", "6")],
}  # fmt: skip
NONE_CALLS: dict[str, list[dict[str, Any]]] = {
    "calls without content": [
        Q,
        turn("assistant", None, tool_calls=[{"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]),
        turn("tool", "1"), A, Q2,
        turn("assistant", None, tool_calls=[
            {"type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"type": "function", "function": {"name": "g", "arguments": "{}"}},
        ]),
        turn("tool", "2"), turn("tool", "3"),
    ],
}  # fmt: skip
"""Conversations with tool calls in the form that DeepSeek's template needs: a turn with calls has no content, and
arguments are JSON text.
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "with the answer's opening": {"add_generation_prompt": True},
    "without thoughts": {"enable_thinking": False, "add_generation_prompt": True},
    "with tools": {"tools": [WEATHER, SUM]},
    "with python tools": {"python_tools": "run(code)", "tools": [SUM], "enable_thinking": True},
}


def cases(tools: bool, calls_without_content: bool) -> list[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """Every conversation with every option, by name."""
    talks = {**PLAIN, **(TOOLS if tools else {}), **(NONE_CALLS if calls_without_content else {})}
    return [(f"{talk}; {how}", turns, more) for talk, turns in talks.items() for how, more in OPTIONS.items()]


def render(template: str, turns: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Render a conversation. Return the text, and the spans that are inside a `generation` block. A span is a pair of
    character positions: its begin and its end.
    """
    from transformers.utils import chat_template_utils as chat

    compiled = chat._compile_jinja_template(template)
    compiled.globals["strftime_now"] = lambda form: datetime(2025, 7, 8).strftime(form)
    tools = more.pop("tools", None)
    text, spans = chat._render_with_assistant_indices(
        compiled, turns, tools, None, more.pop("add_generation_prompt", False), **SPECIAL, **more
    )
    return {"text": text, "spans": [list(span) for span in spans]}
