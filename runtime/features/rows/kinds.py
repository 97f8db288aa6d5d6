"""The columns of rows in a mixture of shapes (messages, plain texts). One column names the row's shape; the names of
the row's other columns begin with the shape."""

from collections.abc import Mapping
from typing import Any

KIND = "kind"
"""The column with the shape of a row, such as "text". It prefixes the names of the row's other columns, as in
`text/text`."""


def own_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the mixture with only the columns of its own shape, under their names without the prefix."""
    begin = f"{row[KIND]}/"
    return {name[len(begin) :]: value for name, value in row.items() if name.startswith(begin)}
