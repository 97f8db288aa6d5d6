"""Parse the contents of a local data file into rows, as the datasets library does.

JSON has one object per row, usually one per line, or one list of objects. CSV is read as pandas reads it: an empty
cell, or `NA`, is null. Text has one row per line, paragraph or file. Where the library would fail, the last row is a
`Broken`, which has the reason. Source: datasets 5.2 `packaged_modules/{json,csv,text}`; checked by running it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO

from xpc.compiler.spec.survey import Broken
from xpc.runtime.features.launch.csv_texts import NULLS

Row = Mapping[str, object]
MOST_ROWS = 4_000_000
"""The largest number of rows that are read from a file. Only a file whose rows have a few characters each has more rows
than this and is still small enough to be copied into a bundle.
"""
CHECKED = 8 * 2**20
"""An object with a repeated key, such as `{"a": 1, "a": 2}`, is reported only if it is among this many characters at
the beginning of a file, because the check makes parsing three times slower.
"""


def read(data: bytes, path: str, documents: str = "line") -> Iterator[Row | Broken]:
    """Yield every row of a file. If the file cannot be read to its end, or has too many rows, the last row is a
    `Broken`.
    """
    for number, row in enumerate(_every_row(data, path, documents)):
        if number >= MOST_ROWS:
            yield Broken(number, number + 1, f"the file has more than {MOST_ROWS:,} rows")
            return
        yield row


def _every_row(data: bytes, path: str, documents: str) -> Iterator[Row | Broken]:
    try:
        text = data.decode("utf-8")
        wrong = None
    except UnicodeDecodeError as error:
        text, wrong = data[: error.start].decode("utf-8"), error
    text = text.removeprefix("\ufeff")
    ending = path.lower().rpartition(".")[2]
    if ending == "txt" and documents != "line" and wrong is None:
        yield from _documents(text.replace("\r\n", "\n").replace("\r", "\n"), documents)
        return
    if wrong is None:
        yield from _rows(text, ending)
        return
    line = text.count("\n") + 1
    row = 0
    for row, one in enumerate(_rows(text[: text.rfind("\n") + 1], ending), 1):
        # the text ends before the undecodable byte, so an open list or an open quoted cell at its end is not an error
        if isinstance(one, Broken):
            row -= 1
            break
        yield one
    byte = data[wrong.start]
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield Broken(0, 1, "the file is UTF-16", encoding=True)
    else:
        yield Broken(row, line, f"the byte 0x{byte:02X} in line {line:,} is not UTF-8", encoding=True)


def _rows(text: str, ending: str) -> Iterator[Row | Broken]:
    if ending == "txt":
        # read line by line: a list of many empty lines would need fifty times the memory of the text
        lines = StringIO(text, newline="\n")
        return ({"text": line.removesuffix("\n").removesuffix("\r")} for line in lines)
    if ending == "csv":
        return _csv_rows(text)
    start = _skip_space(text, 0)
    return _json_rows(text, start + 1, ",") if text[start : start + 1] == "[" else _json_rows(text, start, "")


def _documents(text: str, documents: str) -> Iterator[Row]:
    """The rows of a text file, divided as the runtime's `local_sources.py` does. A row is the complete file, or a
    paragraph without the line breaks around it.
    """
    parts = text.split("\n\n") if documents == "paragraph" else [text]
    for part in parts:
        if documents == "file":
            yield {"text": part}
        elif part.strip():
            yield {"text": part.strip("\n")}


def _json_rows(text: str, at: int, comma: str) -> Iterator[Row | Broken]:
    """Yield the objects in a JSON text, from offset `at` on. `comma` is "," if the objects are the elements of a list,
    and "" if they follow one another, as in JSON Lines.
    """
    scan = json.JSONDecoder(object_pairs_hook=_unique_names).scan_once  # type: ignore[attr-defined]
    fast = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
    surrogates = "\\ud" in text or "\\uD" in text
    row, length = 0, len(text)
    at = _skip_space(text, at)
    while at < length and not (comma and text[at] == "]"):
        if at > CHECKED:
            scan = fast
        try:
            value, end = scan(text, at)
        except (ValueError, RecursionError, StopIteration) as error:
            yield Broken(row, text.count("\n", 0, at) + 1, _reason(error))
            return
        if not isinstance(value, dict):
            kind = {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a number")
            yield Broken(row, text.count("\n", 0, at) + 1, f"it is {kind}, not an object")
            return
        if surrogates and _has_lone_surrogate(value):
            yield Broken(row, text.count("\n", 0, at) + 1, "it contains half of a surrogate pair")
            return
        yield value
        row += 1
        at = end if end < length and text[end] == comma else _skip_space(text, end)
        if comma and at < length and text[at] == ",":
            at = _skip_space(text, at + 1)
        elif comma and (at >= length or text[at] != "]"):
            break
    if comma and (at >= length or text[at] != "]"):
        why = "the list of rows is not closed by `]`" if at >= length else "there is no comma before it"
        yield Broken(row, text.count("\n", 0, at) + 1, why)


class _DuplicateName(ValueError):
    """Raised for an object that contains a name twice. pyarrow refuses such an object."""


def _unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise _DuplicateName(_repeated(name for name, _ in pairs))
    return out


def _repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _skip_space(text: str, at: int) -> int:
    """The position of the next character that is not white space in JSON."""
    length = len(text)
    while at < length and text[at] in " \t\r\n":
        at += 1
    return at


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, _DuplicateName):
        return f"it has `{str(error)[:40]}` twice"
    reason = str(error).partition(":")[0] if isinstance(error, ValueError) else "expecting value"
    if reason.startswith(("Invalid control character", "Unterminated string")):
        return "a string in it does not end on its line"
    return f"it is not JSON ({reason[:1].lower()}{reason[1:]})"


def _has_lone_surrogate(value: Row) -> bool:
    """Whether a string in the row contains half of a surrogate pair. Python's JSON parser accepts such strings; the
    JSON parser of the datasets library refuses them.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _csv_rows(text: str) -> Iterator[Row | Broken]:
    import csv

    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    row, head = 0, None
    try:
        for cells in reader:
            if not cells:
                continue
            if head is None:
                head = cells
                if twice := _repeated(filter(None, head)):
                    # stop here: pandas would rename the second column to `prompt.1`, and the run would read the first
                    yield Broken(row, reader.line_num, f"the header has a column `{twice[:40]}` twice")
                    return
                continue
            if len(cells) > len(head):
                yield Broken(row, reader.line_num, f"it has {len(cells)} cells, and there are {len(head)} columns")
                return
            filled = [None if cell in NULLS else cell for cell in cells]
            yield dict(zip(head, filled + [None] * (len(head) - len(cells)), strict=True))
            row += 1
    except csv.Error as error:
        yield Broken(row, reader.line_num, f"it is not CSV ({error})")
