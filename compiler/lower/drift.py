"""Write the section of `README.md` that compares the bundle's stack with other stacks. The section lists arguments that
have another name or another default in an older or a newer stack.

A bundle states every argument, so a default that changes between versions does not change the run. The section shows
what would change if the bundle left arguments to the library's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Field, Json, Stack, every

UNCOMPARED = frozenset(
    ("bf16", "fp16", "tf32", "output_dir", "logging_dir", "run_name", "include_num_input_tokens_seen",
     "include_tokens_per_second")
)  # fmt: skip
"""Arguments whose defaults are not compared between stacks: precisions are derived, folders and names are stated in the
spec, and the others affect only logs.
"""


def drift(spec: Spec, stated: Mapping[str, Json], cell: Callable[[str], str]) -> list[str]:
    """The lines of README.md that compare the stacks. Empty if the stacks agree.

    `stated` are the arguments that the bundle states. `cell` escapes a text for a cell of a table.
    """
    others = [other for other in every() if other is not spec.stack and _config(spec, other) in other.configs]
    written = tuple(dict.fromkeys(name for path in spec.values if spec.written(path) for name in BY_PATH[path].args))
    renamed = (_renamed(spec.stack, spec.config, other, _config(spec, other), written) for other in others)
    named = ["| " + " | ".join(map(cell, row)) + " |" for rows in renamed for row in rows]
    moved = [line for other in others for line in _defaults(spec, stated, other, cell)]
    if not named and not moved:
        return []
    lines = ["", "## Compared with other stacks"]
    if named:
        lines += ["", "Arguments with other names in other stacks:", "", "| other stack | this stack |", "|---|---|"]
        lines += named
    if moved:
        lines += ["", "Defaults that differ, and the value in this run:", ""]
        lines += [
            "| argument | this run | default of the other stack | default of this stack |",
            "|---|---|---|---|",
            *moved,
        ]
    return lines


@cache
def _renamed(
    stack: Stack, config: str, other: Stack, theirs: str, written: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The arguments of another stack that this stack has renamed or removed. Returns pairs: an argument's name in the
    other stack, and its name in this stack, or a text that says what replaces it.
    """
    here, there = stack.fields(config), other.fields(theirs)
    omitted = stack.omitted(config)
    both = [one for name in written for one in (name, other.rename(name)) if one is not None]
    found = []
    for name in dict.fromkeys(both):
        if (name in here and name not in omitted) or not (name in there or name == other.arguments["dtype"]):
            continue
        new = stack.rename(name)
        missing = stack.removed.get(name) or omitted.get(name)
        if new is not None and new != name:
            found.append((f"{other.name}: {name}", new))
        elif missing is not None and name in written:
            found.append((f"{other.name}: {name}", missing))
    return tuple(found)


def _defaults(spec: Spec, stated: Mapping[str, Json], other: Stack, cell: Callable[[str], str]) -> Iterator[str]:
    moved = _changed_defaults(spec.stack, spec.config, other, _config(spec, other))
    for name, value in stated.items():
        if name in moved:
            new, old = moved[name]
            texts = (_text(value), f"{_text(old.effective)} ({other.name})", _text(new.effective))
            label = name if old.name == name else f"{name} ({other.name}: {old.name})"
            yield "| " + " | ".join(cell(text) for text in (label, *texts)) + " |"


@cache
def _changed_defaults(stack: Stack, config: str, other: Stack, theirs: str) -> Mapping[str, tuple[Field, Field]]:
    """The arguments of a configuration class whose defaults differ between two stacks. The result maps an argument's
    name to a pair: the argument in the first stack, and the argument in the other stack.
    """
    here, there = stack.fields(config), other.fields(theirs)
    pairs = ((new, there.get(name) or there.get(other.rename(name) or "")) for name, new in here.items())
    return {
        new.name: (new, old)
        for new, old in pairs
        if old is not None
        and new.name not in UNCOMPARED
        and not new.machine
        and not same_value(old.effective, new.effective)
    }


def _config(spec: Spec, other: Stack) -> str:
    return other.config(spec.text("method"))


def same_value(one: object, other: object) -> bool:
    """Whether two defaults have the same meaning. An unset value counts as equal to an empty one, and a name as equal
    to a list with only this name.
    """
    return one == other or (one in (None, {}) and other in (None, {})) or one == [other] or other == [one]


def _text(value: Json) -> str:
    return "unset" if value is None else json.dumps(value)
