"""Read the columns and the number of rows of a Parquet file. They are in the footer of the file, in Thrift's compact
protocol.

A Parquet library is not used, because a machine that checks specs may not have one. Source:
https://parquet.apache.org/docs/file-format/, https://github.com/apache/thrift/blob/master/doc/specs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from xpc.compiler.data.rows import INTEGER, TEXT
from xpc.compiler.files.lfs import pointer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpc.compiler.files.workspace import Workspace

    Schema = list[dict[int, Any]]
    Keys = dict[str, str]
    Footer = tuple[list[str], int, Keys]

MAGIC = b"PAR1"
"""The first and the last bytes of a Parquet file."""
MANY = 256
"""In a folder, the footers of at most this many files are read, and their columns are compared."""
MOST = 2**24
"""Maximum size in bytes of a footer that is read."""
VALUES = 500_000
"""The largest number of values that are read in a footer. Each column of the schema has about eight values. The values
of row groups are skipped.
"""
DEEP = 16
"""The largest depth of nested structs and lists in a footer that is read. A normal footer has a depth of eight."""
VERSION, LIST = 0x15, 0x19
"""The headers of a footer's first two fields in Thrift's protocol: the version (an integer) and the schema (a list)."""
SCHEMA, ROWS = 2, 3
"""The numbers of two fields of FileMetaData: the schema, and the number of rows."""
TYPE, NAME, CHILDREN, CONVERTED = 1, 4, 5, 6
"""The numbers of four fields of SchemaElement: the type of values, the name, the number of children, and the converted
type."""
KINDS: dict[object, str] = {4: "a fraction", 5: "a fraction", 6: TEXT, 7: TEXT}
"""The types of values that are floating-point numbers or byte strings. All other types are integers and booleans."""
FAILURES = (IndexError, KeyError, ValueError, TypeError, AttributeError, RecursionError)
"""The exceptions that reading may raise if the bytes are not a footer."""
LISTS = (1, 2, 3)
"""The converted types of maps and lists in a schema. Below an element of such a type, the schema has one more element,
often named `list`, which is not a field of the data. The fields are below that element.
"""


def footer(tail: Callable[[int], bytes]) -> Footer | None:
    """What the footer of a Parquet file states, or None if it cannot be read: the columns, the number of rows, and the
    columns with the keys of nested columns, such as `id` and `messages[].role`, each with what its values are: "a
    text", "a fraction" or "an integer" (also a boolean). `tail(n)` must return the last n bytes of the file.
    """
    try:
        size = int.from_bytes(tail(8)[:4], "little")
        return None if size > MOST else _read(_Compact(tail(size + 8)[:-8]))
    except FAILURES:
        return None


def problem(head: bytes, tail: Callable[[int], bytes]) -> str | None:
    """The reason why a file is not a complete Parquet file, such as "it does not begin and end with PAR1". None if no
    fault is found; the footer itself is not checked if it is too large to be read. `head` is the beginning of the file;
    see `footer` for `tail`.
    """
    if not head[:4] == tail(4) == MAGIC:
        return "it does not begin and end with PAR1"
    size = int.from_bytes(tail(8)[:4], "little")
    data = tail(min(size, MOST) + 12)[4:-8]
    if len(data) < min(size, MOST):
        return f"its footer would have {size:,} bytes, more than the file"
    try:
        if size <= MOST:
            if (data[0], data[2]) != (VERSION, LIST):
                raise ValueError("not a footer of Parquet")
            _read(_Compact(data))
    except _Unknown:
        return None
    except FAILURES:
        return "its footer cannot be read"
    return None


def of_part(path: str, number: int, workspace: Workspace) -> tuple[Keys | None, str | None]:
    """Return a pair for a file of a folder: its columns (see `footer`), and why it is not a complete Parquet file (see
    `problem`). `number` is the file's number, from 0. Both are None if the file cannot be opened, has another format,
    or is not one of the first `MANY` files.
    """
    if not path.lower().endswith(".parquet") or number >= MANY:
        return None, None
    tail = partial(workspace.tail, path)
    try:
        if (found := footer(tail)) is not None:
            return found[2], None
        head = workspace.head(path)
        return None, problem(head, tail) if pointer(head) is None else None
    except OSError:
        return None, None


def _add_keys(schema: Schema, at: int, above: str, skipped: int, found: Keys) -> int:
    """Add the keys of the schema's element `at`, and of all elements nested in it, to `found`. Return the position of
    the element that follows. Between a list and its elements, Parquet has two levels whose names differ from writer to
    writer; these names are skipped.
    """
    element = schema[at]
    name, many = element[NAME], element.get(CHILDREN, 0)
    if not isinstance(name, bytes) or not isinstance(many, int):
        raise ValueError("not a footer of Parquet")
    path = above if skipped else f"{above}.{name.decode('utf-8')}".removeprefix(".")
    if not many:
        found[path] = KINDS.get(element.get(TYPE), INTEGER)
        return at + 1
    is_list = element.get(CONVERTED) in LISTS
    left, at = (2 if is_list else max(skipped - 1, 0)), at + 1
    for _ in range(many):
        at = _add_keys(schema, at, path + "[]" * is_list, left, found)
    return at


def _read(data: _Compact) -> Footer:
    """Read the footer of a Parquet file (see `footer`)."""
    fields: dict[int, object] = {}
    for number, value in data.fields(0):
        fields[number] = value
        if number >= ROWS:
            break
    schema, rows = fields[SCHEMA], fields[ROWS]
    if not isinstance(schema, list) or not isinstance(rows, int) or rows < 0:
        raise ValueError("not a footer of Parquet")
    names, found, at = list[str](), dict[str, str](), 1
    for _ in range(schema[0][CHILDREN]):
        names.append(schema[at][NAME].decode("utf-8"))
        at = _add_keys(schema, at, "", 0, found)
    return names, rows, found


class _Unknown(ValueError):
    """Raised for a footer that may be complete, but exceeds a limit, or has a type of values that this module does not
    read.
    """


class _Compact:
    """Reads values in Thrift's compact protocol, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.values = data, 0, 0

    def fields(self, depth: int) -> Iterator[tuple[int, object]]:
        """Yield the fields of a struct as (number, value)."""
        last = 0
        while head := self._byte():
            last = last + (head >> 4) if head >> 4 else self._signed()
            yield last, self._value(head & 15, depth)

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _number(self) -> int:
        out = shift = 0
        while shift < 64:
            one = self._byte()
            out |= (one & 127) << shift
            if one < 128:
                return out
            shift += 7
        raise ValueError("a number without an end")

    def _signed(self) -> int:
        found = self._number()
        return (found >> 1) ^ -(found & 1)

    def _value(self, kind: int, depth: int) -> object:
        self.values += 1
        if depth > DEEP or self.values > VALUES:
            raise _Unknown("the footer is nested too deep, or has too many values")
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 8:
            size = self._number()
            self.at += size
            return self.data[self.at - size : self.at]
        if kind in (9, 10):
            head = self._byte()
            size, inner = head >> 4 if head >> 4 < 15 else self._number(), head & 15
            # Thrift's compact protocol stores a bool of a list as one byte, and any other bool in its field's header
            kind = 3 if inner in (1, 2) else inner
            return [self._value(kind, depth + 1) for _ in range(size)]
        if kind == 12:
            return dict(self.fields(depth + 1))
        raise _Unknown("the footer has a field of an unknown type")
