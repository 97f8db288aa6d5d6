"""The columns of rows in a mixture of formats (messages, plain texts). One column has the row's format. The names of
the other columns begin with the format."""

from collections.abc import Mapping

KIND = "kind"
"""The column that contains the format of each row of a mixture, such as "text". The names of the row's other columns
begin with this format: `text/text`.
"""


def own_columns(row: Mapping[str, object]) -> dict[str, object]:
    """A row of the mixture with only the columns of its own format, without the format in their names."""
    begin = f"{row[KIND]}/"
    return {name[len(begin) :]: value for name, value in row.items() if name.startswith(begin)}
