"""The classes of the syntax tree of a spec. Each node has a span. The tree contains names without their meaning."""

from __future__ import annotations

from xpc.grammar.record import field, record
from xpc.grammar.source import Source, Span


@record
class Name:
    """A plain name: letters, digits, `_`, `-` and `.`."""

    span: Span
    text: str


@record
class Number:
    """A number as typed: `10%` has value 10 and unit `%`."""

    span: Span
    text: str
    value: int | float
    unit: str | None = None


@record
class String:
    """A quoted text with its escapes decoded."""

    span: Span
    value: str


def quoted(text: str) -> str:
    """A text as it is typed in a spec: between double quotes, with escapes."""
    body = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{body}"'


@record
class Ref:
    """A name, perhaps with a configuration, a split and a revision, as in
    `BAAI/Infinity-Instruct:0625[train:20%]@main`. A plain name such as `zero2` has none of these.
    """

    span: Span
    name: str
    config: str | None = None
    split: str | None = None
    slice: str | None = None
    revision: str | None = None

    @property
    def is_name(self) -> bool:
        """Whether the reference is a plain name, without a configuration, split or revision."""
        return (
            self.config is None
            and self.split is None
            and self.slice is None
            and self.revision is None
            and "/" not in self.name
        )


@record
class Count:
    """A number of something, such as `8 x h100-80gb`."""

    span: Span
    n: Number
    what: Ref


@record
class Call:
    """A call such as `packing(isolate=mask)` or `file("x.jinja")`. In the call of a setting, the arguments are the
    setting's nested settings, as in a block.
    """

    span: Span
    name: Name
    args: tuple[Setting | Value, ...]


@record
class List:
    """A list such as `[0.9, 0.95]`."""

    span: Span
    items: tuple[Value, ...]


@record
class Setting:
    """A setting such as `gbs = 528`."""

    span: Span
    name: Name
    value: Value


@record
class Block:
    """The braces of a clause and their contents."""

    span: Span
    statements: tuple[Setting | Clause, ...]


@record
class Clause:
    """A clause: a name (`head`), operands on its line, and optionally a block, as in `optimizer adamw { ... }`."""

    span: Span
    head: Call | Ref | String
    operands: tuple[Setting | Value, ...] = ()
    block: Block | None = None

    @property
    def body(self) -> tuple[Setting | Clause | Value, ...]:
        """The items after the head: first those on the line of the clause, then those in its block."""
        return (*self.operands, *(self.block.statements if self.block is not None else ()))


@record
class Budget:
    """The length of a run, such as `for 3 epochs`."""

    span: Span
    amount: Number
    unit: Name


@record
class Train:
    """The first line, `train MODEL on DATA ...`."""

    span: Span
    model: Ref | String
    data: Ref | String
    budget: Budget | None = None
    options: tuple[Setting | Value, ...] = ()


@record
class Comment:
    """A comment, including its `#`."""

    span: Span
    text: str


@record
class File:
    """A complete spec, or a base, which only serves other specs (`extends`)."""

    span: Span
    source: Source = field(repr=False)
    edition: Number | None = None
    extends: String | None = None
    train: Train | None = None
    statements: tuple[Setting | Clause, ...] = ()
    comments: tuple[Comment, ...] = ()


Value = Number | String | List | Count | Call | Ref
