"""The contents of a file as flat lists: its settings, data sources and `extra` values, each with its syntax node and
its location.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.language.codes import Problems
from xpc.grammar.checks import WORDS
from xpc.grammar.diagnostic import Edit, Label
from xpc.grammar.record import evolve, field, mutable, record
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Clause, File, Number, Ref, Setting, String, Train, Value

SPEC, BASE, DEFAULT, DERIVED = "spec", "base", "default", "derived"
"""The origins of a value: the spec itself, a base that the spec extends, the default, or a derivation from other
settings.
"""


@record
class Item:
    """A setting as it is written in a spec: its path, the syntax node of its value, and its location. `node` is None
    for a name without a value, which means true.
    """

    path: str
    node: Value | None
    label: Label


@record
class Row:
    """A data source in a `data` block, with the settings that the spec writes for this source, such as `columns` and
    `take`.
    """

    ref: Ref | String
    label: Label
    items: tuple[Item, ...] = ()


@record
class SweepBlock:
    """A `sweep` block as it is written: its file, the location of the word `sweep`, and its contents."""

    file: File
    label: Label
    body: tuple[Setting | Clause | Value, ...] = ()


@record
class EvaluationBlock:
    """A `data` block for evaluation, named in `eval { data = ... }`: its sources, and the settings that say how to read
    its rows.
    """

    label: Label
    rows: tuple[Row, ...] = ()
    items: Mapping[str, Item] = field(factory=dict)


@mutable
class ParsedFile:
    """The contents of one file. `data_name` is the location of the title of the block with the training data. `blocks`
    maps titles to the `data` blocks for evaluation. `intended` are the settings that the file's unknown names probably
    stand for.
    """

    source: Source
    train: Train | None = None
    items: dict[str, Item] = field(factory=dict)
    rows: list[Row] = field(factory=list)
    data_name: Label | None = None
    blocks: dict[str, EvaluationBlock] = field(factory=dict)
    extra: dict[str, dict[str, Item]] = field(factory=dict)
    problems: Problems = field(factory=Problems)
    sweep: SweepBlock | None = None
    intended: set[str] = field(factory=set)


class Reporter:
    """Reports findings at locations in one source text."""

    def __init__(self, source: Source, problems: Problems) -> None:
        self.source, self.problems = source, problems

    def label(self, span: Span, text: str = "") -> Label:
        """A location in the source text, with a text to print there."""
        return Label(self.source, span, text)

    def problem(
        self,
        code: str,
        message: str,
        span: Span,
        text: str = "",
        help: str | None = None,
        edit: str | None = None,
        related: tuple[Label, ...] = (),
    ) -> None:
        """Report a finding with one of the `CODES`. If `edit` is given, an editor can replace the text at `span` by
        `edit`.
        """
        edits = () if edit is None else (Edit(span, edit),)
        self.problems.report(code, message, self.label(span, text), help=help, edits=edits, related=related)

    def again(self, message: str, span: Span, first: Label) -> None:
        """Report a setting or a clause that is written twice. The finding shows both locations."""
        related = (evolve(first, text="first here"),)
        after = {one.source.text[one.span.end : one.span.end + 2].strip()[:1] for one in (first, self.label(span))}
        help = "keep one of the two" + ", with the settings of both" * bool(after & {"(", "{"})
        self.problem("XP103", message, span, "again here", help, related=related)

    def typed(self, span: Span) -> str:
        """The source text at a location, cut after 400 characters."""
        return self.source.slice(span)[:400]

    def in_backticks(self, span: Span) -> str:
        """The source text at a location in backticks, cut after 60 characters."""
        return f"`{self.typed(span)[:60]}`"


class Collector(Reporter):
    """Collects the items and the findings of one file in its attribute `out`."""

    def __init__(self, file: File) -> None:
        super().__init__(file.source, Problems())
        self.file = file
        self.out = ParsedFile(file.source, file.train, problems=self.problems)

    def keep(self, table: dict[str, Item], path: str, node: Value | None, span: Span) -> None:
        """Add a setting to a table. If the table already has a setting with this path, report the second one."""
        item = Item(path, node, self.label(span))
        first = table.setdefault(path, item)
        if first is not item:
            self.again(f"`{path.rpartition('.')[2]}` is written twice", span, first.label)

    def add(self, path: str, node: Value | None, span: Span) -> None:
        """Add a setting. If its number is malformed, add nothing: the grammar has already reported the number."""
        if not (isinstance(node, Number) and _is_malformed(node)):
            self.keep(self.out.items, path, node, span)

    def is_reported(self, node: Value) -> bool:
        """Whether the grammar has already reported a syntax error at this value."""
        return self.typed(node.span) in WORDS or (isinstance(node, Number) and _is_malformed(node))


def _is_malformed(number: Number) -> bool:
    """Whether the grammar has already reported this number as malformed. The tree then has 0 in place of the number."""
    if number.value != 0 or number.unit is not None:
        return False
    try:
        return float(number.text) != 0
    except ValueError:
        return True
