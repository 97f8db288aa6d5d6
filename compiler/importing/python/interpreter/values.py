"""The values of an interpreted script. None, bools, numbers, strings, lists, tuples and dicts are represented by
themselves, all other values by the classes below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from xpc.compiler.importing.text.entries import Entry
from xpc.grammar.record import field, mutable, record

if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

Scalar = (bool, int, float, str, type(None))
LONGEST = 100_000
"""The largest length of a string or a list that the interpreter computes."""
MOST_JOINED = 20_000
"""The largest number of values that are compared to join the two branches of a condition."""
NO_DEFAULT = "it has no default"
"""Why a field's value is unknown if it has no default."""
MAX_BASES = 20
"""The largest number of base classes of a class that are searched for an attribute."""
PLAIN_BASES = ("object", "ABC", "Generic", "Protocol", "Enum", "str")


@record
class Location:
    """A location in a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def entry(self, key: str, value: object = None) -> Entry:
        """A configuration entry at this location."""
        return Entry(key, value, self.file, self.line)


@record
class Unknown:
    """A value that the script's source does not determine, with the reason and the location."""

    why: str
    location: Location
    hidden: object = field(default=None, repr=False)
    """The known value from which this unknown value was computed, such as the unfiltered dataset if the filter cannot
    be read.
    """


@record
class Unset(Unknown):
    """The value of an unset environment variable or of `input()`, which is assumed to be an empty string.

    So `os.environ.get("X") or 3` is 3.
    """


@record
class Name:
    """A name in a library, such as `torch.bfloat16`."""

    path: str

    @property
    def last(self) -> str:
        """The part of the path after the last dot, such as `bfloat16`."""
        return self.path.rpartition(".")[2]


@record
class Column:
    """The content of a column in the row that a function gets from `map`; with `batch`, its contents in several rows.
    If the row comes from a loop over a dataset, `source` is this dataset.
    """

    name: str
    batch: bool = False
    source: object = field(default=None, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and (self.name, self.batch) == (other.name, other.batch)

    def __hash__(self) -> int:
        return hash((self.name, self.batch))


@mutable
class Row:
    """The row that a function gets from `map`; with `batch`, several rows. `written` are the columns that the function
    sets.
    """

    batch: bool = False
    written: dict[Any, object] = field(factory=dict)
    source: object = field(default=None, repr=False)


@record
class Text:
    """A string that contains columns of a row, as a sequence of its parts, such as `("Q: ", Column("question"))`."""

    parts: tuple[object, ...]


@record
class Choice:
    """A value that depends on a column of the row: `full` if the column has a value, and `empty` if it is empty."""

    column: str
    full: object
    empty: object


@record
class Argument:
    """An argument of a call, with its file and line."""

    value: object
    location: Location


class Table(dict[Any, Any]):
    """A dict that also has the file and line of each key (`locations`)."""

    def __init__(self, values: Mapping[Any, object] | None = None, locations: Mapping[Any, Location] | None = None):
        super().__init__(values or {})
        self.locations: dict[Any, Location] = dict(locations or {})


class Splits(Table):
    """A `DatasetDict`: maps the names of splits to datasets. A method call is made for each dataset."""


class Words(list[Any]):
    """The value of `sys.argv`."""


class Namespace(Table):
    """A dict whose keys are also attributes, such as a configuration of OmegaConf."""


@mutable
class Object:
    """The value that a call of a library returns, such as a model or a trainer.

    `path` is the dotted name of the called function, and `receiver` the object of a method. `attributes` are the
    attributes that the script sets on this value, and `calls` the calls of its methods.
    """

    path: str
    positional: list[Argument]
    keywords: dict[str, Argument]
    location: Location
    receiver: object = None
    attributes: dict[str, object] = field(factory=dict)
    locations: dict[str, Location] = field(factory=dict)
    calls: list[Object] = field(factory=list)

    @property
    def last(self) -> str:
        """The part of the path after the last dot, such as `SFTTrainer`."""
        return self.path.rpartition(".")[2]

    def argument(self, name: str, position: int | None = None) -> Argument | None:
        """The argument with this name or, if there is none, the one at this position. None if both are missing."""
        found = self.keywords.get(name)
        if found is None and position is not None and position < len(self.positional):
            return self.positional[position]
        return found


OPEN = "**"
"""A key that marks a dict which may have further, unknown keys; its value says why they are unknown."""


@mutable
class Function:
    """A function of the script, with the scopes in which it was defined."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scopes: list[dict[str, object]] = field(repr=False)
    label: str = ""
    owner: object = None
    called: bool = False

    def __deepcopy__(self, memo: object) -> object:
        """Return the function itself, so that the copies of a trainer share the functions of the script."""
        return self

    @property
    def name(self) -> str:
        """The function's name, or "lambda"."""
        return getattr(self.node, "name", "lambda")


@mutable
class Class:
    """A class of the script: its bases, and its attributes with their locations."""

    name: str
    bases: list[object]
    location: Location
    attributes: dict[str, object] = field(factory=dict)
    locations: dict[str, Location] = field(factory=dict)
    fields: list[str] = field(factory=list)
    """The names with an annotation, which are the fields of a dataclass."""
    required: dict[str, Location] = field(factory=dict)
    kinds: dict[str, Class] = field(factory=dict)
    """Maps each field whose annotation is a class of the script to this class."""
    annotations: dict[str, str] = field(factory=dict)
    """Maps each field to the source text of its annotation."""

    def __deepcopy__(self, memo: object) -> object:
        """Return the class itself, so that the copies of a trainer share the classes of the script."""
        return self

    def base(self) -> str:
        """The dotted name of the library's class from which the class inherits, such as `trl.SFTTrainer`; "" if there
        is none.
        """
        names = [one for one in self._above() if isinstance(one, Name)]
        return next((one.path for one in names if one.last not in PLAIN_BASES), "")

    def lineage(self) -> list[Class]:
        """The class itself, and then its base classes in the script."""
        return [self, *(one for one in self._above() if isinstance(one, Class))]

    def _above(self) -> Iterator[object]:
        """Yield the base classes, each followed by its own base classes. A class of the script is yielded once, and at
        most MAX_BASES of them.
        """
        seen, left = {id(self)}, self.bases[::-1]
        while left:
            one = left.pop()
            if isinstance(one, Class):
                if id(one) in seen or len(seen) > MAX_BASES:
                    continue
                seen.add(id(one))
                left += one.bases[::-1]
            yield one

    def find(self, name: str) -> object:
        """The attribute `name` of the class or of one of its bases; None if there is none."""
        for one in self.lineage():
            if name in one.attributes:
                return one.attributes[name]
        return None


@mutable
class Instance:
    """An object of a class of the script."""

    kind: Class
    attributes: dict[str, object] = field(factory=dict)
    locations: dict[str, Location] = field(factory=dict)
    made: Object | None = None
    """The recorded call of the library's class from which the object's class inherits, or None."""


@mutable
class Bound:
    """A method with its object (`receiver`), or a function with arguments from `functools.partial` (`keywords`)."""

    function: object
    receiver: object = None
    keywords: dict[str, Argument] = field(factory=dict)


@record
class Super:
    """The value of `super()` in a method: the object (`made`), and the class that defines the method (`kind`)."""

    made: Instance
    kind: Class


HALF = ", in one branch of the condition"


class Join:
    """Joins the values after two branches: equal values stay, different values become unknown.

    `column` is the column of the row that the condition tests for emptiness, if any. Each unknown value keeps the known
    value `hidden` or, without it, the value of one of the branches.
    """

    def __init__(self, location: Location, hidden: object = None, column: str = "") -> None:
        self.location, self.left, self.hidden, self.column = location, MOST_JOINED, hidden, column
        self.made: dict[tuple[int, int], object] = {}

    def join(self, one: object, other: object) -> object:
        """The value after two branches, which is `one` after the first and `other` after the second."""
        self.left -= 1
        if one is other or self.left < 0:
            return one if one is other else self.unknown()
        if isinstance(one, Location):
            return one
        if isinstance(one, Argument) and isinstance(other, Argument):
            return Argument(self.join(one.value, other.value), one.location)
        if isinstance(one, Scalar) and isinstance(other, Scalar):
            return one if type(one) is type(other) and one == other else self.unknown(one, other)
        known = self.made.get((id(one), id(other)))
        if known is not None:
            return known
        if isinstance(one, Unknown):
            return one if isinstance(other, Unknown) else self.half(one)
        if isinstance(other, Unknown):
            return self.half(other)
        if isinstance(one, Name | Column | Text | Choice) and one == other:
            return one
        return self.parts(one, other)

    def half(self, value: Unknown) -> Unknown:
        """Join an unknown value of one branch with a known value of the other. The reason also names the condition's
        location.
        """
        if type(value) is not Unknown or HALF in value.why:
            return value
        return Unknown(f"{value.why}{HALF} ({self.location})", value.location, value.hidden)

    def parts(self, one: object, other: object) -> object:
        """Join two objects, dicts, lists or tuples item by item. Any other values become unknown."""
        if isinstance(one, Object) and isinstance(other, Object) and one.path == other.path:
            out = Object(one.path, [], {}, one.location, one.receiver)
            self.made[id(one), id(other)] = out
            out.receiver = self.join(one.receiver, other.receiver)
            if len(one.positional) == len(other.positional):
                out.positional = [
                    Argument(self.join(a.value, b.value), a.location) for a, b in zip(one.positional, other.positional)
                ]
            else:
                out.positional = [Argument(self.unknown(), self.location)]
            out.keywords = self.tables(one.keywords, other.keywords)
            out.attributes = self.tables(one.attributes, other.attributes)
            out.locations = {**other.locations, **one.locations}
            own = set(map(id, one.calls))
            out.calls = [*one.calls, *(call for call in other.calls if id(call) not in own)]
            return out
        if isinstance(one, Table) and isinstance(other, Table):
            return Table(self.tables(one, other), {**other.locations, **one.locations})
        if isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
            return type(one)(self.join(a, b) for a, b in zip(one, other))
        return self.unknown(one, other)

    def tables(self, one: Mapping, other: Mapping) -> dict:  # type: ignore[type-arg]
        """Join two mappings. If only one of them has a key, the joined value of this key is unknown."""
        return {
            key: self.join(one[key], other[key])
            if key in one and key in other
            else self.only(one.get(key, other.get(key)))
            for key in [*one, *(key for key in other if key not in one)]
        }

    def only(self, present: object) -> object:
        """The joined value of a key that only one branch sets; `present` is its value in this branch."""
        if isinstance(present, Location):
            return present
        if isinstance(present, Argument):
            return Argument(self.unknown(present.value), present.location)
        return self.unknown(present)

    def unknown(self, one: object = None, other: object = None) -> Unknown:
        """The value that a variable has after an `if` whose condition is unknown; `one` and `other` are its values in
        the two branches. If the condition is that a column is empty, and both values are strings, return a `Choice`.
        """
        texts = (str, Column, Text, Object, Choice)
        if self.column and isinstance(one, texts) and isinstance(other, texts):
            return Choice(self.column, one, other)  # type: ignore[return-value]
        shown = " or ".join(repr(each) for each in (one, other) if isinstance(each, Scalar) and each is not None)
        why = f"it depends on the condition{f' ({shown[:60]})' if shown else ''}"
        return Unknown(why, self.location, self.hidden or (one if not isinstance(one, Scalar) else other))


def condition(value: object) -> str:
    """The column that a condition tests for emptiness: `input` for `if row["input"]:`; "" for any other condition."""
    if isinstance(value, Column) and not value.batch:
        return value.name
    if isinstance(value, Object) and value.path in ("str.strip", "<full>"):
        return condition(value.receiver)
    return ""
