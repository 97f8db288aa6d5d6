"""`xpc schema`: the settings of the language as a JSON Schema, for editors and programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from xpc.compiler import __version__
from xpc.compiler.language import kinds as k
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.setting import Setting
from xpc.compiler.render.argument_parser import ArgumentParser

Schema = dict[str, object]
TEXT: Schema = {"type": "string"}
PERCENT: Schema = {"type": "string", "pattern": r"^\d+(\.\d+)?%$"}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    description = (
        "Print the settings as a JSON Schema (draft 2020-12): an object with a property for each path, such as "
        '"batch.gbs". Shares are texts ("3%"), as specs write them.'
    )
    return ArgumentParser("xpc schema", description=description).parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the JSON Schema as text, and exit status 0."""
    return json.dumps(schema(), indent=2) + "\n", 0


def schema() -> Schema:
    """The JSON Schema of all settings."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"settings of xpc {__version__}",
        "type": "object",
        "additionalProperties": False,
        "properties": {path: _setting(row) for path, row in BY_PATH.items() if row.kind is not k.BLOCK},
    }


def _setting(row: Setting) -> Schema:
    found: Schema = {"description": row.doc, **_type(row)}
    if row.default is not None and isinstance(row.default, bool | int | float | str):
        found["default"] = row.default
    if row.methods:
        found["$comment"] = "for " + ", ".join(row.methods)
    return found


def _type(row: Setting) -> Schema:
    """The JSON Schema of one setting's value."""
    number: Schema = {"type": "integer" if row.kind in (k.INT, k.TOKENS) else "number"}
    number |= {key: bound for key, bound in (("minimum", row.low), ("maximum", row.high)) if bound is not None}
    count: Schema = {"type": "integer", "minimum": 0}
    listed: Schema = {"type": "array", "items": TEXT}
    one: Schema = {"enum": list(row.choices)}
    kinds: dict[str, Schema] = {
        "flag": {"type": "boolean"},
        "int": number,
        "tokens": number,
        "real": number,
        "steps_or_share": {"anyOf": [count, PERCENT]},
        "rows_or_share": {"anyOf": [count, PERCENT]},
        "real_or_share": {"anyOf": [{"type": "number"}, PERCENT]},
        "every": {"anyOf": [count, PERCENT, {"enum": ["epoch", "never"]}]},
        "share": PERCENT,
        "choice": one,
        "choices": {"anyOf": [one, {"type": "array", "items": one}]},
        "reals": {"type": "array", "items": {"type": "number"}},
        "names": listed,
        "tasks": listed,
        "sources": {"anyOf": [TEXT, listed]},
        "targets": {"anyOf": [TEXT, listed]},
        "weighted": {"anyOf": [TEXT, listed]},
        "functions": {"anyOf": [TEXT, listed]},
        "duration": {"type": "string", "pattern": r"^\d+(\.\d+)?[smhd]$"},
    }
    return kinds.get(row.kind.name, TEXT)
