"""Write a value of a command line, YAML or Python in xpc's notation: `1e--5`, `'adamw'` and `[a, b]`. Imported only
for a wrong spec.
"""

from __future__ import annotations

import re

POWER = re.compile(
    r"(?:(?P<number>\d+(?:\.\d+)?)[ ]?(?:[*x×·][ ]?10[ ]?(?:\^|\*\*)|[eE]-?(?=-))|10[ ]?(?:\^|\*\*))[ ]?"
    r"(?P<sign>-?)(?P<exponent>\d+)"
)
"""A pattern for a power of ten: `2 * 10^-5`, `10**-4`, `1e--5`."""
NAMES = re.compile(r"(?:[A-Za-z_][\w.]*(,[A-Za-z_][\w.]*)+|\d*\.\d+(,\d*\.\d+)+)")
BARE = re.compile(
    r"[A-Za-z][\w.-]*|\d+ x [\w.-]+|\d[\d_]*(\.\d+)?([eE][+-]?\d+)?(%|Ki|Mi|[kMBsmhd]|[KMGT]i?B)?|\[.*\]|\".*\""
)


def as_value(value: str) -> str:
    """A value from a command line or YAML in xpc's notation."""
    if (power := POWER.fullmatch(value)) is not None:
        value = f"{power['number'] or '1'}e{power['sign'] or ''}{power['exponent']}"
    value = re.sub(r"(?<=\d)[ \t]+%$", "%", value)
    if value[:1] == "'":
        value = value[1:-1] if value[1:2] in "{[" or '"' in value else f'"{value[1:-1]}"'
    if value[:1] == "{":
        return value
    if value[:1] == "[":
        return re.sub(r"'([^'\"]*)'", r'"\1"', value)
    if value.lower() in ("true", "false"):
        return value.lower()
    if NAMES.fullmatch(value):
        return f"[{value.replace(',', ', ')}]"
    if re.fullmatch(r"\d+x[A-Za-z].*", value):
        value = value.replace("x", " x ", 1)
    if re.fullmatch(r"\d+\.([eE][+-]?\d+)?", value):
        value = value.replace(".", ".0", 1)
    if re.fullmatch(r"\.\d+([eE][+-]?\d+)?", value):
        value = "0" + value
    if BARE.fullmatch(value) or re.fullmatch(r"-\d.*", value):
        return value
    return f'"{value}"' if '"' not in value and "\\" not in value else value
