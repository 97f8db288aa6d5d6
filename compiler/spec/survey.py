"""The results of reading all rows of a local file, such as the number of rows without an answer. `data/survey.py`
computes them, and a `DataSource` contains them.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.grammar.record import field, record

SKETCH = 256
"""The sketch of a file has at most this many digests of its rows."""


@record
class Tally:
    """The number of rows with a property, and the index of the first of these rows (from 0)."""

    count: int
    first: int


@record
class Survey:
    """The facts about a file's rows that were found by reading all of them.

    `rows` is the number of rows that could be read. If reading stopped before the end of the file, `broken` says why;
    otherwise it is None. `columns` are the columns of all rows together. `wrong` is the index of the first row that
    does not fit the source's format, with the reason. `talks` tells whether the first row contains messages. `tallies`
    counts the rows that have each of these properties:

    - `unanswered`: a conversation without a turn of the assistant
    - `empty_answer`: an answer or a text without a letter
    - `empty_prompt`: a prompt or a user's turn without a letter
    - `same`: the two answers of a preference pair are equal
    - `repeated`: the prompt and the answer are those of an earlier row
    - `images`: a message with an image
    - `system`: a turn of the system
    - `tools`: a column with tools
    - `other_labels`: a tokenized row with a label that differs from the token at the same position
    - `unlearned`: a tokenized row with a token that is not learned
    - the kinds of `data/damage.py`: mojibake, and others
    - the kinds of `data/export_marks.py` and `data/file_counts.py`: control tokens, and others
    - the kinds of `data/structure.py`: tool calls, reasoning, and others

    `roles` maps each role in `messages` to the number of rows with it. `labels` is a pair: the number of rows labelled
    good, and of rows labelled bad. `words` maps a number of words to the number of prompts with so many words.
    `largest` is a pair: the largest token id in tokenized rows, and the index of its row.

    `sketch` has digests of rows: the 256 smallest, each once. The sketches of two files show how many rows the files
    have in common. `characters` maps lengths of plain texts in characters, rounded down as in `data/file_counts.py`, to
    the number of texts with this length.
    """

    rows: int = 0
    columns: tuple[str, ...] = ()
    broken: Broken | None = None
    wrong: tuple[int, str] | None = None
    talks: bool | None = None
    tallies: Mapping[str, Tally] = field(factory=dict)
    roles: Mapping[str, Tally] = field(factory=dict)
    labels: tuple[int, int] = (0, 0)
    words: Mapping[int, int] = field(factory=dict)
    largest: tuple[int, int] | None = None
    sketch: tuple[int, ...] = ()
    characters: Mapping[int, int] = field(factory=dict)

    def count(self, kind: str) -> int:
        """The number of rows that have a property, such as `unanswered`."""
        return self.tallies[kind].count if kind in self.tallies else 0

    def shared(self, other: Survey) -> float:
        """The share of this file's different rows that another file also has. The share is exact if both files have at
        most 256 different rows; otherwise it is an estimate.
        """
        full = [one.sketch[-1] for one in (self, other) if len(one.sketch) == SKETCH]
        own = [one for one in self.sketch if not full or one <= min(full)]
        return len({*own} & {*other.sketch}) / len(own) if own else 0.0


@record
class Broken:
    """The error at which reading a file stopped: the row (from 0), the row's line (from 1), and the reason. `encoding`
    is true if the bytes are not UTF-8.
    """

    row: int
    line: int
    why: str
    encoding: bool = False
