"""Decorators for value classes: frozen, compared by value, and cheap to define.

The classes are used like classes of attrs, and `attrs.fields` and `cattrs` accept them. attrs is imported only when
`attrs.fields` or `cattrs` is used. With real classes of attrs, `xpc check` spent 40 % of its time on importing attrs
and on compiling methods for sixty classes. Here, the constructor of a class is compiled when the class gets its first
instance, and a command uses only a few of the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar, dataclass_transform

    _T = TypeVar("_T")
else:

    def dataclass_transform(**_):  # noqa: D103 - replaces typing's function: importing typing takes too long
        return lambda made: made


_REQUIRED = object()


class Field:
    """A field of a record: its annotation, its default, and whether `repr` shows it."""

    __slots__ = ("default", "factory", "kind", "kw_only", "repr")

    def __init__(self, default: Any, factory: Callable[[], Any] | None, kw_only: bool, repr: bool) -> None:
        self.default, self.factory, self.kw_only, self.repr = default, factory, kw_only, repr
        self.kind: object = None


def field(
    *, default: Any = _REQUIRED, factory: Callable[[], Any] | None = None, kw_only: bool = False, repr: bool = True
) -> Any:
    """Set options of a field. `factory` makes a new default, such as an empty dict, for each instance."""
    return Field(default, factory, kw_only, repr)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """Class decorator for immutable values. Two instances are equal if all their fields are equal."""
    return _compared(entity(cls))


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def entity(cls: type[_T]) -> type[_T]:
    """Class decorator for immutable objects. An instance is equal only to itself."""
    cls.__setattr__ = cls.__delattr__ = _refuse  # type: ignore[method-assign]
    return mutable(cls)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def mutable(cls: type[_T]) -> type[_T]:
    """Class decorator for mutable objects. An instance is equal only to itself. The constructor is generated."""
    fields = {name: one for base in reversed(cls.__mro__) for name, one in getattr(base, "__fields__", {}).items()}
    for name, kind in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - importing inspect is slow
        value = cls.__dict__.get(name, _REQUIRED)
        fields[name] = value if isinstance(value, Field) else Field(value, None, False, True)
        fields[name].kind = kind
        if value is not _REQUIRED:
            delattr(cls, name)
    cls.__fields__, cls.__attrs_attrs__ = fields, _AttrsFields()  # type: ignore[attr-defined]
    cls.__repr__ = _repr  # type: ignore[method-assign]

    def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: N807
        cls.__init__ = _constructor(fields)  # type: ignore[method-assign]
        cls.__init__(self, *args, **given)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


def evolve(value: _T, **changes: Any) -> _T:
    """A copy of a record with some fields replaced."""
    known = type(value).__fields__  # type: ignore[attr-defined]
    if not known.keys() >= changes.keys():
        raise TypeError(f"{type(value).__name__} has no {', '.join(sorted(changes.keys() - known.keys()))}")
    copy = object.__new__(type(value))
    of = value.__dict__
    # cached properties depend on the fields, so their values are not copied
    copy.__dict__.update({name: of[name] for name in known}, **changes)
    return copy


def fields(cls: type) -> list[str]:
    """The names of the fields of a record class, in the order of their declaration."""
    return list(cls.__fields__)  # type: ignore[attr-defined]


def stated(value: object) -> dict[str, object]:
    """The names and values of those fields of a record whose values are not the defaults."""
    fields: Mapping[str, Field] = type(value).__fields__  # type: ignore[attr-defined]
    defaults = {name: one.default if one.factory is None else one.factory() for name, one in fields.items()}
    return {name: value.__dict__[name] for name in fields if value.__dict__[name] != defaults[name]}


class _AttrsFields:
    """The class attribute `__attrs_attrs__`, which attrs and cattrs read: the fields in attrs' form. It is made when it
    is first read.
    """

    def __get__(self, instance: object, cls: type) -> Any:
        import attrs

        made: dict[str, Any] = {}
        for name, one in cls.__fields__.items():  # type: ignore[attr-defined]
            default: Any = attrs.NOTHING if one.default is _REQUIRED else one.default
            default = default if one.factory is None else attrs.Factory(one.factory)
            made[name] = attrs.field(default=default, kw_only=one.kw_only, repr=one.repr, type=one.kind)
        cls.__attrs_attrs__ = attrs.make_class(cls.__name__, made).__attrs_attrs__  # type: ignore[attr-defined]
        return cls.__attrs_attrs__  # type: ignore[attr-defined]


def _constructor(fields: Mapping[str, Field]) -> Any:
    """Compile an `__init__` for a class with the given fields."""
    scope: dict[str, object] = {"_REQUIRED": _REQUIRED}
    first, body = ["self"], ["    _held = self.__dict__"]
    named: list[str] = []
    for name, one in fields.items():
        taken = value = name
        if one.factory is not None:
            scope[f"_make_{name}"] = one.factory
            taken, value = f"{name}=_REQUIRED", f"_make_{name}() if {name} is _REQUIRED else {name}"
        elif one.default is not _REQUIRED:
            scope[f"_default_{name}"] = one.default
            taken = f"{name}=_default_{name}"
        (named if one.kw_only else first).append(taken)
        body.append(f"    _held[{name!r}] = {value}")
    parameters = ", ".join([*first, *(["*"] if named else []), *named])
    exec("\n".join([f"def __init__({parameters}):", *body]), scope)
    return scope["__init__"]


def _refuse(self: object, name: str, value: object = None) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen, and `{name}` stays as it is")


def _repr(self: object) -> str:
    shown = (name for name, one in self.__fields__.items() if one.repr)  # type: ignore[attr-defined]
    return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _compared(cls: type[_T]) -> type[_T]:
    fields = cls.__fields__  # type: ignore[attr-defined]
    values: Any = attrgetter(*fields) if fields else type

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return bool(values(self) == values(other)) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    cls.__eq__, cls.__hash__ = __eq__, __hash__  # type: ignore[method-assign]
    return cls
