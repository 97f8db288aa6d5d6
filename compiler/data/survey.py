"""Survey all rows of a local file in one pass. The result, a `Survey`, has counts, and for each property that rules
report, the first row with this property.

A `Survey` is small enough to be stored. Later commands read the stored survey and not the file (`survey_cache.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import nsmallest

from xpc.compiler.data import row_shapes
from xpc.compiler.data.damage import damage
from xpc.compiler.data.export_marks import export_marks
from xpc.compiler.data.file_counts import FileCounts
from xpc.compiler.data.inspectors import INSPECTORS, MANY, Counts, tokens
from xpc.compiler.data.reader import Row, read
from xpc.compiler.data.structure import calls_unknown_tool, read_tools
from xpc.compiler.spec.survey import SKETCH, Broken, Survey
from xpc.runtime.features.messages.stored_columns import unread

SPOKEN = ("user", "assistant")
"""The roles of the speakers of a prompt and its answer. The digest of a row leaves out these two words, so that a
conversation and a prompt with an answer, which has no roles, have equal digests if their texts are equal.
"""
END = 256
"""Only this many characters at each end of a long row are digested. Equal digests show that two files share a row."""


def survey(
    data: bytes,
    path: str,
    shape: str,
    columns: Sequence[str],
    context: str = "",
    roles: Mapping[str, str] | None = None,
    documents: str = "line",
) -> Survey:
    """Survey all rows of a file. `columns` are the columns of the format, under the dataset's own names and in the
    order of `SHAPES`. `context` is a column whose text is appended to the prompt. `roles` maps names of speakers to
    roles. `documents` says whether a row of a text file is a line, a paragraph or the complete file.
    """
    rows: Iterable[Row | Broken] = read(data, path, documents)
    if roles:
        rows = (row if isinstance(row, Broken) else row_shapes.with_roles(row, roles) for row in rows)
    counted = _Pass(shape, tuple(columns), context, path.lower().endswith(".csv"))
    for row in rows:
        if isinstance(row, Broken):
            return counted.result(row)
        counted.add(row)
    return counted.result(None)


class _Pass:
    """Counts the rows of a file: `add` is called with one row after the other. `cells` is true for a CSV file."""

    def __init__(self, shape: str, names: tuple[str, ...], context: str, cells: bool) -> None:
        self.shape, self.names, self.context, self.rows = shape, names, context, 0
        self.inspect, self.check = INSPECTORS[shape], row_shapes.checker(shape, names, context)
        self.in_prompt = bool(context) and (shape != "preference" or len(names) > 2)
        self.label = names[-1] if cells and shape == "unpaired" else ""
        self.kinds, self.roles, self.counts = Counts(), Counts(), FileCounts(shape, names)
        self.keys: dict[str, None] = {}
        self.labels, self.words, self.largest = [0, 0], dict[int, int](), (-1, -1)
        self.wrong: tuple[int, str] | None = None
        self.talks: bool | None = None
        self.seen, self.digests = set[int](), set[int]()

    def add(self, row: Row) -> None:
        number = self.rows
        self.rows += 1
        if len(self.keys) < MANY and not row.keys() <= self.keys.keys():
            self.keys.update(dict.fromkeys(row))
        if self.label:
            row = {**row, self.label: _label(row.get(self.label))}
        values = self._values(row)
        if number == 0:
            # a list has the turns of a conversation; a dict is a single turn
            self.talks = any(isinstance(value, list | dict) for value in values)
        if self.wrong is None and (why := self.check(row)) is not None:
            self.wrong = number, why
        if self.shape == "tokens":
            values, highest = ([], -1) if self.wrong else tokens(values, self.names)
            self.largest = max(self.largest, (highest, -number))
        found, same = self.inspect(values, number, self.roles)
        marks = export_marks(values, row, self.shape, self.names, self.context) if self.shape != "tokens" else ()
        for kind in (*found, *unread(row, self.shape, self.names), *damage(values), *marks, *_next_to(values, row)):
            self.kinds.add(kind, number)
        self.counts.add(row, values)
        if self.shape != "text" or str(values[0] or "").strip():  # empty texts are reported as empty, not as repeated
            self._compare(row, same, number)
        self._count_labels_and_words(values)

    def _values(self, row: Row) -> list[object]:
        values = [row.get(name) for name in self.names]
        if self.in_prompt and isinstance(values[0], str):
            values[0] += f"\n{row.get(self.context) or ''}"
        return values

    def _compare(self, row: Row, same: object, number: int) -> None:
        """If the row repeats an earlier row, count it as `repeated`; otherwise keep its digest."""
        # tools and system prompts belong to the rendered text, so rows that differ in them are different
        if row.get("tools") or row.get("system"):
            same = (same, str((row.get("tools"), row.get("system"))))
        key = hash(same)
        if key in self.seen:
            self.kinds.add("repeated", number)
        else:
            self.seen.add(key)
            self.digests.add(_digest(same))

    def _count_labels_and_words(self, values: list[object]) -> None:
        if self.shape == "unpaired" and isinstance(values[-1], int):
            self.labels[0 if values[-1] else 1] += 1
        elif self.shape == "prompt_completion" and isinstance(values[0], str):
            long = len(values[0].split())
            self.words[long] = self.words.get(long, 0) + 1

    def result(self, broken: Broken | None) -> Survey:
        """The survey of the rows. `broken` says why the next row could not be read; None at the end of the file."""
        highest, row = self.largest
        largest = (highest, -row) if highest >= 0 else None
        return Survey(
            self.rows, tuple(self.keys), broken, self.wrong, self.talks, self.kinds.tallies() | self.counts.tallies(),
            self.roles.tallies(), (self.labels[0], self.labels[1]), self.words, largest,
            tuple(nsmallest(SKETCH, self.digests)), self.counts.characters,
        )  # fmt: skip


def _digest(same: object) -> int:
    """A digest of a row's texts. It does not depend on the process, on the roles, or on white space. Of a long row,
    only the beginning, the end and the number of letters are digested.
    """
    text = same if isinstance(same, str) else " ".join(_texts(same))
    letters = len(text) - text.count(" ") - text.count("\n") - text.count("\t") - text.count("\r")
    begin = " ".join(text[:END].split()).lower()[: END // 2]
    end = " ".join(text[-END:].split()).lower()[-END // 2 :]
    text = f"{letters}\n{begin}\n{end}"
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _texts(same: object) -> Iterator[str]:
    for one in same if isinstance(same, tuple | list) else (same,):
        if isinstance(one, str):
            if one not in SPOKEN:
                yield one
        elif isinstance(one, tuple | list):
            yield from _texts(one)
        else:
            yield str(one)


def _next_to(values: list[object], row: Row) -> Iterator[str]:
    """Properties of the tools and the system prompt in other columns of a row, such as `unknown_tool`."""
    if tools := row.get("tools") or row.get("functions"):
        known = read_tools(tools)
        yield "odd_tools" if known is None else "tools"
        if known is not None and calls_unknown_tool(values[0], known):
            yield "unknown_tool"
    if isinstance(row.get("system"), str) and row["system"]:
        yield "system_column"
        if (first := _first_system(values[0])) is not None and first != row["system"]:
            yield "two_systems"


def _first_system(turns: object) -> object:
    """The content of the first turn of a conversation if it is a system prompt, otherwise None."""
    first = turns[0] if isinstance(turns, list) and turns else None
    if not isinstance(first, dict) or "system" not in (first.get("role"), first.get("from")):
        return None
    return first.get("content", first.get("value"))


def _label(cell: object) -> object:
    """Convert the label in a cell of CSV to a bool or an int, in the same way as pandas."""
    if cell in ("True", "TRUE", "true", "False", "FALSE", "false"):
        return str(cell).lower() == "true"
    return int(cell) if isinstance(cell, str) and cell.strip().isdecimal() else cell
