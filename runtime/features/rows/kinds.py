"""The kinds of rows in a mixture of shapes."""

from collections.abc import Mapping
from typing import Any

KIND = "kind"
"""The column that says of which kind a row of the mixture is; its others are called KIND/COLUMN there."""


def own_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the mixture with the columns of its own kind, as they were before."""
    begin = f"{row[KIND]}/"
    return {name[len(begin) :]: value for name, value in row.items() if name.startswith(begin)}
