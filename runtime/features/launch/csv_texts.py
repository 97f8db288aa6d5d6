"""Read the text columns of CSV files as texts.

pandas reads a cell such as `007` as 7 if the column, or the column's next ten thousand rows, has only such cells.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `xpc check` imports this module, and importing typing takes milliseconds
    from collections.abc import Mapping
    from typing import Any

TEXTS = ("text", "prompt", "completion", "chosen", "rejected", "instruction", "input", "output", "system", "solution")
"""Columns whose cells are texts in every format. Rewards such as `accuracy` read `solution` as a text."""
NULLS = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
))  # fmt: skip
"""The cells of a CSV file that pandas reads as null (`pandas._libs.parsers.STR_NA_VALUES`)."""


def converters(source: Mapping[str, Any]) -> dict[str, Any]:
    """Maps each text column of a source to the function that reads its cells. pandas itself converts all other columns:
    labels, and columns that only rewards read.
    """
    given = list(source["columns"] or ())
    if source["shape"] in ("unpaired", "prompt"):
        given = given[:-1] if source["shape"] == "unpaired" else given[:1]
    return dict.fromkeys([*TEXTS, *given, *filter(None, [source.get("context")])], text)


def text(cell: str) -> str | None:
    """A cell as text, or None for a cell that pandas reads as null."""
    return None if cell in NULLS else cell
