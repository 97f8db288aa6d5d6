"""Values of the stacks' JSON files, with the types that a caller expects."""

from __future__ import annotations

from collections.abc import Mapping

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def mapping_of(value: Json) -> Mapping[str, Json]:
    """Return the value with the type of a JSON object, after asserting that it is one."""
    assert isinstance(value, dict)
    return value


def strings_of(value: Json) -> tuple[str, ...]:
    """Return the value as a tuple of strings, after asserting that it is a list."""
    assert isinstance(value, list)
    return tuple(str(item) for item in value)


def copy_of(value: Json) -> Json:
    """Copy a JSON value, so that a caller can change its lists and dictionaries."""
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    return [copy_of(item) for item in value] if isinstance(value, list) else value
