"""The tables of suggestions: TOML files in this folder, read when a suggestion first needs one."""

from __future__ import annotations

import os
from functools import cache

from xpc.compiler.language.launch_settings import ALSO_CALLED
from xpc.compiler.language.methods import METHODS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@cache
def _read(name: str) -> dict[str, Any]:
    import tomllib  # only a wrong spec pays for it

    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.toml"), "rb") as file:
        return tomllib.load(file)


def other_names() -> dict[str, list[str]]:
    """What other tools call a setting (a path, or `PATH=VALUE` where the name decides the value), as phrases."""
    return _read("other_names")


@cache
def choices() -> dict[str, dict[str, list[str]]]:
    """Other spellings of choices, as phrases, by the path of the setting and the choice."""
    methods = {name: one.aliases.split("; ") for name, one in METHODS.items()}
    engines = {name: words.split("; ") for name, words in ALSO_CALLED.items()}
    return {**_read("choices"), "method": methods, "launch": engines}


@cache
def synonyms() -> dict[str, str]:
    """Words with the word that replaces them when names are compared."""
    same: dict[str, list[str]] = _read("synonyms")["same"]
    return {other: word for word, others in same.items() for other in others}


@cache
def idle_words() -> frozenset[str]:
    """Words that say little in a name."""
    return frozenset(_read("synonyms")["idle"])


def examples() -> dict[str, str]:
    """A line of a spec, or several, for settings whose legal value alone would say little."""
    return _read("examples")
