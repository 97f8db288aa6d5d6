"""Spec to the part of the `README.md` that other versions disagree with: names that moved, and defaults that moved.

A bundle states every argument, so that a default which moves from one version to the next does not move the run. What
would have moved is told here, by the tables of the other targets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Field, Json, Stack, every

QUIET = frozenset(
    ("bf16", "fp16", "tf32", "output_dir", "logging_dir", "run_name", "include_num_input_tokens_seen",
     "include_tokens_per_second")
)  # fmt: skip
"""Arguments whose default stands nowhere (the precision is derived, the names are the spec's), or only reports."""


def drift(spec: Spec, stated: Mapping[str, Json], cell: Callable[[str], str]) -> list[str]:
    """The section's lines, or none where the versions agree.

    `stated` are the arguments that the bundle states; `cell` makes a text safe for a table.
    """
    others = [other for other in every() if other is not spec.stack and _config(spec, other) in other.configs]
    written = tuple(dict.fromkeys(name for path in spec.values if spec.written(path) for name in BY_PATH[path].args))
    renamed = (_names(spec.stack, spec.config, other, _config(spec, other), written) for other in others)
    named = ["| " + " | ".join(map(cell, row)) + " |" for rows in renamed for row in rows]
    moved = [line for other in others for line in _defaults(spec, stated, other, cell)]
    if not named and not moved:
        return []
    lines = ["", "## Compared with other stacks"]
    if named:
        lines += ["", "Arguments that have other names there:", "", "| elsewhere | here |", "|---|---|"]
        lines += named
    if moved:
        lines += ["", "Defaults that differ, and the value that this run states:", ""]
        lines += ["| argument | this run | the default elsewhere | the default here |", "|---|---|---|---|", *moved]
    return lines


@cache
def _names(
    stack: Stack, config: str, other: Stack, theirs: str, written: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The names that another target has for the arguments that are written, where this one has them no more, and what
    stands here instead of each."""
    here, there = stack.fields(config), other.fields(theirs)
    omitted = stack.omitted(config)
    both = [one for name in written for one in (name, other.rename(name)) if one is not None]
    found = []
    for name in dict.fromkeys(both):
        if (name in here and name not in omitted) or not (name in there or name == other.arguments["dtype"]):
            continue
        new = stack.rename(name)
        gone = stack.removed.get(name) or omitted.get(name)
        if new is not None and new != name:
            found.append((f"{other.name}: {name}", new))
        elif gone is not None and name in written:
            found.append((f"{other.name}: {name}", gone))
    return tuple(found)


def _defaults(spec: Spec, stated: Mapping[str, Json], other: Stack, cell: Callable[[str], str]) -> Iterator[str]:
    moved = _moved(spec.stack, spec.config, other, _config(spec, other))
    for name, value in stated.items():
        if name in moved:
            new, old = moved[name]
            texts = (_text(value), f"{_text(old.effective)} ({other.name})", _text(new.effective))
            label = name if old.name == name else f"{name} ({other.name}: {old.name})"
            yield "| " + " | ".join(cell(text) for text in (label, *texts)) + " |"


@cache
def _moved(stack: Stack, config: str, other: Stack, theirs: str) -> Mapping[str, tuple[Field, Field]]:
    """The arguments of a class that have another default in the class of another stack, with what they are there."""
    here, there = stack.fields(config), other.fields(theirs)
    pairs = ((new, there.get(name) or there.get(other.rename(name) or "")) for name, new in here.items())
    return {
        new.name: (new, old)
        for new, old in pairs
        if old is not None
        and new.name not in QUIET
        and not new.machine
        and not same_value(old.effective, new.effective)
    }


def _config(spec: Spec, other: Stack) -> str:
    return other.config(spec.text("method"))


def same_value(one: object, other: object) -> bool:
    """Whether two versions say the same in another form: unset and empty, a name and a list of it."""
    return one == other or (one in (None, {}) and other in (None, {})) or one == [other] or other == [one]


def _text(value: Json) -> str:
    return "unset" if value is None else json.dumps(value)
