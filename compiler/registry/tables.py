"""The tables of the registry, which `build.py` writes. The file is read once, at the first look-up."""

from __future__ import annotations

from xpc.grammar.package_data import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def table(name: str) -> dict[str, Any]:
    """Return one table as a dict: `columns`, `rows` by alias, and `ids`, which maps hub ids to aliases. Tables without
    hub ids have no `ids`.
    """
    found: dict[str, Any] = read_json(__file__, "tables.json")[name]
    return found


def row(table: dict[str, Any], alias: str) -> dict[str, Any] | None:
    """Return the entry of an alias as a mapping from column names to values; None for an unknown alias."""
    found = table["rows"].get(alias)
    return None if found is None else dict(zip(table["columns"], found))
