"""Private attributes of datasets' tables, and a replacement of ``Dataset.map`` (datasets 5)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def rearranged(rows: Any) -> bool:
    """Whether the dataset is a selection or a permutation of its table: row i of the table is then not row i of the
    dataset."""
    return getattr(rows, "_indices", None) is not None


@contextmanager
def map_replaced(mapped: Callable[..., Any]) -> Iterator[None]:
    """A context in which ``mapped`` replaces ``Dataset.map``; ``mapped`` gets the original as its first argument."""
    import datasets

    real = datasets.Dataset.map
    datasets.Dataset.map = lambda self, *args, **kwargs: mapped(real, self, *args, **kwargs)
    try:
        yield
    finally:
        datasets.Dataset.map = real
