"""The tables for suggestions: TOML files in this folder, read when a suggestion first needs one."""

from __future__ import annotations

from functools import cache

from xpc.compiler.language.launch_settings import ALSO_CALLED
from xpc.compiler.language.methods import METHODS
from xpc.grammar.package_data import read_table


def other_names() -> dict[str, list[str]]:
    """Other tools' phrases for each setting. The key is a path, or `PATH=VALUE` if the phrase also implies the
    value.
    """
    return read_table(__file__, "other_names.toml")


@cache
def choices() -> dict[str, dict[str, list[str]]]:
    """Phrases for choices, by the path of the setting and the choice."""
    methods = {name: one.aliases.split("; ") for name, one in METHODS.items()}
    engines = {name: words.split("; ") for name, words in ALSO_CALLED.items()}
    return {**read_table(__file__, "choices.toml"), "method": methods, "launch": engines}


@cache
def synonyms() -> dict[str, str]:
    """Words, each with the synonym that replaces it when names are compared."""
    same: dict[str, list[str]] = read_table(__file__, "synonyms.toml")["same"]
    return {other: word for word, others in same.items() for other in others}


@cache
def components() -> dict[str, str]:
    """Words at the beginning of other tools' names, each with the clause of the settings that follow it."""
    found: dict[str, list[str]] = read_table(__file__, "synonyms.toml")["components"]
    return {word: clause for clause, heads in found.items() for word in heads}


@cache
def idle_words() -> frozenset[str]:
    """Words that contribute little to the meaning of a name."""
    return frozenset(read_table(__file__, "synonyms.toml")["idle"])


@cache
def switch_words() -> frozenset[str]:
    """Words that only say that something is on."""
    return frozenset(read_table(__file__, "synonyms.toml")["switches"])


@cache
def general_words() -> frozenset[str]:
    """Words that mean nothing without the word before them, or without the clause that they stand in."""
    return frozenset(read_table(__file__, "synonyms.toml")["general"])


def examples() -> dict[str, str]:
    """Lines of a spec for settings whose legal value needs more context."""
    return read_table(__file__, "examples.toml")


def extra_aliases() -> dict[str, list[str]]:
    """Phrases that other tools use for arguments of TRL and transformers, by argument."""
    return read_table(__file__, "extra_aliases.toml")


def usual_columns() -> dict[str, list[str]]:
    """Usual names for the columns of each part of a row, the likeliest first."""
    return read_table(__file__, "columns.toml")
