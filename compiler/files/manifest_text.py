"""Read the text of a manifest quickly, if it is written as the compiler writes it.

`tomllib` takes milliseconds for a manifest, and a sweep has up to 10,000 members. For the lines that the compiler
writes, `tables` returns the same as `tomllib`. For any other text it returns None, even if the text is valid TOML.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINE = re.compile(
    r"""(?:#[^\x00-\x08\n-\x1f\x7f]*)?"""
    r"""|(?P<list>\[\[data\]\])|\[(?P<table>[a-z]+)\]"""
    r"""|(?P<key>[A-Za-z0-9_-]+|"[^"\\\x00-\x1f\x7f]*") = """
    r"""(?:(?P<text>"[^"\\\x00-\x1f\x7f]*")|"""
    r"""(?P<value>"(?:[^"\\\x00-\x1f\x7f]|\\["\\bfnrt])*"|0|[1-9][0-9]{0,17}|true|false))"""
)
"""Matches a line of a manifest. The group `text` is a string without escapes, which needs no decoding; most values are
such strings. The group `value` is any other value.
"""
DATA = "data"


def tables(data: bytes) -> dict[str, Any] | None:
    """The tables of a manifest by name. None if the text has a line that the compiler would not write, or has a table
    or a key twice.
    """
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    out: dict[str, Any] = {}
    table: dict[str, Any] | None = None
    for line in lines:
        found = LINE.fullmatch(line)
        if found is None:
            return None
        entries, name, key, text, value = found.groups()
        if key:
            key = key[1:-1] if key.startswith('"') else key
            if table is None or key in table:
                return None
            table[key] = json.loads(value) if text is None else text[1:-1]
        elif entries:
            table = {}
            out.setdefault(DATA, []).append(table)
        elif name:
            if name in out or name == DATA:
                return None
            table = out[name] = {}
    return out
