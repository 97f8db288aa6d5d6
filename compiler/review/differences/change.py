"""The class `Change`, which is a changed value, and functions that shorten its texts, or replace parts of them, for the
output of a comparison.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite

from xpc.compiler.language.kinds import Amount
from xpc.compiler.render.line_difference import common
from xpc.grammar.record import evolve, record

Scalar = int | float | str | bool | tuple["Scalar", ...] | None
"""A value of a setting, or a list of such values, which a program can read."""

MEMBER = "MEMBER"
"""The placeholder for the name of a sweep's member in folders and run names. With it, values of two members that differ
only in the member's name are equal.
"""
DATA = (bool, int, float, str, list, tuple, Mapping)
"""The types of JSON's values, apart from null."""
WIDE = 60
"""The first line of a comparison shows at most this many characters of an old or new value."""
AROUND = 16
"""Of two long values, only the part that differs is shown, with this many characters before and after it."""


@record
class Change:
    """A changed value. `why` is the calculation of the new value. If the spec does not state the new value, `why` may
    be its origin instead.

    If both values are numbers, flags, strings or lists of these, `values` has the old and the new value for the JSON
    output.
    """

    name: str
    before: str
    after: str
    why: str = ""
    values: tuple[Scalar, Scalar] | None = None


def scalar(value: object, text: str = "") -> Scalar:
    """Convert a value for JSON. Numbers and counts stay numbers. A value of one of xpc's own types, such as a share or
    a chat template, becomes `text`, which is the value as a spec writes it: `10%`. Infinite numbers and NaN, which an
    edited bundle may have, also become texts, because JSON does not have them.
    """
    if isinstance(value, float) and not isfinite(value):
        return json.dumps(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Amount) and value.unit == "count":
        return value.value
    if isinstance(value, list | tuple) and all(one is None or isinstance(one, DATA) for one in value):
        return tuple(scalar(one) for one in value)
    if isinstance(value, Mapping):
        return tuple(f"{name}={scalar(one)}" for name, one in value.items())
    return text or str(value)


def short(before: str, after: str) -> tuple[str, str]:
    """Shorten two different values, if one is long, to the part in which they differ. Most of the equal text before
    this part becomes `...`, and so does most of the equal text after it.
    """
    if len(before) <= WIDE and len(after) <= WIDE:
        return before, after
    start = common(before, after)
    end = common(before[start:][::-1], after[start:][::-1])
    first = max(0, start - AROUND)
    return _cut(before, first, len(before) - end), _cut(after, first, len(after) - end)


def _cut(text: str, start: int, end: int) -> str:
    """The characters from `start` to a few characters after `end`, at most WIDE of them. `...` marks text that is
    omitted.
    """
    end = min(len(text), end + AROUND, start + WIDE)
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"


def without_name(found: Sequence[Change], name: str) -> tuple[Change, ...]:
    """Return the changes with MEMBER in place of the member's name."""
    if not name:
        return tuple(found)
    return tuple(
        evolve(each, before=each.before.replace(name, MEMBER), after=each.after.replace(name, MEMBER), values=None)
        if name in each.before or name in each.after
        else each
        for each in found
    )
