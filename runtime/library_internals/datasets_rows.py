"""Private attributes of datasets' tables, and a replacement of ``Dataset.map`` (datasets 5)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def rearranged(rows: object) -> bool:
    """Whether the dataset is a selection or a permutation, so that its row i may not be row i of its table."""
    return getattr(rows, "_indices", None) is not None


def typed(rows: Any) -> Any:
    """Return the rows. A stream without column types gets those of its first row: else turns would be JSON strings."""
    if rows.features is None and (first := next(iter(rows.with_format("arrow")), None)) is not None:
        from datasets import Features

        rows.info.features = Features.from_arrow_schema(first.schema)
    return rows


@contextmanager
def map_replaced(mapped: Callable[..., object]) -> Iterator[None]:
    """A context manager: ``mapped`` replaces ``Dataset.map``, and gets the original method as its first argument."""
    import datasets

    real = datasets.Dataset.map
    datasets.Dataset.map = lambda self, *args, **kwargs: mapped(real, self, *args, **kwargs)
    try:
        yield
    finally:
        datasets.Dataset.map = real
