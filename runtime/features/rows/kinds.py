"""The kinds of rows in a mixture of shapes."""

from collections.abc import Mapping
from typing import Any

KIND = "kind"
"""The column with the kind of a row in the mixture; the other columns are named KIND/COLUMN."""


def own_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the mixture with the columns of its own kind, under their original names."""
    begin = f"{row[KIND]}/"
    return {name[len(begin) :]: value for name, value in row.items() if name.startswith(begin)}
