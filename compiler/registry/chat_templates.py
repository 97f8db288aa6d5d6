"""The built-in chat templates. They are written for xpc and render the same text as the published templates. In
addition, they mark the assistant's answers with `{% generation %}`.

`TEMPLATES` in `model_choices.py` lists the names of the built-in templates. The first line of a template's file says
which published template it follows.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache

from xpc.compiler.registry.tables import table
from xpc.grammar.package_data import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
TUNED = re.compile(r"-(instruct|it|chat|sft|thinking|qlora|checkpoints|rope|constitutional)\b")
"""Matches the aliases of models that were tuned on chats. Such a model has learned to end its turns."""
NO_SYSTEM = ("gemma", "mistral")
"""Built-in templates that raise an exception for a system prompt, as the published templates do."""


@cache
def text(name: str) -> bytes:
    """The Jinja text of a built-in template."""
    with open(os.path.join(FOLDER, name + ".jinja"), "rb") as handle:
        return handle.read()


def forms() -> dict[str, dict[str, Any]]:
    """Map each built-in template to facts: the kinds of rows with which it fails (`refused`, such as "system"), parts
    of rows that it does not write (`left_out`, such as "tool_calls"), and whether a run can train on its tool calls.
    """
    return read_json(__file__, "template_forms.json")


def callable_templates() -> tuple[str, ...]:
    """The built-in templates whose tool calls trl can parse in a completion. The template that most models use comes
    first.
    """
    return tuple(sorted((name for name, form in forms().items() if form["calls_trained"]), reverse=True))


def writes_calls(name: str) -> bool:
    """Whether a built-in template writes tool calls and their results."""
    return not {"tool", "tool_calls"} & {*forms()[name]["left_out"], *forms()[name]["refused"]}


def argument_lines(arguments: Sequence[tuple[str, bool | int | float | str]]) -> str:
    """Return Jinja lines that set default values for a template's arguments. A row's `chat_template_kwargs`, or a
    request to a server, may replace a default. The lines add no newlines to the rendered text, because transformers
    drops the newline after each `{% set ... %}`.
    """
    return "".join(
        f"{{% set {name} = {name} if {name} is defined else {json.dumps(value, ensure_ascii=False)} %}}\n"
        for name, value in arguments
    )


def with_arguments(data: bytes, arguments: Sequence[tuple[str, bool | int | float | str]]) -> bytes:
    """Put the `argument_lines` before the text of a template, unless the text already begins with these lines."""
    lines, body = argument_lines(arguments).encode(), data.removeprefix(b"\xef\xbb\xbf")
    return data if body.startswith(lines) else lines + body


def base_end(model: str) -> str | None:
    """The end token of the registered base model with this alias. None for any other alias."""
    if TUNED.search(model) or (model.startswith(("qwen3-", "smollm3-")) and not model.endswith("-base")):
        return None
    return _of_alias(_tables()["base_ends"], model)


def native(model: str) -> str | None:
    """The name of the built-in template for the registered model with this alias: "llama3" for `llama-3-8b-instruct`.
    None if the model has no built-in template.
    """
    return _of_alias(_tables()["native"], model)


def alike(template: str) -> str | None:
    """The name of a built-in template with the same control tokens around turns as the given template. None if no
    built-in template has these tokens.
    """
    groups = _tables()["control_tokens"]["groups"]
    return next((one.get("like") for one in groups if all(token in template for token in one["tokens"])), None)


def new_tokens(template: str, model: str) -> tuple[str, ...]:
    """The control tokens of a template that are not in the vocabulary of a registered model. Empty if no token is known
    to be missing.
    """
    known = _tables()["control_tokens"]
    older = model.startswith(tuple(known["lacked_by_older"]))
    lacked = [one["tokens"] for one in known["groups"] if older or model.startswith(tuple(one["lacked_by"]))]
    return tuple(token for tokens in lacked for token in tokens if token in template)


def _tables() -> dict[str, Any]:
    """The tables of chat_templates.toml."""
    return table("chat_templates")


def _of_alias(table: Mapping[str, Sequence[str]], model: str) -> str | None:
    """The first key of a table whose list contains a prefix of the model's alias."""
    return next((key for key, begins in table.items() if model.startswith(tuple(begins))), None)
