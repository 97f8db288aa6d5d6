"""Read a YAML or JSON file as entries (keys with values and line numbers)."""

from __future__ import annotations

from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.importing.text.entries import Entry


def read(text: str, file: str) -> dict[str, Entry]:
    """The keys of a file: JSON if it begins with `{`, otherwise YAML. Raises Unreadable."""
    return jsontext.read(text, file) if text.lstrip().startswith("{") else yamltext.read(text, file)
