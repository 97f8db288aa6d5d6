"""Read a YAML or JSON file that a script loads, as Python values with the file and line of each key."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xpc.compiler.importing.python.interpreter.values import Namespace, Place, Table
from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.importing.text.entries import Entry, Unreadable


def contents(read: Callable[[str], bytes | None], name: str) -> Table | None:
    """The contents of a YAML or JSON file; None if it is missing, unreadable or not a mapping."""
    data = read(name) if name.endswith((".yaml", ".yml", ".json")) else None
    if data is None:
        return None
    try:
        text = data.decode("utf-8-sig")
        return _table(jsontext.read(text, name) if text.lstrip().startswith("{") else yamltext.read(text, name))
    except (Unreadable, UnicodeDecodeError):
        return None


def scalar(text: str) -> object:
    """The value of a string as YAML reads it: `1e-5` is a float, `true` a bool, `[a, b]` a list."""
    try:
        return _value(yamltext.read(f"value: {text}", "")["value"])
    except (Unreadable, KeyError):
        return text


def namespace(value: object, nested: bool = True) -> object:
    """Convert a dict to an object whose attributes are the dict's keys; with `nested`, also the dicts inside."""
    if isinstance(value, dict):
        return Namespace(
            {key: namespace(one) if nested else one for key, one in value.items()}, getattr(value, "places", {})
        )
    return [namespace(one) for one in value] if nested and isinstance(value, list) else value


def _table(entries: Mapping[str, Entry]) -> Table:
    places: dict[object, Place] = {key: Place(one.file, one.line) for key, one in entries.items()}
    return Table({key: _value(one) for key, one in entries.items()}, places)


def _value(entry: Entry) -> object:
    if isinstance(entry.value, dict):
        return _table(entry.value)
    return [_value(one) for one in entry.value] if isinstance(entry.value, list) else entry.value
