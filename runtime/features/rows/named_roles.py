"""Rows whose speakers have names of their own, as the roles that these stand for."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...core.feature import Bundle, Feature
from ...core.rows import KEPT

Read = Callable[..., dict[str, Any]]


class NamedRoles(Feature):
    """Speakers with names of their own."""

    def row_converter(self, bundle: Bundle, to_row: Read) -> Read:
        """``to_row`` of rows whose turns say the roles of the spec."""
        return partial(_read, to_row, bundle.data["roles"])


def _read(
    to_row: Read,
    roles: Mapping[str, str],
    source: Mapping[str, Any],
    row: Mapping[str, Any],
    index: int,
    **how: Any,
) -> dict[str, Any]:
    renamed = {key: value if key in KEPT else _with_roles(value, roles) for key, value in row.items()}
    return to_row(source, renamed, index, **how)


def _with_roles(value: Any, roles: Mapping[str, str]) -> Any:
    """Turns of either spelling, or a single one, with the roles that their names stand for; anything else as it is."""
    if isinstance(value, list):
        return [_with_roles(turn, roles) if isinstance(turn, dict) else turn for turn in value]
    if not isinstance(value, dict):
        return value
    speakers = {key: value[key] for key in ("from", "role") if isinstance(value.get(key), str)}
    renamed = {key: roles[who] for key, who in speakers.items() if who in roles}
    return {**value, **renamed} if renamed else value
