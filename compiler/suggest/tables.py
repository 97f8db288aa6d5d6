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
def synonyms() -> dict[str, str]:
    """Synonyms: words, and for each the word that replaces it when names are compared."""
    same: dict[str, list[str]] = read_table(__file__, "synonyms.toml")["same"]
    return {other: word for word, others in same.items() for other in others}


@cache
def components() -> dict[str, str]:
    """Words at the start of other tools' names, each with the clause of xpc that corresponds to it. For example,
    `rollout` in `rollout_max_tokens` corresponds to `method`.
    """
    found: dict[str, list[str]] = read_table(__file__, "synonyms.toml")["components"]
    return {word: clause for clause, heads in found.items() for word in heads}


@cache
def idle_words() -> frozenset[str]:
    """Words that say little about the meaning of a name, such as `use`. They count little when names are compared."""
    return frozenset(read_table(__file__, "synonyms.toml")["idle"])


@cache
def switch_words() -> frozenset[str]:
    """Words such as `use` and `enable`, which only say that something is on."""
    return frozenset(read_table(__file__, "synonyms.toml")["switches"])


@cache
def commands() -> dict[str, str]:
    """Commands of other tools, each with a regular expression for the word after it: `trl`, and `sft|dpo|...`."""
    found: dict[str, str] = read_table(__file__, "synonyms.toml")["commands"]
    return found


@cache
def loose_words() -> frozenset[str]:
    """Words that can be left out of a name that is otherwise known, such as `threshold` in `grad_norm_threshold`."""
    return frozenset(read_table(__file__, "synonyms.toml")["loose"])


@cache
def contrary_words() -> frozenset[str]:
    """Words that give a name another meaning, such as `min` and `eval`: `eval_steps` is not `steps`."""
    return frozenset(read_table(__file__, "synonyms.toml")["contrary"])


@cache
def fillers() -> frozenset[str]:
    """Words such as `the` and `which`. In a setting's description, they say nothing about the setting."""
    return frozenset(read_table(__file__, "synonyms.toml")["fillers"])


@cache
def general_words() -> frozenset[str]:
    """Words such as `name` and `steps` that are too general to stand for a setting alone."""
    return frozenset(read_table(__file__, "synonyms.toml")["general"])


def examples() -> dict[str, str]:
    """An example line of a spec for each setting whose value cannot be shown alone."""
    return read_table(__file__, "examples.toml")


def extra_aliases() -> dict[str, list[str]]:
    """Maps an argument of TRL or transformers to the names that other tools have for it."""
    return read_table(__file__, "extra_aliases.toml")


def usual_columns() -> dict[str, list[str]]:
    """Maps each part of a row, such as the prompt or the answer, to the usual names of its column. The most likely name
    is the first.
    """
    return read_table(__file__, "columns.toml")
