"""Columns of a mixture of row shapes (messages, plain texts): one names a row's shape, which prefixes the others."""

from collections.abc import Mapping
from typing import Any

KIND = "kind"
"""The column with the shape of a row, such as "text"; a row's other columns are prefixed with it, as in `text/text`."""


def own_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the mixture with only the columns of its own shape, without their prefix."""
    begin = f"{row[KIND]}/"
    return {name[len(begin) :]: value for name, value in row.items() if name.startswith(begin)}
