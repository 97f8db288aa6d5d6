"""What a configuration says, with the line of every key: the one shape that all readers return."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping

from xpc.grammar.record import field, record

MAX_SIZE = 262_144
"""Largest configuration that is read, characters; as large as a spec may be."""
MAX_NODES = 20_000
"""Most values of a configuration, aliases counted as often as they stand for something."""
MAX_DEPTH = 32

LARGEST = 2.0**63
"""Numbers from here on are none of a configuration: 1e400 is infinite to most readers, and no setting takes them."""

NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?")
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Unreadable(Exception):
    """A configuration that cannot be read at all; `line` counts from 1, 0 where there is none."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def checked(value: object, line: int) -> object:
    """A value as a file has it, where a spec can hold it. Raises Unreadable for a number without measure, and NUL."""
    if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        raise Unreadable("a number is larger than any setting takes", line)
    if isinstance(value, str) and "\0" in value:
        raise Unreadable("a text holds a NUL, which no path and no name can", line)
    return value


def listed(items: list[Entry]) -> list[Entry] | None:
    """The value of a list: one of nulls alone says as little as null."""
    return None if items and all(one.value is None for one in items) else items


@record
class Entry:
    """A value with its key and place. `value` is None, bool, int, float, str, a list or a dict of entries.

    `typed` is what stands in the file, where that says more than the value: the `no` that YAML 1.1 reads as false.
    `earlier` is the line of the same key with another value above it, which YAML readers take no notice of.
    """

    key: str
    value: object = field(repr=False)
    file: str
    line: int
    typed: str = ""
    earlier: int = 0

    @property
    def place(self) -> str:
        """`recipe.yaml:12`."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def mapping(self) -> dict[str, Entry]:
        """The entries of a mapping; none for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Entry]:
        """The entries of a list; a single value is a list of one, and null is none."""
        if isinstance(self.value, list):
            return self.value
        return [] if self.value is None else [self]

    @property
    def empty(self) -> bool:
        """Whether nothing is said: null, or an empty text, list or mapping."""
        return self.value is None or self.value in ("", [], {})

    @property
    def off(self) -> bool:
        """Whether a switch is off or nothing is said."""
        return self.empty or boolean(self) is False


Entries = Mapping[str, Entry]


class Lookups(Mapping[str, Entry]):
    """The keys of a configuration. `seen` gets each name that a reader looks up, whether the file has it or not."""

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
        """All keys with their values, which looks up none of them by name."""
        return self.entries.items()


def plain(entry: Entry) -> object:
    """The value as plain data."""
    if isinstance(entry.value, dict):
        return {key: plain(one) for key, one in entry.value.items()}
    return [plain(one) for one in entry.value] if isinstance(entry.value, list) else entry.value


SECRET = "(a secret)"
"""What stands in the place of a value that nobody else may read."""


def as_json(entry: Entry) -> str:
    """The value on one line, all of it."""
    import json

    return json.dumps(plain(entry), ensure_ascii=False)


def shown(entry: Entry) -> str:
    """The value as a message or a report shows it: one line, cut."""
    from xpc.compiler.files.secrets import is_secret

    text = entry.typed or as_json(entry)
    if is_secret(entry.key, str(entry.value or "")):
        return SECRET
    return text if len(text) <= 80 else text[:77] + "..."


def boolean(entry: Entry) -> bool | None:
    """A truth value, also one that was written as a text or a number; None for anything else."""
    if isinstance(entry.value, bool):
        return entry.value
    word = str(entry.value).lower() if isinstance(entry.value, str | int) else ""
    return True if word in YES else False if word in NO else None


def number(entry: Entry) -> int | float | None:
    """A number. YAML 1.1 reads `2e-5` as a text: it is a number here, and quoted ones are, too."""
    if isinstance(entry.value, bool) or not isinstance(entry.value, int | float | str):
        return None
    if not isinstance(entry.value, str):
        return entry.value
    text = entry.value.strip()
    if len(text) > 64 or not NUMBER.fullmatch(text):  # the pattern takes the square of the length
        return None
    value = float(text.replace("_", ""))
    checked(value, entry.line)
    return int(value) if re.fullmatch(r"[-+]?[\d_]+", text) else value


def integer(entry: Entry) -> int | None:
    """A whole number; 3.0 and 1e9 are, too."""
    value = number(entry)
    if value is None or value in (float("inf"), float("-inf")) or value != int(value):
        return None
    return int(value)


def text(entry: Entry) -> str | None:
    """A text; a number or a truth value is what was typed."""
    if isinstance(entry.value, str):
        return entry.value
    if isinstance(entry.value, bool | int | float):
        return entry.typed or str(entry.value).lower()
    return None


def words(entry: Entry) -> list[str] | None:
    """A list of texts: a list, or one text with commas or blanks between."""
    if isinstance(entry.value, str):
        return [one for one in re.split(r"[,\s]+", entry.value.strip()) if one]
    found = [text(one) for one in entry.items]
    return None if any(one is None for one in found) else [str(one) for one in found]
