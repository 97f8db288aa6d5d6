"""The tables of suggestions: TOML files in this folder, read when a suggestion first needs one."""

from __future__ import annotations

from functools import cache

from xpc.compiler.language.launch_settings import ALSO_CALLED
from xpc.compiler.language.methods import METHODS
from xpc.grammar.package_data import read_table


def other_names() -> dict[str, list[str]]:
    """What other tools call a setting (a path, or `PATH=VALUE` where the name decides the value), as phrases."""
    return read_table(__file__, "other_names.toml")


@cache
def choices() -> dict[str, dict[str, list[str]]]:
    """Other spellings of choices, as phrases, by the path of the setting and the choice."""
    methods = {name: one.aliases.split("; ") for name, one in METHODS.items()}
    engines = {name: words.split("; ") for name, words in ALSO_CALLED.items()}
    return {**read_table(__file__, "choices.toml"), "method": methods, "launch": engines}


@cache
def synonyms() -> dict[str, str]:
    """Words with the word that replaces them when names are compared."""
    same: dict[str, list[str]] = read_table(__file__, "synonyms.toml")["same"]
    return {other: word for word, others in same.items() for other in others}


@cache
def idle_words() -> frozenset[str]:
    """Words that say little in a name."""
    return frozenset(read_table(__file__, "synonyms.toml")["idle"])


def examples() -> dict[str, str]:
    """A line of a spec, or several, for settings whose legal value alone would say little."""
    return read_table(__file__, "examples.toml")


@cache
def extra_aliases() -> dict[str, str]:
    """Other tools' spellings of arguments of TRL and transformers, as letters, with the argument."""
    found: dict[str, list[str]] = read_table(__file__, "extra_aliases.toml")
    return {other: name for name, others in found.items() for other in others}


def usual_columns() -> dict[str, list[str]]:
    """Usual names of the columns of each part of a row, the likeliest first."""
    return read_table(__file__, "columns.toml")
