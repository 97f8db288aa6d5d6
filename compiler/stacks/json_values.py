"""Functions that give values of the stacks' JSON files the types that a caller expects."""

from __future__ import annotations

from collections.abc import Mapping

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def mapping_of(value: Json) -> Mapping[str, Json]:
    """Assert that the value is a JSON object, and return it with this type."""
    assert isinstance(value, dict)
    return value


def strings_of(value: Json) -> tuple[str, ...]:
    """Assert that the value is a list, and return it as a tuple of strings."""
    assert isinstance(value, list)
    return tuple(str(item) for item in value)


def copy_of(value: Json) -> Json:
    """Copy a JSON value, so that a caller can change its lists and dictionaries."""
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    return [copy_of(item) for item in value] if isinstance(value, list) else value
