"""Read JSON as entries with the line of every key. (A YAML reader would fail for DeepSpeed files that are indented with
tabs.)
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

from xpc.compiler.importing.text.entries import MAX_DEPTH, MAX_SIZE, Entry, Unreadable, checked, listed
from xpc.grammar.record import field, mutable

_SPACE = re.compile(r"[ \t\r\n]*")
_LITERAL = re.compile(r"-?\d[\d.eE+\-]*|true|false|null")


def read(text: str, file: str) -> dict[str, Entry]:
    """The keys of a JSON object, as entries. Raises Unreadable for anything else."""
    if len(text) > MAX_SIZE:
        raise Unreadable(f"it is longer than {MAX_SIZE} characters")
    reader = _Reader(text, file)
    entry = reader.value("", 0, None)
    if reader.skip() != len(text):
        raise reader.wrong("something follows the object")
    if not isinstance(entry.value, dict):
        raise Unreadable("it is not an object of keys and values", entry.line)
    return entry.value


def unfolded(entry: Entry) -> Entry:
    """Parse a JSON object that is written as a string, as `gradient_checkpointing_kwargs` is on a command line
    (transformers' training_args.py, `_VALID_DICT_FIELDS`). Any other entry is returned unchanged.
    """
    typed = entry.value
    if not isinstance(typed, str) or not (typed.startswith("{") and typed.rstrip().endswith("}")):
        return entry
    try:
        table = read(typed, entry.file)
    except Unreadable:
        return entry
    return Entry(
        entry.key,
        {name: _moved(one, f"{entry.key}.{one.key}", entry.line) for name, one in table.items()},
        entry.file,
        entry.line,
    )


def _moved(entry: Entry, key: str, line: int) -> Entry:
    value = entry.value
    if isinstance(value, dict):
        value = {name: _moved(one, f"{key}.{name}", line) for name, one in value.items()}
    return Entry(key, value, entry.file, line, entry.typed)


@mutable
class _Reader:
    text: str = field(repr=False)
    file: str
    at: int = 0
    counted: tuple[int, int] = (0, 1)
    """A position in the text and its line number: newlines are counted up to here."""

    def skip(self) -> int:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def line(self) -> int:
        at, line = self.counted
        self.counted = self.at, line + self.text.count("\n", at, self.at)
        return self.counted[1]

    def wrong(self, why: str) -> Unreadable:
        return Unreadable(f"it is not JSON: {why}", self.line())

    def take(self, character: str) -> bool:
        self.skip()
        if self.text.startswith(character, self.at):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        try:
            value, self.at = scanstring(self.text, self.at + 1, True)
        except ValueError as error:
            raise self.wrong(str(error).split(":")[0]) from error
        return str(value)

    def value(self, key: str, depth: int, line: int | None) -> Entry:
        self.skip()
        at = line or self.line()
        if depth > MAX_DEPTH:
            raise Unreadable(f"it is nested more than {MAX_DEPTH} levels deep", at)
        if self.take("{"):
            return Entry(key, self.members(depth, f"{key}." if key else ""), self.file, at)
        if self.take("["):
            items: list[Entry] = []
            if not self.take("]"):
                items.append(self.value(f"{key}[0]", depth + 1, None))
                while self.take(","):
                    items.append(self.value(f"{key}[{len(items)}]", depth + 1, None))
                if not self.take("]"):
                    raise self.wrong("a list is not closed")
            return Entry(key, listed(items), self.file, at)
        if self.text.startswith('"', self.at):
            return Entry(key, checked(self.name(), at), self.file, at)
        found = _LITERAL.match(self.text, self.at)
        if found is None or len(found[0]) > 64:
            raise self.wrong("a value is expected")
        self.at = found.end()
        try:
            value = json.loads(found[0])
        except ValueError as error:
            raise self.wrong(f"`{found[0]}` is not a number") from error
        return Entry(key, checked(value, at), self.file, at, found[0])

    def members(self, depth: int, prefix: str) -> dict[str, Entry]:
        out: dict[str, Entry] = {}
        if self.take("}"):
            return out
        while True:
            self.skip()
            line = self.line()
            if not self.text.startswith('"', self.at):
                raise self.wrong("a key between quotes is expected")
            key = self.name()
            if not self.take(":"):
                raise self.wrong("`:` is expected")
            if key in out:
                raise Unreadable(f"the key `{key[:60]}` occurs twice, on line {out[key].line} and on line {line}", line)
            out[key] = self.value(prefix + key, depth + 1, line)
            if self.take("}"):
                return out
            if not self.take(","):
                raise self.wrong("`,` or `}` is expected")
