"""The data for suggestions: TOML files in this folder, read when a suggestion first needs them."""

from __future__ import annotations

from functools import cache

from xpc.compiler.language.launch_settings import ALSO_CALLED
from xpc.compiler.language.methods import METHODS
from xpc.grammar.package_data import read_table


def other_names() -> dict[str, list[str]]:
    """Other tools' names for each setting. The key is the setting's path, or `PATH=VALUE` if the names also imply a
    value.
    """
    return read_table(__file__, "other_names.toml")


@cache
def choices() -> dict[str, dict[str, list[str]]]:
    """Other spellings of choices, by the path of the setting and then the choice."""
    methods = {name: one.aliases.split("; ") for name, one in METHODS.items()}
    engines = {name: words.split("; ") for name, words in ALSO_CALLED.items()}
    return {**read_table(__file__, "choices.toml"), "method": methods, "launch": engines}


@cache
def synonyms() -> dict[str, str]:
    """Map words to the synonyms that replace them when names are compared."""
    same: dict[str, list[str]] = read_table(__file__, "synonyms.toml")["same"]
    return {other: word for word, others in same.items() for other in others}


@cache
def components() -> dict[str, str]:
    """Map the first words of other tools' names to xpc's clauses: `rollout`, as in `rollout_max_tokens`, to
    `method`.
    """
    found: dict[str, list[str]] = read_table(__file__, "synonyms.toml")["components"]
    return {word: clause for clause, heads in found.items() for word in heads}


@cache
def idle_words() -> frozenset[str]:
    """Words that contribute little to the meaning of a name."""
    return frozenset(read_table(__file__, "synonyms.toml")["idle"])


@cache
def switch_words() -> frozenset[str]:
    """Words such as `use` and `enable` that only say that something is on."""
    return frozenset(read_table(__file__, "synonyms.toml")["switches"])


@cache
def contrary_words() -> frozenset[str]:
    """Words that make another setting of a name, such as `min` and `eval`."""
    return frozenset(read_table(__file__, "synonyms.toml")["contrary"])


@cache
def general_words() -> frozenset[str]:
    """Words that are too general alone, such as `name` and `steps`."""
    return frozenset(read_table(__file__, "synonyms.toml")["general"])


def examples() -> dict[str, str]:
    """Example lines of a spec, by setting, for settings whose value cannot be shown alone."""
    return read_table(__file__, "examples.toml")


def extra_aliases() -> dict[str, list[str]]:
    """Other tools' names for arguments of TRL and transformers, by argument."""
    return read_table(__file__, "extra_aliases.toml")


def usual_columns() -> dict[str, list[str]]:
    """Usual names of the column for each part of a row (prompt, answer, ...), the likeliest first."""
    return read_table(__file__, "columns.toml")
