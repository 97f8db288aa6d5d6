"""The emitted files of a bundle as keys and values: `trainer_args.json arguments.learning_rate`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from xpc.compiler.engines.pin import LIST, NOT_RUN
from xpc.compiler.files.inputs import UsageError

TABLES = (".json", "accelerate.yaml")
FACTS = ("trainer_args.json target", "trainer_args.json stack.", "trainer_args.json trainer.")
"""What the runtime reads of the stack, which says nothing beside its name, and the modules that the rest decides."""
PROSE = (*NOT_RUN, LIST, "bundle.toml")
"""Files that say in words or digests what the others are: they change with anything."""


def tables(files: Mapping[str, bytes]) -> dict[str, object]:
    """Every value of accelerate.yaml and of the JSON files beside it: `trainer_args.json arguments.learning_rate`.

    Raises UsageError for a file that is none.
    """
    out: dict[str, object] = {}
    for name in sorted(files):
        if "/" in name or not name.endswith(TABLES):
            continue
        try:
            text = files[name].decode()
            table = json.loads(text) if name.endswith(".json") else _yaml(text)
            out.update({f"{name} {key}": value for key, value in _flat(table, "")})
        except (ValueError, RecursionError) as error:  # of a bundle that somebody changed
            raise UsageError(f"{name} of the bundle is damaged: it is no {name.rpartition('.')[2].upper()}") from error
    return {key: value for key, value in out.items() if not key.startswith(FACTS)}


def _flat(table: object, prefix: str) -> Iterator[tuple[str, object]]:
    if isinstance(table, dict) and table:
        for key, value in table.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, table


def _yaml(text: str) -> dict[str, object]:
    """The keys of accelerate.yaml, which has blocks of one level; its numbers, flags and quoted texts are JSON."""
    out: dict[str, object] = {}
    block = ""
    for line in text.split("\n"):
        key, _, value = line.strip().partition(":")
        if line and not line.startswith("#"):
            block = block if line[0] == " " else ""
            if value:
                try:
                    out[f"{block}{key}"] = json.loads(value)
                except ValueError:
                    out[f"{block}{key}"] = value.strip()
            else:
                block = f"{key}."
    return out
