"""Convert a YAML or JSON file of any supported tool to a draft of the spec."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler import stacks
from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.accelerate import deepspeed as zero
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Machines, Overrides, load, machines
from xpc.compiler.importing.source_file import SourceFile
from xpc.compiler.importing.text.entries import Entries, Entry
from xpc.compiler.importing.trl.reader import given, trl


def converted(source: SourceFile, kind: str, overrides: Overrides) -> Draft:
    """Convert a file of the tool `kind` to a draft of the spec. Raises Unreadable."""
    table = source.table()
    draft = _draft(kind, table, source, overrides)
    for one in (table, overrides.accelerate or {}, overrides.deepspeed or {}, *draft.read):
        _repeated(draft, one)
    return draft


def _repeated(draft: Draft, table: Mapping[str, Entry]) -> None:
    """Warn about each key that the file states twice with different values: readers of YAML use the last value."""
    for one in table.values():
        if one.earlier:
            draft.warn(one, f"line {one.earlier} has the key, too, with another value; the last value is used")
        for part in (one, *(one.value if isinstance(one.value, list) else [])):
            _repeated(draft, part.mapping)


def _draft(kind: str, table: Entries, source: SourceFile, overrides: Overrides) -> Draft:
    """Call the importer of the tool `kind`."""
    if kind == "trl":
        return trl(table, source.name, overrides)
    if kind in ("llamafactory", "axolotl", "torchtune"):
        if kind == "llamafactory":
            from xpc.compiler.importing.llamafactory.reader import llamafactory as other
        elif kind == "torchtune":
            from xpc.compiler.importing.torchtune.reader import torchtune as other
        else:
            from xpc.compiler.importing.axolotl.reader import axolotl as other
        return other(table, source.name, overrides)
    return _fragment(table, kind, overrides)


def _fragment(table: Entries, kind: str, overrides: Overrides) -> Draft:
    """Import a single file of accelerate or DeepSpeed. It becomes a base for `extends` or, with `--model` and `--data`,
    a complete spec.
    """
    draft = Draft(load(overrides.target or stacks.DEFAULT), overrides.method or "sft", overrides.stem)
    given(draft, overrides)
    found = Machines()
    if kind == "deepspeed":
        zero.zero(draft, table)
    else:
        sharding.accelerate(draft, table, overrides, found)
    if found.entries or overrides.hardware or overrides.nodes:
        machines(draft, found, overrides)
    if overrides.target is not None:
        draft.put("target", overrides.target)
    if overrides.method is not None:
        draft.put("method", overrides.method)
    draft.settle(table)
    for one in draft.read:
        draft.settle(one)
    return draft
