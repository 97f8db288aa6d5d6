"""The entries of a configuration: keys with values and line numbers, which the readers of YAML, JSON and shell scripts
return.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping

from xpc.grammar.record import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard

MAX_SIZE = 262_144
"""The largest number of characters in a configuration. Specs have the same limit."""
MAX_NODES = 20_000
"""The largest number of values in a configuration. The values of a YAML anchor count again for each alias."""
MAX_DEPTH = 32

LARGEST = 2.0**63
"""Numbers of this absolute value are refused: most YAML readers read 1e400 as infinity, which no setting accepts."""

NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?")
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Unreadable(Exception):
    """Raised for a configuration or script that cannot be imported. `line` counts from 1, or is 0 if it is unknown. For
    a Python script, `kind` may be a constant such as NO_TRAINER, which classifies the reason; otherwise it is "".
    """

    def __init__(self, message: str, line: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.kind = kind


NO_TRAINER, OTHER_TRAINER, CLASSIFIER, OTHER_HEAD = "no trainer", "another trainer", "a classifier", "another head"
"""Reasons why a Python script is not imported. NO_TRAINER: it has no trainer of TRL or transformers. OTHER_TRAINER: xpc
does not have the trainer's method, such as PPO. CLASSIFIER, OTHER_HEAD: the model classifies, or reads images.
"""

OWN_METHOD = (
    "the script has a trainer with its own method, which may change what is learned",
    "compare the method with that of TRL's trainer; if both compute the same, remove it from the script",
)
"""The reason and the help of the error for a script whose trainer overrides a method."""


def checked(value: object, line: int) -> object:
    """Return the value unchanged. Raises Unreadable for a number that is too large, and for a string with a NUL
    character.
    """
    if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        raise Unreadable("a number is larger than any setting allows", line)
    if isinstance(value, str) and "\0" in value:
        raise Unreadable("a text contains a NUL character, which paths and names cannot contain", line)
    return value


def listed(items: list[Entry]) -> list[Entry] | None:
    """Return the items, or None if all of them are null, because such a list counts as a missing value."""
    return None if items and all(one.value is None for one in items) else items


@record
class Entry:
    """A key of a configuration with its value, file and line. `value` is None, a bool, int, float or str, or a list or
    dict of entries.

    `typed` is the text in the file if it differs from the value, such as `no`, which YAML 1.1 reads as false. If the
    file has the key twice with different values, `earlier` is the line of the first value, which YAML readers ignore.
    `unset` is a variable in the value, such as `$LR`, that the script does not set.
    """

    key: str
    value: object = field(repr=False)
    file: str
    line: int
    typed: str = ""
    earlier: int = 0
    unset: str = ""

    @property
    def location(self) -> str:
        """The file and line, such as `recipe.yaml:12`."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def mapping(self) -> dict[str, Entry]:
        """The value if it is a mapping, otherwise an empty dict."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Entry]:
        """The value as a list of entries: a single value gives a list of one, and null an empty list."""
        if isinstance(self.value, list):
            return self.value
        return [] if self.value is None else [self]

    @property
    def empty(self) -> bool:
        """Whether the value is null, or an empty string, list or mapping."""
        return self.value is None or self.value in ("", [], {})

    @property
    def off(self) -> bool:
        """Whether the value is false (such as `no` or 0), null or empty."""
        return self.empty or boolean(self) is False


Entries = Mapping[str, Entry]


class Lookups(Mapping[str, Entry]):
    """The keys of a configuration as a mapping. Every name that is looked up is added to `seen`, even if the
    configuration does not have this key.
    """

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
        """All keys with their values, without recording a lookup."""
        return self.entries.items()


def plain(entry: Entry) -> object:
    """The value as plain Python data: nested entries are replaced by their values."""
    if isinstance(entry.value, dict):
        return {key: plain(one) for key, one in entry.value.items()}
    return [plain(one) for one in entry.value] if isinstance(entry.value, list) else entry.value


SECRET = "(a secret)"
"""The text that messages show instead of a secret."""


def as_json(entry: Entry) -> str:
    """The complete value as JSON on one line."""
    import json

    return json.dumps(plain(entry), ensure_ascii=False)


def shown(entry: Entry) -> str:
    """The value of an entry in the form for messages and reports: one line of at most 80 characters."""
    from xpc.compiler.files.secrets import is_secret

    text = entry.typed or as_json(entry)
    if is_secret(entry.key, str(entry.value or "")):
        return SECRET
    return text if len(text) <= 80 else text[:77] + "..."


def is_stated(entry: Entry | None) -> TypeGuard[Entry]:
    """Whether a configuration has the key, with a value that is not empty."""
    return entry is not None and not entry.empty


def is_on(entry: Entry | None) -> TypeGuard[Entry]:
    """Whether a configuration has the key, with a value that is not off."""
    return entry is not None and not entry.off


# Each of the following functions returns None for a key that the configuration does not have.


def boolean(entry: Entry | None) -> bool | None:
    """The value as a bool, also if it is written as 0, 1, or a string such as "yes". None for any other value."""
    value = None if entry is None else entry.value
    if isinstance(value, bool):
        return value
    word = str(value).lower() if isinstance(value, str | int) else ""
    return True if word in YES else False if word in NO else None


def number(entry: Entry | None) -> int | float | None:
    """The value as a number, also from strings such as "3" and `2e-5`, which YAML 1.1 reads as a string; None for
    anything else.
    """
    if entry is None or isinstance(entry.value, bool) or not isinstance(entry.value, int | float | str):
        return None
    if not isinstance(entry.value, str):
        return entry.value
    text = entry.value.strip()
    # matching a longer text would take quadratic time
    if len(text) > 64 or not NUMBER.fullmatch(text):
        return None
    value = float(text.replace("_", ""))
    checked(value, entry.line)
    return int(value) if re.fullmatch(r"[-+]?[\d_]+", text) else value


def integer(entry: Entry | None) -> int | None:
    """The value as a whole number, also if it is written as 3.0 or 1e9. None for any other value."""
    value = number(entry)
    if value is None or value in (float("inf"), float("-inf")) or value != int(value):
        return None
    return int(value)


def text(entry: Entry | None) -> str | None:
    """The value as a string. For a number or a bool, it is the text in the file. None for null, a list or a mapping."""
    if entry is None or not isinstance(entry.value, bool | int | float | str):
        return None
    return entry.value if isinstance(entry.value, str) else entry.typed or str(entry.value).lower()


def words(entry: Entry | None) -> list[str] | None:
    """The value as a list of strings. It may be a list, or a string with commas or spaces, such as "q_proj, v_proj".
    None if an item of the list is null, a list or a mapping.
    """
    if entry is None:
        return None
    if isinstance(entry.value, str):
        return [one for one in re.split(r"[,\s]+", entry.value.strip()) if one]
    found = [text(one) for one in entry.items]
    return None if any(one is None for one in found) else [str(one) for one in found]


def not_set(variable: str) -> tuple[str, str]:
    """Return the reason and the help of an error about a shell variable with an unknown value.

    `variable` is `$X` if the script never sets X; `$X (a, b)` if a condition that compares X with a and b decides the
    value; `${X}` if the branches of any other condition set X to different values.
    """
    cause, _, values = variable.partition(" (")
    name = cause.strip("${}")
    if values:
        why = f"the script does not set {cause}, and a condition on it decides the value"
        return why, f"`--set {name}=VALUE` sets it; the script compares it with {values.removesuffix(')')}"
    help_ = f"`--set {name}=VALUE` sets it" if name.isidentifier() or name.isdecimal() else "write its value"
    if variable.startswith("${"):
        return f"the branches of a condition, which the import cannot evaluate, set ${name} differently", help_
    return f"the script does not set {variable}", help_
