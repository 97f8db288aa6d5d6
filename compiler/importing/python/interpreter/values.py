"""Values of a script that is not executed. None, truth values, numbers, texts, lists, tuples and dicts represent
themselves; other values have the classes below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from xpc.grammar.record import field, mutable, record

if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

Scalar = (bool, int, float, str, type(None))
LONGEST = 100_000
"""The longest text or list that is computed."""
MOST_JOINED = 20_000
"""The most values that are compared after a condition of unknown result, to keep those equal in both branches."""
MAX_BASES = 20
"""The most classes of the script in a class's lineage."""
PLAIN_BASES = ("object", "ABC", "Generic", "Protocol", "Enum", "str")


@record
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@record
class Unknown:
    """A value that the script's text does not decide, with the reason and the place."""

    why: str
    place: Place
    hidden: object = field(default=None, repr=False)
    """The value from which it is made, such as the data set whose rows an unreadable function filters."""


@record
class Unset(Unknown):
    """An environment variable without a default, or an answer that a person types. If the script replaces an empty
    value, as in `os.environ.get("X") or 3`, the replacement is taken.
    """


@record
class Name:
    """A name of a library, such as `torch.bfloat16`."""

    path: str

    @property
    def last(self) -> str:
        """The part after the last dot."""
        return self.path.rpartition(".")[2]


@record
class Column:
    """The value of a column in the row that a function gets; with `batch`, the column's values in several rows.
    `source` is the data over whose rows a loop runs.
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
    """The row that a function over rows gets (with `batch`, several rows), and the columns that the function sets."""

    batch: bool = False
    written: dict[Any, object] = field(factory=dict)
    source: object = field(default=None, repr=False)


@record
class Text:
    """A text that contains columns of a row: its parts in order."""

    parts: tuple[object, ...]


@record
class Choice:
    """A value that depends on whether a column of the row is empty."""

    column: str
    full: object
    empty: object


@record
class Argument:
    """An argument of a call, and the place of its keyword."""

    value: object
    place: Place


class Table(dict[Any, Any]):
    """A dict with the places of its keys."""

    def __init__(self, values: Mapping[Any, object] | None = None, places: Mapping[Any, Place] | None = None):
        super().__init__(values or {})
        self.places: dict[Any, Place] = dict(places or {})


class Splits(Table):
    """A `DatasetDict`: the data sets by the names of their splits. Its methods change each of them."""


class Words(list[Any]):
    """The words of the script's command line."""


class Namespace(Table):
    """A dict whose keys are also attributes, such as OmegaConf's."""


@mutable
class Object:
    """The value that a call of a library's function returns. `receiver` is the object of a method, `attributes` are the
    attributes that the script sets, and `calls` the methods that the script calls for their effect.
    """

    path: str
    positional: list[Argument]
    keywords: dict[str, Argument]
    place: Place
    receiver: object = None
    attributes: dict[str, object] = field(factory=dict)
    places: dict[str, Place] = field(factory=dict)
    calls: list[Object] = field(factory=list)

    @property
    def last(self) -> str:
        """The part of the path after the last dot."""
        return self.path.rpartition(".")[2]

    def argument(self, name: str, position: int | None = None) -> Argument | None:
        """The argument with a name, or at a position."""
        found = self.keywords.get(name)
        if found is None and position is not None and position < len(self.positional):
            return self.positional[position]
        return found


@mutable
class Function:
    """A function of the script, with the scopes around it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scopes: list[dict[str, object]] = field(repr=False)
    label: str = ""
    owner: object = None
    called: bool = False

    def __deepcopy__(self, memo: object) -> object:
        """The function itself, because a copy of a trainer shares the script's functions and classes."""
        return self

    @property
    def name(self) -> str:
        """The function's name, or `lambda`."""
        return getattr(self.node, "name", "lambda")


@mutable
class Class:
    """A class of the script: its bases, and its attributes with their places."""

    name: str
    bases: list[object]
    place: Place
    attributes: dict[str, object] = field(factory=dict)
    places: dict[str, Place] = field(factory=dict)
    fields: list[str] = field(factory=list)
    """Names with an annotation, which a dataclass takes as arguments."""
    required: dict[str, Place] = field(factory=dict)
    kinds: dict[str, Class] = field(factory=dict)
    """The classes of the script that the annotations of fields name."""
    annotations: dict[str, str] = field(factory=dict)
    """The annotations of the fields, as the script has them."""

    def __deepcopy__(self, memo: object) -> object:
        """The class itself, because a copy of a trainer shares the script's functions and classes."""
        return self

    def base(self) -> str:
        """The path of the library class that the class inherits from; empty if there is none."""
        names = [one for one in self._above() if isinstance(one, Name)]
        return next((one.path for one in names if one.last not in PLAIN_BASES), "")

    def lineage(self) -> list[Class]:
        """The class and its bases in the script, the class itself first."""
        return [self, *(one for one in self._above() if isinstance(one, Class))]

    def _above(self) -> Iterator[object]:
        """The bases, each followed by its own bases. Every class of the script occurs once, and at most MAX_BASES of
        them.
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
        """An attribute of the class or of its bases; None if it has no such attribute."""
        for one in self.lineage():
            if name in one.attributes:
                return one.attributes[name]
        return None


@mutable
class Instance:
    """An object of a class of the script."""

    kind: Class
    attributes: dict[str, object] = field(factory=dict)
    places: dict[str, Place] = field(factory=dict)
    made: Object | None = None
    """The call of the library class from which its class inherits."""


@mutable
class Bound:
    """A function with its object (a bound method), or with some arguments already given (a partial)."""

    function: object
    receiver: object = None
    keywords: dict[str, Argument] = field(factory=dict)


@record
class Super:
    """The value of `super()` in a method: its object, and the class of the script that has the method."""

    made: Instance
    kind: Class


class Join:
    """Joins the values of two branches: equal parts stay, others become unknown. `hidden` is the value from which both
    are made, and `column` the column whose emptiness decides the branch.
    """

    def __init__(self, place: Place, hidden: object = None, column: str = "") -> None:
        self.place, self.left, self.hidden, self.column = place, MOST_JOINED, hidden, column
        self.made: dict[tuple[int, int], object] = {}

    def join(self, one: object, other: object) -> object:
        """The value after a condition whose branches give `one` and `other`."""
        self.left -= 1
        if one is other or self.left < 0:
            return one if one is other else self.unknown()
        if isinstance(one, Place):
            return one
        if isinstance(one, Argument) and isinstance(other, Argument):
            return Argument(self.join(one.value, other.value), one.place)
        if isinstance(one, Scalar) and isinstance(other, Scalar):
            return one if type(one) is type(other) and one == other else self.unknown(one, other)
        known = self.made.get((id(one), id(other)))
        if known is not None:
            return known
        if isinstance(one, Unknown):
            return one
        if isinstance(other, Unknown):
            return other
        if isinstance(one, Name | Column | Text | Choice) and one == other:
            return one
        return self.parts(one, other)

    def parts(self, one: object, other: object) -> object:
        """The join of two values with parts."""
        if isinstance(one, Object) and isinstance(other, Object) and one.path == other.path:
            out = Object(one.path, [], {}, one.place, one.receiver)
            self.made[id(one), id(other)] = out
            out.receiver = self.join(one.receiver, other.receiver)
            if len(one.positional) == len(other.positional):
                out.positional = [
                    Argument(self.join(a.value, b.value), a.place) for a, b in zip(one.positional, other.positional)
                ]
            else:
                out.positional = [Argument(self.unknown(), self.place)]
            out.keywords = self.keywords(one.keywords, other.keywords)
            out.attributes = self.tables(one.attributes, other.attributes)
            out.places = {**other.places, **one.places}
            own = set(map(id, one.calls))
            out.calls = [*one.calls, *(call for call in other.calls if id(call) not in own)]
            return out
        if isinstance(one, Table) and isinstance(other, Table):
            return Table(self.tables(one, other), {**other.places, **one.places})
        if isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
            return type(one)(self.join(a, b) for a, b in zip(one, other))
        return self.unknown(one, other)

    def keywords(self, one: dict[str, Argument], other: dict[str, Argument]) -> dict[str, Argument]:
        """The join of two calls' keywords; a keyword that one call lacks is unknown."""
        out: dict[str, Argument] = {}
        for name in [*one, *(key for key in other if key not in one)]:
            a, b = one.get(name), other.get(name)
            if a is not None and b is not None:
                out[name] = Argument(self.join(a.value, b.value), a.place)
            else:
                present = a or b
                assert present is not None
                out[name] = Argument(self.unknown(present.value), present.place)
        return out

    def tables(self, one: Mapping, other: Mapping) -> dict:  # type: ignore[type-arg]
        """The join of two mappings; a key that one mapping lacks is unknown."""
        return {
            key: self.join(one[key], other[key])
            if key in one and key in other
            else self.only(one.get(key, other.get(key)))
            for key in [*one, *(key for key in other if key not in one)]
        }

    def only(self, present: object) -> object:
        """The value of a key after a condition of which only one branch sets the key."""
        if isinstance(present, Place):
            return present
        if isinstance(present, Argument):
            return Argument(self.unknown(present.value), present.place)
        return self.unknown(present)

    def unknown(self, one: object = None, other: object = None) -> Unknown:
        """The unknown value of a condition's branches. For texts of a row, it is a choice by whether a column
        is empty.
        """
        texts = (str, Column, Text, Object, Choice)
        if self.column and isinstance(one, texts) and isinstance(other, texts):
            return Choice(self.column, one, other)  # type: ignore[return-value]
        shown = " or ".join(repr(each) for each in (one, other) if isinstance(each, Scalar) and each is not None)
        return Unknown(
            f"it depends on the condition{f' ({shown[:60]})' if shown else ''}",
            self.place,
            self.hidden or (one if not isinstance(one, Scalar) else other),
        )


def condition(value: object) -> str:
    """The column whose emptiness a condition tests, such as `input` for `row["input"]`; empty for another condition."""
    if isinstance(value, Column) and not value.batch:
        return value.name
    if isinstance(value, Object) and value.path in ("str.strip", "<full>"):
        return condition(value.receiver)
    return ""
