"""The modules of each model family on each stack, and the adapters that they can have.

`NAME/modules.json` is made by tests/stacks/write_modules.py from models on the meta device and PEFT's conversion
tables: a path of `named_modules`, with N for numbers, and letters for what PEFT can adapt there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache

from xpc.compiler.stacks import HERE

LORA, OFT, PARAMETER = "l", "o", "p"
"""Letters of a path: it can have a LoRA adapter, an OFT adapter, or is a parameter of stacked experts."""


@cache
def _text(stack: str) -> str:
    with open(os.path.join(HERE, stack, "modules.json"), encoding="utf-8") as handle:
        return handle.read()


@cache
def modules(stack: str, family: str | None) -> Mapping[str, str]:
    """The paths of a family with their letters; empty for an unknown family. Reads one line of the file."""
    found = re.search(rf'^  "{re.escape(family or "-")}": (.*?),?$', _text(stack), re.MULTILINE)
    made: Mapping[str, str] = {} if found is None else json.loads(found[1])
    return made


def paths(known: Mapping[str, str], letters: str) -> tuple[str, ...]:
    """The paths with one of the letters."""
    return tuple(path for path, kinds in known.items() if set(kinds) & set(letters))


def ends(target: str, among: Iterable[str]) -> bool:
    """Whether a target is one of these paths or the end of one, as PEFT matches it."""
    name = re.sub(r"(?<![^.])\d+(?![^.])", "N", target)
    return any(path == name or path.endswith(f".{name}") for path in among)


def last_names(among: Iterable[str]) -> tuple[str, ...]:
    """The last names of the paths, each once."""
    return tuple(dict.fromkeys(path.rpartition(".")[2] for path in among))
