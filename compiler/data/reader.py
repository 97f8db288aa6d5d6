"""The rows of a local data file as the datasets library reads them, one after the other, from the file's bytes.

JSON: an object a row, one after another (usually one a line), or one list of them. CSV: pandas' reading, in which a
cell that is empty or says NA is null. Text: a row a line. What the library cannot read ends the rows with `Broken`.
Source: datasets 5.2 `packaged_modules/{json,csv,text}`; executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from xpc.compiler.spec.survey import Broken

Row = Mapping[str, object]
LOOKED = 8 * 2**20
"""Characters of a file that are looked through for names that stand twice: that takes three times as long."""
NULLS = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
))  # fmt: skip
"""Cells of a CSV file that pandas reads as null (`pandas._libs.parsers.STR_NA_VALUES`)."""


def read(data: bytes, path: str) -> Iterator[Row | Broken]:
    """Every row of a file, and `Broken` last where it cannot be read to its end."""
    try:
        text = data.decode("utf-8")
        wrong = None
    except UnicodeDecodeError as error:
        text, wrong = data[: error.start].decode("utf-8"), error
    ending = path.lower().rpartition(".")[2]
    if wrong is None:
        yield from _rows(text, ending)
        return
    line = text.count("\n") + 1
    row = 0
    for row, one in enumerate(_rows(text[: text.rfind("\n") + 1], ending), 1):
        if isinstance(one, Broken):  # of a list the end is missing, and of a quoted cell
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
        lines = text.split("\n")
        return iter([{"text": line.removesuffix("\r")} for line in (lines if lines[-1] else lines[:-1])])
    text = text.removeprefix("\ufeff")
    if ending == "csv":
        return _cells(text)
    start = _filled(text, 0)
    return _values(text, start + 1, ",") if text[start : start + 1] == "[" else _values(text, start, "")


def _values(text: str, at: int, comma: str) -> Iterator[Row | Broken]:
    """Values from a place on: the elements of a list, or values one after the other, over several lines or in one."""
    scan = json.JSONDecoder(object_pairs_hook=_once).scan_once  # type: ignore[attr-defined]
    fast = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
    halves = "\\ud" in text or "\\uD" in text
    row, length = 0, len(text)
    at = _filled(text, at)
    while at < length and not (comma and text[at] == "]"):
        if at > LOOKED:
            scan = fast
        try:
            value, end = scan(text, at)
        except (ValueError, RecursionError, StopIteration) as error:
            yield Broken(row, text.count("\n", 0, at) + 1, _reason(error))
            return
        if not isinstance(value, dict):
            kind = {list: "a list", str: "a text", type(None): "null"}.get(type(value), "a number")
            yield Broken(row, text.count("\n", 0, at) + 1, f"it is {kind}, and no object")
            return
        if halves and _half(value):
            yield Broken(row, text.count("\n", 0, at) + 1, "it holds half of a surrogate pair")
            return
        yield value
        row += 1
        at = end if end < length and text[end] == comma else _filled(text, end)
        if comma and at < length and text[at] == ",":
            at = _filled(text, at + 1)
        elif comma and (at >= length or text[at] != "]"):
            break
    if comma and (at >= length or text[at] != "]"):
        why = "the list of rows has no end" if at >= length else "there is no comma before it"
        yield Broken(row, text.count("\n", 0, at) + 1, why)


class _Twice(ValueError):
    """A name that an object has twice, which pyarrow refuses."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in out if names.count(name) > 1))
    return out


def _filled(text: str, at: int) -> int:
    """The place of the next letter that is no white space of JSON."""
    length = len(text)
    while at < length and text[at] in " \t\r\n":
        at += 1
    return at


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, _Twice):
        return f"`{str(error)[:40]}` stands twice in it"
    said = str(error).partition(":")[0] if isinstance(error, ValueError) else "expecting value"
    if said.startswith(("Invalid control character", "Unterminated string")):
        return "a text in it does not end in its line"
    return f"it is not JSON ({said[:1].lower()}{said[1:]})"


def _half(value: Row) -> bool:
    """Whether a text of the row has half of a surrogate pair, which Python's reader lets through."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _cells(text: str) -> Iterator[Row | Broken]:
    import csv
    from io import StringIO

    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    row, head = 0, None
    try:
        for cells in reader:
            if not cells:
                continue
            if head is None:
                head = cells
                continue
            if len(cells) > len(head):
                yield Broken(row, reader.line_num, f"it has {len(cells)} cells, and there are {len(head)} columns")
                return
            filled = [None if cell in NULLS else cell for cell in cells]
            yield dict(zip(head, filled + [None] * (len(head) - len(cells)), strict=True))
            row += 1
    except csv.Error as error:
        yield Broken(row, reader.line_num, f"it is no CSV ({error})")
