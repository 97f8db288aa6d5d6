"""Record the changes that the two branches of a condition make. After each branch, its changes are undone, so that the
second branch begins in the same state as the first. In the end, the changes of both branches are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from xpc.compiler.importing.python.interpreter.values import Join, Object
from xpc.grammar.record import mutable

MISSING = object()
"""Represents the value of a key that does not exist."""
CALLS = "calls"
"""The key under which changes of an object's `calls` are recorded; changes of all other lists have the key "[]"."""


@mutable
class Writes:
    """The values that a branch changes, by container and key: the old values while the branch is interpreted, and then
    the values that the branch has set.
    """

    old: dict[tuple[int, object], tuple[MutableMapping[object, object], object]]


class Journal:
    """Makes all changes of the script's variables and values, and records them, so that the changes of a branch can be
    undone.
    """

    def __init__(self) -> None:
        self.branches: list[Writes] = []
        self.copied = 0
        """The sum of the lengths of all changed lists, as a measure of the cost: each change copies the list."""

    def write(self, container: MutableMapping[object, object], key: object, value: object) -> None:
        """Set a key of a scope, a dict or an object's attributes. Inside a branch, the old value is recorded."""
        if self.branches:
            self.branches[-1].old.setdefault((id(container), key), (container, container.get(key, MISSING)))
        container[key] = value

    def remove(self, container: MutableMapping[object, object], key: object) -> object:
        """Remove a key, and return its value."""
        value = container[key]
        self.write(container, key, value)  # record the old value, so that it can be restored
        del container[key]
        return value

    def change(self, items: list[object], new: list[object], key: str = "[]") -> None:
        """Replace the items of a list in place. `key` is CALLS for the recorded calls of an object."""
        if self.branches:
            self.branches[-1].old.setdefault((id(items), key), (_Items(items), list(items)))
        self.copied += len(new)
        items[:] = new

    @contextmanager
    def branch(self) -> Iterator[Writes]:
        """A context in which a branch is interpreted. When it ends, the changes that the branch made are undone; the
        yielded `Writes` still has the values that the branch set.
        """
        writes = Writes({})
        self.branches.append(writes)
        try:
            yield writes
        finally:
            self.branches.pop()
            for slot, (container, old) in list(writes.old.items()):
                key = slot[1]
                new = container.get(key, MISSING)
                if old is MISSING:
                    container.pop(key, None)
                else:
                    container[key] = old
                writes.old[slot] = (container, new)

    def merge(self, one: Writes, other: Writes, join: Join, rows: bool) -> bool:
        """Merge the changes of two branches: equal values stay, different values become unknown.

        If one branch of a loop over rows (`rows`) adds an item to a list, and the other skips the row, keep the longer
        list, and return True.
        """
        skipped = False
        for slot in [*one.old, *(key for key in other.old if key not in one.old)]:
            container, _ = one.old.get(slot) or other.old[slot]
            current = container.get(slot[1], MISSING)
            a = one.old[slot][1] if slot in one.old else current
            b = other.old[slot][1] if slot in other.old else current
            if a is MISSING and b is MISSING:
                continue
            if isinstance(container, _Items) and isinstance(a, list) and isinstance(b, list):
                shorter = rows and len(a) != len(b) and slot[1] != CALLS
                skipped = skipped or shorter
                self.change(container.items_, max(a, b, key=len) if shorter else _merged(join, a, b))
            elif a is MISSING or b is MISSING:
                self.write(container, slot[1], join.only(b if a is MISSING else a))
            else:
                self.write(container, slot[1], join.join(a, b))
        return skipped

    def apply(self, writes: Writes) -> None:
        """Repeat the undone changes of a branch, because the script continues only after this branch; the other branch
        may raise an exception, for example.
        """
        for (_, key), (container, value) in writes.old.items():
            if isinstance(container, _Items) and isinstance(value, list):
                self.change(container.items_, value)
            elif value is not MISSING:
                self.write(container, key, value)


class _Items(MutableMapping[object, object]):
    """A mapping with a list as its only value, so that changes of lists are recorded like changes of dicts."""

    def __init__(self, items: list[object]) -> None:
        self.items_ = items

    def __getitem__(self, key: object) -> object:
        return list(self.items_)

    def __setitem__(self, key: object, value: object) -> None:
        self.items_[:] = value if isinstance(value, list) else [value]

    def __delitem__(self, key: object) -> None:
        self.items_.clear()

    def __iter__(self) -> Iterator[object]:
        return iter(["[]"])

    def __len__(self) -> int:
        return 1


def _merged(join: Join, one: list[object], other: list[object]) -> list[object]:
    """Merge the lists of two branches. Of recorded calls, all are kept. Otherwise, the items are merged one by one, or
    to a single unknown item if the lengths differ.
    """
    if all(isinstance(each, Object) for each in [*one, *other]):
        known = set(map(id, one))
        return [*one, *(each for each in other if id(each) not in known)]
    if len(one) == len(other):
        return [join.join(a, b) for a, b in zip(one, other)]
    longer = one if len(one) > len(other) else other
    return [join.only(longer[-1])]
