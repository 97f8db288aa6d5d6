"""Read nested mappings of JSON, YAML and Python: `{"optimizer": {"params": {"lr": 1e-5}}}` has the name
`optimizer.params.lr` with the value `1e-5`. Imported only for such a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

TOKEN = re.compile(r"\s*(?:(\"[^\"\n]*\"|'[^'\n]*')|([{}\[\],:=])|([^\s,{}\[\]:=\"'#]+)|(?:#|//)[^\n]*)")
NAME = re.compile(r"[A-Za-z_][\w.-]*")
LINE = re.compile(
    r"(?P<indent>[ \t]*)(?P<quote>[\"']?)(?P<name>[A-Za-z_][\w.-]*)(?P=quote)[ \t]*:(?:[ \t]+(?P<value>[^\s#].*?))?"
    r"[ \t]*(?:[ \t]#.*)?"
)
ITEM = re.compile(r"[ \t]*-[ \t]+(?P<item>[^\s#:{][^#:]*?)[ \t]*(?:#.*)?")
DEEPEST = 8
LONGEST = 4000
"""A text with more characters than this is not read."""

Members = list[tuple[str, str]]


def members(text: str) -> Members | None:
    """The innermost names of a mapping in braces, dotted, with their values as text. None for any other text."""
    tokens = [one[1] or one[2] or one[3] for one in TOKEN.finditer(text)] if len(text) <= LONGEST else []
    tokens = [one for one in tokens if one]
    if tokens[:1] != ["{"] or re.sub(r"\s|(?:#|//)[^\n]*", "", text) != re.sub(r"\s", "", "".join(tokens)):
        return None
    found = _mapping(tokens, 1, "", 0)
    return found[0] if found is not None and found[1] == len(tokens) else None


def _mapping(tokens: Sequence[str], at: int, prefix: str, depth: int) -> tuple[Members, int] | None:
    """Return a pair: the members of the mapping whose first name is the token with the index `at`, and the index of the
    token after the mapping's closing brace. None if the mapping cannot be read.
    """
    out: Members = []
    while at < len(tokens) and depth < DEEPEST:
        if tokens[at] == "}":
            return out, at + 1
        name = tokens[at].strip("\"'")
        if not NAME.fullmatch(name) or tokens[at + 1 : at + 2] not in ([":"], ["="]) or at + 2 >= len(tokens):
            return None
        at += 2
        if tokens[at] == "{":
            inside = _mapping(tokens, at + 1, f"{prefix}{name}.", depth + 1)
            if inside is None:
                return None
            out, at = [*out, *inside[0]], inside[1]
        else:
            value, at = _value(tokens, at)
            if not value:
                return None
            out.append((prefix + name, value))
        if tokens[at : at + 1] == [","]:
            at += 1
        elif tokens[at : at + 1] != ["}"]:
            return None
    return None


def _value(tokens: Sequence[str], at: int) -> tuple[str, int]:
    """Return a pair: the value that begins with the token `at` ("" for a list of mappings), and the index of the token
    after the value.
    """
    if tokens[at] != "[":
        return (tokens[at], at + 1) if tokens[at] not in "},:=]" else ("", at)
    end = next((index for index in range(at, len(tokens)) if tokens[index] == "]"), at)
    inside = tokens[at + 1 : end]
    legal = end > at and not {"{", "["}.intersection(inside)
    return (f"[{', '.join(one for one in inside if one != ',')}]", end + 1) if legal else ("", at)


def members_of_yaml(lines: Sequence[str]) -> Members | None:
    """The innermost names of indented lines of YAML, dotted, with their values as text. None for other lines."""
    out: Members = []
    opened: list[tuple[int, str]] = []
    for line in lines:
        if not line.split("#")[0].strip():
            continue
        item = ITEM.fullmatch(line)
        if item is not None and opened:
            name = opened[-1][1]
            before = f"{out.pop()[1][1:-1]}, " if out and out[-1][0] == name else ""
            out.append((name, f"[{before}{item['item']}]"))
            continue
        match = LINE.fullmatch(line)
        if match is None:
            return None
        indent = len(match["indent"])
        while opened and indent <= opened[-1][0]:
            opened.pop()
        name = f"{opened[-1][1]}.{match['name']}" if opened else match["name"]
        value = match["value"]
        if value is None:
            opened.append((indent, name))
        elif value[:1] == "{":
            inside = members(value)
            if inside is None:
                return None
            out += [(f"{name}.{one}", typed) for one, typed in inside]
        else:
            out.append((name, value))
    return out or None
