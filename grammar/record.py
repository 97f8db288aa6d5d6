"""The house's attrs classes: frozen, compared by value, and cheap to define.

attrs writes and compiles methods for each class; at some fifty classes that was 40 ms of every command's start. Most
of it went to `__repr__` and to slots, and a third of the rest to comparing: a record has one shared `__repr__`, no
slots, and compares what `operator.attrgetter` reads. With attrs 26.1 on Python 3.11 that takes a third of the time.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

import attrs
from attrs import define, field, frozen

_T = TypeVar("_T")


def _repr(self: object) -> str:
    shown = (a for a in self.__attrs_attrs__ if a.repr)  # type: ignore[attr-defined]
    return f"{type(self).__name__}({', '.join(f'{a.name}={getattr(self, a.name)!r}' for a in shown)})"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_T]) -> type[_T]:
    """A frozen value, equal to another of the same fields."""
    return _compared(entity(cls))


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def entity(cls: type[_T]) -> type[_T]:
    """A frozen value that is only equal to itself."""
    return _finish(frozen(cls, slots=False, repr=False, match_args=False, eq=False))


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def mutable(cls: type[_T]) -> type[_T]:
    """A class with a generated constructor, compared by identity."""
    return _finish(define(cls, slots=False, repr=False, match_args=False, eq=False))


def evolve(value: _T, **changes: Any) -> _T:
    """A copy of a record with some fields replaced."""
    copy: Any = attrs.evolve(value, **changes)  # type: ignore[misc]
    return copy  # type: ignore[no-any-return]


def _compared(cls: type[_T]) -> type[_T]:
    fields: Any = cls.__attrs_attrs__  # type: ignore[attr-defined]
    values = attrgetter(*(one.name for one in fields)) if fields else type

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return bool(values(self) == values(other)) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    cls.__eq__, cls.__hash__ = __eq__, __hash__  # type: ignore[method-assign]
    return cls


def _finish(cls: type[_T]) -> type[_T]:
    cls.__repr__ = _repr  # type: ignore[method-assign]
    return cls
