"""Map the names of speakers in rows to the roles that the spec gives them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...core.feature import Bundle, Feature, Source
from ...core.rows import KEPT
from ..messages.turn_names import with_roles

Read = Callable[..., dict[str, Any]]


class NamedRoles(Feature):
    """Hooks for a run whose spec says which names of speakers stand for which roles (`user_roles = [customer]`)."""

    def row_converter(self, bundle: Bundle, to_row: Read) -> Read:
        """A function that replaces the names of speakers by the roles in the spec, and then calls ``to_row``."""
        return partial(_read, to_row, bundle.data["roles"])


def _read(
    to_row: Read,
    roles: Mapping[str, str],
    source: Source,
    row: Mapping[str, Any],
    index: int,
    **how: Any,
) -> dict[str, object]:
    renamed = {key: value if key in KEPT else with_roles(value, roles) for key, value in row.items()}
    return to_row(source, renamed, index, **how)
