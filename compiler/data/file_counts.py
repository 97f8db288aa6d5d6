"""Find properties of a file that a single row does not show: columns with the same value in all rows, repeated prompts,
the last tokens of tokenized rows, and the lengths of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from xpc.compiler.spec.survey import Tally

CONSTANT = "constant:"
"""The prefix of a property: `constant:question` means that the column `question` has the same value in all rows."""
LAST_TURN = ""
"""`constant:` without a column means that the last turn is the same in all conversations. No column has an empty name.
"""
LONGEST, MANY = 64, 4096
"""LONGEST is the largest number of columns that are compared, MANY the largest number of different last tokens that are
counted.
"""
LINE = range(50, 101)
"""Typical lengths, in characters, of the lines of a prose text that was wrapped at a fixed width."""
MIDDLE = re.compile(r"[a-z,]\Z")
PROMPTED = ("preference", "unpaired", "prompt_completion")


class FileCounts:
    """Counts over all rows that were given to `add`. `characters` maps each length to the number of texts with this
    length. A length is rounded down to its three highest binary digits: 1,000 counts as 896.
    """

    def __init__(self, shape: str, names: Sequence[str]) -> None:
        self.shape, self.names = shape, names
        self.characters: dict[int, int] = {}
        self._rows = 0
        self._same: dict[str, object] = {}
        self._prompts: set[int] = set()
        self._again = Tally(0, -1)
        self._ends: dict[object, int] = {}
        self._lengths: set[int] = set()
        self._line, self._wrapped, self._objects = "", 0, 0

    def add(self, row: Mapping[str, object], values: Sequence[object]) -> None:
        """Count a row. `values` are the values of the columns `self.names`."""
        if self.shape == "tokens":
            self._add_end(values)
        else:
            self._add_constants(row, values)
        if self.shape in PROMPTED and len(self.names) > (1 if self.shape == "prompt_completion" else 2):
            key = hash(str(values[0]))
            if key in self._prompts:
                self._again = Tally(self._again.count + 1, self._again.first if self._again.count else self._rows)
            self._prompts.add(key)
        if self.shape == "text" and isinstance(values[0], str):
            self._add_text(values[0])
        self._rows += 1

    def _add_constants(self, row: Mapping[str, object], values: Sequence[object]) -> None:
        if not self._rows:
            texts = {key: value for key, value in row.items() if isinstance(value, str | list) and value}
            self._same = dict(list(texts.items())[:LONGEST])
            if (last := self._last(values)) is not None:
                self._same[LAST_TURN] = last
        for name in list(self._same):
            value = row.get(name) if name else self._last(values)
            if value != self._same[name]:
                del self._same[name]

    def _last(self, values: Sequence[object]) -> object:
        """The content of a conversation's last turn."""
        turns = values[0] if self.shape in ("messages", "conversations") else None
        last = turns[-1] if isinstance(turns, list) and turns else None
        return (last.get("content") or last.get("value")) if isinstance(last, dict) else None

    def _add_end(self, values: Sequence[object]) -> None:
        ids = values[0] if values else None
        if isinstance(ids, list) and ids:
            if len(self._ends) < MANY or ids[-1] in self._ends:
                self._ends[ids[-1]] = self._ends.get(ids[-1], 0) + 1
            if len(self._lengths) < 3:
                self._lengths.add(len(ids))

    def _add_text(self, text: str) -> None:
        long = len(text)
        shift = max(long.bit_length() - 3, 0)
        key = long >> shift << shift
        self.characters[key] = self.characters.get(key, 0) + 1
        if text[:1].islower() and len(self._line) in LINE and MIDDLE.search(self._line[-1:]):
            self._wrapped += 1
        self._line = text
        if text.startswith(('{"', "{'")) and text.rstrip().endswith("}") and self._objects == self._rows:
            self._objects += _is_object(text)

    def tallies(self) -> dict[str, Tally]:
        """The properties that the rows together have, as tallies:

        - `constant:COLUMN`: the file has at least two rows, and all have the same text or turns in this column
        - `constant:`: the file has at least two conversations, and all have the same last turn
        - `prompt_again`: rows with the same prompt as an earlier row
        - `various_ends`: the tokenized rows have different lengths, and no token is the last token of at least a tenth
          of the rows
        - `wrapped`: lines that end within a sentence: the next line begins with a lowercase letter
        - `objects`: every text is a JSON object
        """
        same = self._same if self._rows > 1 else ()
        whole = {CONSTANT + name: Tally(self._rows, 0) for name in same}
        if self._again.count:
            whole["prompt_again"] = self._again
        if len(self._lengths) > 1 and 10 * max(self._ends.values(), default=0) < sum(self._ends.values()):
            whole["various_ends"] = Tally(self._rows, 0)
        if self._wrapped:
            whole["wrapped"] = Tally(self._wrapped, 0)
        if self._objects and self._objects == self._rows:
            whole["objects"] = Tally(self._rows, 0)
        return whole


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
