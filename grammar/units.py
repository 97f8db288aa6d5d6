"""Recognize units that are written as words: `every = 100 steps`, `time = 4 hours`. Loaded only for wrong texts."""

from __future__ import annotations

_UNITS = {"step": "", "epoch": "", "token": "", "row": "", "sample": "", "example": "", "percent": "%"} | {
    "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h", "day": "d",
}  # fmt: skip
"""The unit in a spec for each word: `every = 100 steps` is `every = 100`, `time = 4 hours` is `time = 4h`."""


def is_unit(word: str) -> bool:
    """Whether a word after a number is a unit."""
    return word.lower().removesuffix("s") in _UNITS


def as_value(name: str, count: str, word: str) -> str | None:
    """A number and its unit as a value for the setting `name`; None for epochs, because no value of a setting means
    several epochs.
    """
    lower = word.lower()
    if lower.startswith("epoch"):
        return "epoch" if name == "every" and count == "1" else None
    return count + _UNITS[lower.removesuffix("s")]


def message(count: str, word: str) -> str:
    """The message for a number with a word after it."""
    return f"a value is one word, and `{count} {word}` is two"


def remedy(value: str | None) -> str:
    """The help: what to write instead."""
    if value is None:
        return "write a number of steps, `epoch`, or a share of the run such as `every = 5%`"
    return f"write `{value}`"
