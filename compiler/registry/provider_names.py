"""Recognize the names that cloud providers give GPUs, such as `A100-SXM4-80GB` and `t4-16gb`. This module is imported
only for a name that is not in the registry.

A name is accepted if all of its words are known and exactly one registered GPU fits. `a100` alone is ambiguous, because
it may have 40 or 80 GB.
"""

from __future__ import annotations

import re
from functools import cache

from xpc.compiler.registry.tables import row, table
from xpc.grammar.package_data import read_table
from xpc.grammar.record import record

VENDOR = ("nvidia", "tesla", "geforce", "quadro", "gpu", "gpus", "instance", "ampere", "hopper", "card", "tensor",
          "core")  # fmt: skip
SOCKET = re.compile(r"sxm\d?|hbm\d?e?")
MEMORY = re.compile(r"(\d+)(?:gi?b?)?")
OTHERS = re.compile(r"(mi\d+\w*|instinct|radeon|rx|gfx\w*|m[1-9]|apple|mps|tpu|v\dp?e?|gaudi\d?|hpu|npu|ascend|910b?|"
                    r"arc|xpu|max|trn\d|trainium\d?|inf\d|inferentia\d?|pro|ultra|\d+)")  # fmt: skip
OTHER_MAKERS = ("mi", "instinct", "radeon", "rx", "gfx", "apple", "mps", "tpu", "gaudi", "hpu", "npu", "ascend", "arc",
                "xpu", "trn", "trainium", "inferentia", "m1", "m2", "m3", "m4")  # fmt: skip


@record
class Shape:
    """The parts of a GPU's name: its model (`a100`), its memory in GB (None if the name does not contain it), and its
    form factor, which is a card (`pcie`, `nvl`) or a socket.
    """

    model: str
    memory: int | None
    card: str
    socket: bool


@cache
def shape(name: str) -> Shape | None:
    """Split a name into its parts; None if it cannot be the name of a GPU."""
    memory: int | None = None
    card, socket = "", False
    model: list[str] = []
    for word in re.split(r"[-_. ]+", name.lower()):
        if word in VENDOR or not word:
            continue
        if SOCKET.fullmatch(word):
            socket = True
        elif word in ("pcie", "nvl"):
            card = word
        elif MEMORY.fullmatch(word) and model and (not word.isdecimal() or _is_memory(int(word), "".join(model))):
            memory = int(word.rstrip("gib"))
        else:
            model.append(word)
    return Shape("".join(model), memory, card, socket) if model else None


def _is_memory(number: int, model: str) -> bool:
    """Whether the number after `model` in a name is the memory, as in `v100-32`. In `rtx-4090`, the number is a part of
    the model's name.
    """
    return number in (8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 80, 94, 96, 141, 180, 192) and any(
        c.isdecimal() for c in model
    )


@cache
def _shapes() -> dict[str, Shape]:
    return {name: found for name in table("gpus")["rows"] if (found := shape(name)) is not None}


def of_model(name: str) -> list[str]:
    """The registered GPUs of the model in a name, with any memory: `4090` gives the RTX 4090."""
    parsed = shape(name)
    if parsed is None:
        return []
    exact = [one for one, found in _shapes().items() if found.model == parsed.model]
    short = parsed.model if len(parsed.model) > 3 else "?"
    return exact or [
        one for one, found in _shapes().items() if found.model.endswith(short) and found.model[:3] == "rtx"
    ]


def fitting(name: str) -> list[str]:
    """The registered GPUs whose model, memory and form factor agree with a name."""
    parsed = shape(name)
    out: list[str] = []
    for one in of_model(name) if parsed is not None else ():
        found = _shapes()[one]
        if parsed is None or (parsed.card and found.card != parsed.card) or (parsed.socket and found.card):
            continue
        if parsed.memory is not None and not _holds(one, found, parsed.memory):
            continue
        out.append(one)
    plain = [one for one in out if not _shapes()[one].card]
    return plain if parsed is not None and parsed.memory is not None and not parsed.card and plain else out


def _holds(name: str, found: Shape, memory: int) -> bool:
    """Whether a GPU has about `memory` GB: its own name contains this number, or the memory that its driver reports is
    at most 12 % below `memory` and at most 2 % above it.
    """
    if found.memory is not None:
        return found.memory == memory
    gpu = row(table("gpus"), name)
    return gpu is not None and bool(0.88 <= gpu["memory_gib"] / memory <= 1.02)


def certain(name: str) -> str | None:
    """The registered GPU that a name stands for. None if no GPU fits the name, or if several do."""
    found = fitting(name)
    return found[0] if len(found) == 1 else None


def of_another_maker(name: str) -> bool:
    """Whether a name means an accelerator that does not run CUDA, such as `mi300x` or `tpu`."""
    words = re.split(r"[-_. ]+", name.lower())
    return words[0].startswith(OTHER_MAKERS) and all(OTHERS.fullmatch(word) for word in words)


def rented(machine: str) -> str | None:
    """The GPUs of a machine that a cloud rents: `8 x a100-40gb` for `p4d.24xlarge`. None for any other name."""
    table, name = read_table(__file__, "machines.toml"), machine.lower()
    found = table.get(name) or table.get(re.sub(r"\.\w+$", ".*", name))
    return found if isinstance(found, str) else None
