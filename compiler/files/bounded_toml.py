"""Parse TOML from untrusted authors in linear time.

`tomllib` takes quadratic time for a key of many parts (`a.a.a.a = 1`; measured with Python 3.11: 10 seconds for 32,000
parts). Therefore a key of more than 200 parts is refused. In a text with more than 200 dots, a string of several lines
is refused, too, because such a key could be hidden behind the end of the string. xpc never writes such keys or strings.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 200
"""The largest number of dots that a line may contain outside of strings."""
LONG_STRINGS = ('"""', "'''")
STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")


def loads(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ValueError for invalid TOML, for a key of more than 200 parts, and for a string
    of several lines in a text with more than 200 dots.
    """
    import tomllib

    if text.count(".") > MOST:
        if any(one in text for one in LONG_STRINGS):
            raise ValueError("it has a string of several lines")
        lines = text.split("\n")
        if any(line.count(".") > MOST and STRING.sub("", line).partition("#")[0].count(".") > MOST for line in lines):
            raise ValueError(f"it has a key of more than {MOST} parts")
    return tomllib.loads(text)
