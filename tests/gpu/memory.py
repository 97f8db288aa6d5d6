"""Memory by phase: sizes, precision, recomputation, tokens and the head of a decoder, each in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from attrs import asdict, frozen
from machine import HERE, Machine, output


@frozen
class Shape:
    """One reading. `layers` x `hidden` decide the size; `head` is `full` or `liger`; `precision` `mixed` or `bf16`."""

    layers: int
    hidden: int
    vocab: int
    tokens: int
    precision: str
    checkpointing: bool
    head: str

    @property
    def name(self) -> str:
        """What finds the reading again."""
        kept = "recomputed" if self.checkpointing else "kept"
        return f"{self.layers}x{self.hidden} v{self.vocab} t{self.tokens} {self.precision} {kept} {self.head}"


SIZES = ((12, 768, 32_000), (16, 1536, 32_000), (24, 2048, 151_936), (28, 2560, 151_936))
"""0.1, 0.5, 1.6 and 2.9 B parameters: layers, hidden size, vocabulary."""


def shapes(rehearsal: bool) -> Iterator[Shape]:
    """About forty shapes; in a rehearsal four small ones."""
    if rehearsal:
        for precision in ("mixed", "bf16"):
            for checkpointing in (False, True):
                yield Shape(2, 64, 1024, 128, precision, checkpointing, "full")
        return
    for layers, hidden, vocab in SIZES:
        for tokens in (2048, 8192):
            for checkpointing in (False, True):
                for head in ("full", "liger"):
                    yield Shape(layers, hidden, vocab, tokens, "mixed", checkpointing, head)
        for checkpointing in (False, True):
            yield Shape(layers, hidden, vocab, 4096, "bf16", checkpointing, "full")


def read(shape: Shape, place: Machine) -> dict[str, Any]:
    """Bytes at the end of each phase and its peak."""
    probe = os.path.join(HERE, "memory_probe.py")
    asked = json.dumps({**asdict(shape), "device": "cpu" if place.rehearsal else "cuda"})
    found: dict[str, Any] = json.loads(output([sys.executable, probe, asked]).splitlines()[-1])
    return {**found, "shape": asdict(shape)}
