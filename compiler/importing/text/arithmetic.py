"""Compute the integer expressions of a shell script, such as `$((8 / 2))`."""

from __future__ import annotations

import re

WHOLE = re.compile(r"-?[0-9]{1,18}")
"""Matches an integer of at most 18 digits. Such an integer fits in the shell's 64-bit integers."""
ARITHMETIC = re.compile(r"[\d\s+\-*/%()]+")


def computed(text: str) -> int | None:
    """The value of an integer expression with + - * / % and brackets, as the shell computes it; None for any other
    text.
    """
    if not ARITHMETIC.fullmatch(text) or len(text) > 200 or "**" in text:
        return None
    words = re.findall(r"\d+|[+\-*/%()]", text)

    def factor() -> int:
        word = words.pop(0)
        if word == "(":
            value = total()
            words.pop(0)
            return value
        return -factor() if word == "-" else factor() if word == "+" else int(word)

    def product() -> int:
        value = factor()
        while words and words[0] in "*/%":
            sign, other = words.pop(0), factor()
            value = value * other if sign == "*" else int(value / other) if sign == "/" else value % other
        return value

    def total() -> int:
        value = product()
        while words and words[0] in "+-":
            value = value + product() if words.pop(0) == "+" else value - product()
        return value

    try:
        value = total()
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return None if words or abs(value) > 10**12 else value
