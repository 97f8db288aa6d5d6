"""The text that is shown for a word under the mouse: its explanation and, if the word is a setting, the setting's value
in this spec and the arguments that it becomes.
"""

from __future__ import annotations

import re

from xpc.compiler.explain.spec_values import value_here
from xpc.compiler.explain.texts import explain
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language_server.cursor_context import CursorContext, setting_named, setting_of_value
from xpc.compiler.pipeline import Checked


def hover(location: CursorContext, checked: Checked) -> str | None:
    """The explanation of a word in Markdown, or None for an unknown word."""
    path, word = setting_of_value(location) or setting_named(location), location.token.text
    about = None if path not in BY_PATH and word.startswith('"') else explain(path or re.split(r"[:\[]", word)[0])
    # the word is a part of `hardware 8 x h100-80gb`, or of `with 2 x cpu` in the first line
    if not path and (location.clause == "hardware" or location.follows == "x") and not location.key:
        count = word in ("x", "cpu") or (word[:1].isdecimal() and about is None)
        about, path = explain("hardware") if count else about, "hardware"
    value = value_here(checked, path) if path in BY_PATH else None
    return _fenced(about) + (f"\n\nIn this spec:\n\n{_fenced(value)}" if value else "") if about else None


def _fenced(text: str) -> str:
    return f"```text\n{text}```"
