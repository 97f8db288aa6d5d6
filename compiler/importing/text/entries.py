"""Keys of a configuration with their values and line numbers, as all readers in this folder return them."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping

from xpc.grammar.record import field, record

MAX_SIZE = 262_144
"""The largest configuration that is read, in characters. A spec has the same limit."""
MAX_NODES = 20_000
"""The most values of a configuration. An alias counts at each use."""
MAX_DEPTH = 32

LARGEST = 2.0**63
"""Numbers of this size or more are refused: most YAML readers read 1e400 as infinity, and no setting accepts that."""

NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?")
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Unreadable(Exception):
    """Raised for a configuration that cannot be read. `line` counts from 1; 0 means that the line is not known. `kind`
    says what a Python script does instead of a training that a spec has: see NO_TRAINER and the constants after it.
    """

    def __init__(self, message: str, line: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.kind = kind


NO_TRAINER, OTHER_TRAINER, CLASSIFIER, OTHER_HEAD = "no trainer", "another trainer", "a classifier", "another head"
"""Kinds of scripts that are not imported: without a trainer of TRL or transformers, with one that the language lacks
(PPO), or with a model that classifies or reads images.
"""


def checked(value: object, line: int) -> object:
    """Return a value that a spec can contain. Raises Unreadable for a number that is too large, and for a NUL
    character.
    """
    if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        raise Unreadable("a number is larger than any setting takes", line)
    if isinstance(value, str) and "\0" in value:
        raise Unreadable("a text contains a NUL, which no path and no name can", line)
    return value


def listed(items: list[Entry]) -> list[Entry] | None:
    """The value of a list of entries. A list that contains only nulls is null."""
    return None if items and all(one.value is None for one in items) else items


@record
class Entry:
    """A value with its key and place. `value` is None, bool, int, float, str, or a list or dict of entries.

    `typed` is the text in the file if the value does not show it, such as `no`, which YAML 1.1 reads as false.
    `earlier` is the line of an earlier occurrence of the key with another value, which YAML readers ignore. `unset` is
    the name of a variable in the value that a script does not set.
    """

    key: str
    value: object = field(repr=False)
    file: str
    line: int
    typed: str = ""
    earlier: int = 0
    unset: str = ""

    @property
    def place(self) -> str:
        """The file and line, such as `recipe.yaml:12`."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def mapping(self) -> dict[str, Entry]:
        """The entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Entry]:
        """The entries of a list. A single value gives a list of one, and null an empty list."""
        if isinstance(self.value, list):
            return self.value
        return [] if self.value is None else [self]

    @property
    def empty(self) -> bool:
        """Whether the value is null, or an empty text, list or mapping."""
        return self.value is None or self.value in ("", [], {})

    @property
    def off(self) -> bool:
        """Whether a switch is off, or the value is empty."""
        return self.empty or boolean(self) is False


Entries = Mapping[str, Entry]


class Lookups(Mapping[str, Entry]):
    """The keys of a configuration. `seen` records each name that a reader looks up, whether the file has it or not."""

    def __init__(self, entries: Entries, seen: set[str]) -> None:
        self.entries, self.seen = entries, seen

    def __getitem__(self, name: str) -> Entry:
        self.seen.add(name)
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def items(self) -> ItemsView[str, Entry]:
        """All keys with their values. This does not count as looking up any name."""
        return self.entries.items()


def plain(entry: Entry) -> object:
    """The value as plain data."""
    if isinstance(entry.value, dict):
        return {key: plain(one) for key, one in entry.value.items()}
    return [plain(one) for one in entry.value] if isinstance(entry.value, list) else entry.value


SECRET = "(a secret)"
"""The text that replaces a secret value in messages."""


def as_json(entry: Entry) -> str:
    """The complete value as JSON on one line."""
    import json

    return json.dumps(plain(entry), ensure_ascii=False)


def shown(entry: Entry) -> str:
    """The value for messages and reports: one line of at most 80 characters."""
    from xpc.compiler.files.secrets import is_secret

    text = entry.typed or as_json(entry)
    if is_secret(entry.key, str(entry.value or "")):
        return SECRET
    return text if len(text) <= 80 else text[:77] + "..."


def boolean(entry: Entry) -> bool | None:
    """The truth value, which may be written as a text or a number; None for anything else."""
    if isinstance(entry.value, bool):
        return entry.value
    word = str(entry.value).lower() if isinstance(entry.value, str | int) else ""
    return True if word in YES else False if word in NO else None


def number(entry: Entry) -> int | float | None:
    """The number, which may be in quotes, or `2e-5`, which YAML 1.1 reads as a text; None for anything else."""
    if isinstance(entry.value, bool) or not isinstance(entry.value, int | float | str):
        return None
    if not isinstance(entry.value, str):
        return entry.value
    text = entry.value.strip()
    if len(text) > 64 or not NUMBER.fullmatch(text):  # matching a longer text would take quadratic time
        return None
    value = float(text.replace("_", ""))
    checked(value, entry.line)
    return int(value) if re.fullmatch(r"[-+]?[\d_]+", text) else value


def integer(entry: Entry) -> int | None:
    """The whole number, which may be written as 3.0 or 1e9; None for anything else."""
    value = number(entry)
    if value is None or value in (float("inf"), float("-inf")) or value != int(value):
        return None
    return int(value)


def text(entry: Entry) -> str | None:
    """A text; for a number or a truth value, the text in the file."""
    if isinstance(entry.value, str):
        return entry.value
    if isinstance(entry.value, bool | int | float):
        return entry.typed or str(entry.value).lower()
    return None


def words(entry: Entry) -> list[str] | None:
    """A list of texts, from a list or from one text with commas or blanks between the words."""
    if isinstance(entry.value, str):
        return [one for one in re.split(r"[,\s]+", entry.value.strip()) if one]
    found = [text(one) for one in entry.items]
    return None if any(one is None for one in found) else [str(one) for one in found]


def not_set(variable: str) -> tuple[str, str]:
    """Why the value of a shell script's variable is not known, and how to give one. `${NAME}` is a variable to which
    branches of a condition give different values.
    """
    name = variable.strip("${}")
    help_ = f"`--set {name}=VALUE` sets it" if name.isidentifier() or name.isdecimal() else "write its value"
    if variable.startswith("${"):
        return f"branches of a condition that the script does not decide set ${name} differently", help_
    return f"the script does not set {variable}", help_
