"""Report errors in units, which a spec writes without words: `every = 100 steps` should be `every = 100`. This module
is imported only for a spec with such an error.
"""

from __future__ import annotations

_UNITS = {"step": "", "epoch": "", "token": "", "row": "", "sample": "", "example": "", "percent": "%"} | {
    "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h", "day": "d",
}  # fmt: skip
"""Maps a word for a unit to the unit in a spec: `4 hours` is `4h`. Steps, rows and tokens are written without a unit:
`every = 100`.
"""


def is_unit(word: str) -> bool:
    """Whether a word after a number is a known unit, such as `steps` or `hours`."""
    return word.lower().removesuffix("s") in _UNITS


def as_value(name: str, count: str, word: str) -> str | None:
    """The legal value for a number with a unit that is written as a word: `epoch` for `every = 1 epoch`. None for any
    other number of epochs, which no setting can express, and for a time as the value of `every`.
    """
    lower = word.lower()
    if name == "every" and _UNITS.get(lower.removesuffix("s"), "")[:1].isalpha():
        return None  # `every = 30 minutes`
    if lower.startswith("epoch"):
        return "epoch" if name == "every" and count == "1" else None
    return count + _UNITS[lower.removesuffix("s")]


def message(count: str, word: str) -> str:
    """The message for a number with a word after it, such as `100 steps`."""
    return f"a value is one word, and `{count} {word}` is two"


def remedy(value: str | None) -> str:
    """The help for a number with a word after it, such as `100 steps`: what to write instead."""
    if value is None:
        return "write a number of steps, or a share of the run such as `5%`; `every` also takes `epoch`"
    return f"write `{value}`"
