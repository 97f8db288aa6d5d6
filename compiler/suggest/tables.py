"""The tables for suggestions. They are TOML files in this folder, and are read when a suggestion first needs them."""

from __future__ import annotations

from functools import cache

from xpc.compiler.language.launch_settings import ALSO_CALLED
from xpc.compiler.language.methods import METHODS
from xpc.grammar.package_data import read_table


def other_names() -> dict[str, list[str]]:
    """The names that other tools have for each setting. The key is the path of the setting, or `PATH=VALUE` if the
    names also imply a value.
    """
    return read_table(__file__, "other_names.toml")


@cache
def choices() -> dict[str, dict[str, list[str]]]:
    """Other spellings of choices. The outer key is the path of the setting, and the inner key the choice."""
    methods = {name: one.aliases.split("; ") for name, one in METHODS.items()}
    engines = {name: words.split("; ") for name, words in ALSO_CALLED.items()}
    return {**read_table(__file__, "choices.toml"), "method": methods, "launch": engines}


@cache
def words_of(kind: str) -> frozenset[str]:
    """A list of words.toml, such as `idle`: words that say little about the meaning of a name."""
    return frozenset(read_table(__file__, "words.toml")[kind])


@cache
def mapped(kind: str) -> dict[str, str]:
    """Invert the table `kind` of words.toml: map each listed word to its key. The table `same` maps each synonym to the
    word that replaces it. The table `job_options` maps an option such as `open-mode` to an engine of `launch`, and the
    table `components` maps a word at the beginning of a name, such as `rollout` in `rollout_max_tokens`, to a clause.
    """
    found: dict[str, list[str]] = read_table(__file__, "words.toml")[kind]
    return {word: key for key, words in found.items() for word in words}


@cache
def commands() -> dict[str, str]:
    """Commands of other tools, each with a regular expression for the word after it: `trl`, and `sft|dpo|...`."""
    found: dict[str, str] = read_table(__file__, "words.toml")["commands"]
    return found


def unset() -> dict[str, list[str]]:
    """Maps a setting that should be left out for some values of other tools to a list: the help, and these values. The
    value "/" stands for any path.
    """
    found: dict[str, list[str]] = read_table(__file__, "words.toml")["unset"]
    return found


def already() -> dict[str, list[str]]:
    """As `unset`, for values with which a run is the same as without the setting."""
    found: dict[str, list[str]] = read_table(__file__, "words.toml")["already"]
    return found


def examples() -> dict[str, str]:
    """An example line of a spec for each setting whose value cannot be shown alone."""
    return read_table(__file__, "examples.toml")


def notations() -> dict[str, dict[str, str]]:
    """Patterns for values in other notations, each with the form to write instead, by the kind of setting."""
    return read_table(__file__, "notations.toml")


def extra_aliases() -> dict[str, list[str]]:
    """Maps an argument of TRL or transformers to the names that other tools have for it."""
    return read_table(__file__, "extra_aliases.toml")


def usual_columns() -> dict[str, list[str]]:
    """Maps each part of a row, such as the prompt or the answer, to the usual names of its column. The most likely name
    is the first.
    """
    return read_table(__file__, "columns.toml")
