"""Build strings from parts: f-strings, `+`, `%` and `format`."""

from __future__ import annotations

import ast
import string

from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import (
    LONGEST,
    Argument,
    Bound,
    Choice,
    Class,
    Function,
    Instance,
    Scalar,
    Text,
    Unknown,
)

MOST_PARTS = 2_000
"""The largest number of parts from which a script may build a text."""


def joined(machine: Machine, parts: list[object], node: ast.AST) -> object:
    """Join parts to a string. Returns a str if all parts are known, a `Text` if parts are columns of a row, and
    `Unknown` if a part is unknown.
    """
    flat: list[object] = []
    # `texts` collects known strings until the next column; then they are joined and added to `flat`
    texts: list[str] = []
    length = 0
    for one in parts:
        for part in one.parts if isinstance(one, Text) else [one]:
            if isinstance(part, Unknown):
                return Unknown(part.why, part.location, part.hidden)
            if isinstance(part, Choice):
                return _chosen(machine, part, parts, node)
            if isinstance(part, list | tuple | dict | Function | Class | Instance | Bound):
                return machine.unknown(node, "it is a text made from a value that is neither a text nor a number")
            if isinstance(part, Scalar):
                texts.append(part if isinstance(part, str) else str(part))
                length += len(texts[-1])
                if length > LONGEST:
                    return machine.unknown(node, "its text is too long")
                continue
            flat += ["".join(texts), part] if texts else [part]
            if len(flat) > MOST_PARTS:
                return machine.unknown(node, "its text has too many parts")
            texts = []
    if texts:
        flat.append("".join(texts))
    if not flat:
        return ""
    return flat[0] if len(flat) == 1 and isinstance(flat[0], str) else Text(tuple(flat))


def _chosen(machine: Machine, choice: Choice, parts: list[object], node: ast.AST) -> object:
    """Join parts to a string, one of which (`choice`) depends on whether a column is empty. Returns a `Choice` between
    the string for an empty column and the string for a column with a value.
    """
    # each `Choice` among the parts doubles the number of strings, so the cost is limited
    machine.count(node, len(parts))
    at = next(n for n, one in enumerate(parts) if one is choice)
    full, empty = (joined(machine, [*parts[:at], one, *parts[at + 1 :]], node) for one in (choice.full, choice.empty))
    for one in (full, empty):
        if isinstance(one, Unknown):
            return one
    return Choice(choice.column, full, empty)


def percent(machine: Machine, left: str, right: object, node: ast.AST) -> object:
    """Evaluate `"text %s" % value`."""
    values = right if isinstance(right, tuple) else (right,)
    pieces = left.replace("%d", "%s").split("%s")
    if len(pieces) != len(values) + 1 or any("%" in one.replace("%%", "") for one in pieces):
        return machine.unknown(node, "a `%` format that the import cannot read")
    parts: list[object] = [pieces[0].replace("%%", "%")]
    for value, piece in zip(values, pieces[1:]):
        parts += [value, piece.replace("%%", "%")]
    return joined(machine, parts, node)


def formatted(
    machine: Machine, owner: str | Text, values: list[object], keywords: dict[str, Argument], node: ast.AST
) -> object:
    """Evaluate `text.format(...)`. A field with a format, such as `{x:.2f}`, makes the result unknown."""
    parts: list[object] = []
    automatic = 0
    for piece in owner.parts if isinstance(owner, Text) else [owner]:
        if not isinstance(piece, str):
            parts.append(piece)
            continue
        try:
            fields = list(string.Formatter().parse(piece))
        except ValueError:
            return machine.unknown(node, "a format that Python refuses")
        for literal, field_, spec, conversion in fields:
            parts.append(literal)
            if field_ is None:
                continue
            if spec or conversion:
                return machine.unknown(node, "a format of a value")
            if field_ == "":
                index: int | None = automatic
                automatic += 1
            else:
                index = int(field_) if field_.isdecimal() and len(field_) < 4 else None
            if index is not None and index < len(values):
                parts.append(values[index])
            elif index is None and field_ in keywords:
                parts.append(keywords[field_].value)
            else:
                why = f"the script has no value for the field `{field_[:40]}` of a text"
                return machine.unknown(node, why)
    return joined(machine, parts, node)
