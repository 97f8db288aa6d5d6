"""Values of the stacks' JSON files, with the types that a caller expects."""

from __future__ import annotations

from collections.abc import Mapping

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def mapping_of(value: Json) -> Mapping[str, Json]:
    """The value, which is an object of JSON."""
    assert isinstance(value, dict)
    return value


def strings_of(value: Json) -> tuple[str, ...]:
    """The value, which is a list of strings."""
    assert isinstance(value, list)
    return tuple(str(item) for item in value)


def copy_of(value: Json) -> Json:
    """Copy a JSON value, so that a caller can change its lists and dictionaries."""
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    return [copy_of(item) for item in value] if isinstance(value, list) else value
