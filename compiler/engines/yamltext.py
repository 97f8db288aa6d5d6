"""Write nested dicts and lists as YAML. A string is written in quotes or as a literal block. Equal values give equal
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xpc.compiler.stacks import Json

WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"})
"""Keys that are written in quotes, because some parsers of YAML 1.1 read them as booleans, null or numbers."""


def document(table: Mapping[str, Json], comment: str) -> str:
    """Write a table as a YAML document, below the lines of `comment`. Parsing the document gives the same table."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    return "\n".join(lines + _mapping(table, "")) + "\n"


def _mapping(table: Mapping[str, Json], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in table.items():
        lines += _under(f"{indent}{_key(key)}:", value, indent)
    return lines


def _under(head: str, value: Json, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        return [head, *_mapping(value, indent + "  ")]
    if isinstance(value, list) and value:
        lines = [head]
        for item in value:
            if isinstance(item, dict) and item:
                inner = _mapping(item, indent + "    ")
                lines += [f"{indent}  - {inner[0].lstrip()}", *inner[1:]]
            else:
                lines += _under(f"{indent}  -", item, indent + "  ")
        return lines
    if isinstance(value, str) and _is_block(value):
        return [f"{head} |", *(f"{indent}  {line}" if line else "" for line in value.splitlines())]
    return [f"{head} {_scalar(value)}"]


def _is_block(text: str) -> bool:
    """Whether a text, such as a script, can be written as a literal block: whether it has several lines
    of plain ASCII.
    """
    lines = text.split("\n")
    plain = all(" " <= c <= "~" or c == "\n" for c in text)
    return plain and len(lines) > 2 and not lines[-1] and bool(lines[-2].strip()) and lines[0][:1] not in ("", " ")


def _key(key: str) -> str:
    plain = key[:1].isalpha() and all(c.isascii() and (c.isalnum() or c in "._/-") for c in key)
    return key if plain and key.lower() not in WORDS else _scalar(key)


def _scalar(value: Json) -> str:
    """Write a number, a keyword such as `true`, or a string in quotes. A string is escaped as in JSON, except that
    characters above U+FFFF are escaped as in YAML.
    """
    if not isinstance(value, str):
        # repr gives 1e-05, which YAML 1.1 reads as a string; it reads 1.0e-05 as a number
        text = json.dumps(value, allow_nan=False)
        return text.replace("e", ".0e", 1) if isinstance(value, float) and "." not in text else text
    out = []
    for c in value:
        if ord(c) > 0xFFFF:
            out.append(f"\\U{ord(c):08X}")
        else:
            out.append("\\x7f" if c == "\x7f" else json.dumps(c)[1:-1])
    return '"' + "".join(out) + '"'
