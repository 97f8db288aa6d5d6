"""How datasets holds and maps rows (datasets 5)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def rearranged(rows: Any) -> bool:
    """Whether the rows are a choice of those of their table, or in another order: its columns are not theirs then."""
    return getattr(rows, "_indices", None) is not None


@contextmanager
def map_replaced(mapped: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, ``mapped`` stands for ``Dataset.map``, and gets it as its first argument."""
    import datasets

    real = datasets.Dataset.map
    datasets.Dataset.map = lambda self, *args, **kwargs: mapped(real, self, *args, **kwargs)
    try:
        yield
    finally:
        datasets.Dataset.map = real
