"""Tables of TOML as text: strings and numbers, one a line."""

from __future__ import annotations

import json
from collections.abc import Mapping

_json = json.JSONEncoder(ensure_ascii=False).encode


def table(name: str, rows: Mapping[str, str | int | None]) -> str:
    """A table with its head; `[name]` for one of an array. TOML has no null: what is not known is left out."""
    lines = [f"{key(one)} = {value(held)}\n" for one, held in rows.items() if held is not None]
    return f"[{name}]\n{''.join(lines)}"


def key(name: str) -> str:
    """A name, in quotes where it needs them."""
    return name if name.isascii() and name.replace("-", "a").replace("_", "a").isalnum() else value(name)


def value(held: str | int) -> str:
    """A number, or a basic string: JSON's escapes are TOML's, but for DEL."""
    return _json(held).replace("\x7f", "\\u007f")
