"""Measure the peak memory in each phase of a step, for decoders that differ in size, precision, recomputation, tokens
and loss head. Each measurement has a new process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from attrs import asdict, frozen
from machine import Machine, output

from xpc.compiler.plan.load import Load, UnknownMemory
from xpc.compiler.plan.memory import memory
from xpc.compiler.registry.types import ModelFacts


@frozen
class Shape:
    """One measurement. `layers` x `hidden` is the model's size. `head` is how the loss is computed (`full` or `liger`),
    and `precision` is `mixed` or `bf16`.
    """

    layers: int
    hidden: int
    vocab: int
    tokens: int
    precision: str
    checkpointing: bool
    head: str

    @property
    def name(self) -> str:
        """The name of the measurement."""
        kept = "recomputed" if self.checkpointing else "kept"
        return f"{self.layers}x{self.hidden} v{self.vocab} t{self.tokens} {self.precision} {kept} {self.head}"


SIZES = ((12, 768, 32_000), (16, 1536, 32_000), (24, 2048, 151_936), (28, 2560, 151_936))
"""Layers, hidden size and vocabulary of models with 0.1, 0.5, 1.6 and 2.9 B parameters."""


def shapes(rehearsal: bool) -> Iterator[Shape]:
    """The shapes to measure: about forty, or four small ones in a rehearsal."""
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


def planned(shape: Shape, parameters: int) -> dict[str, float]:
    """The bytes at the peak of each phase, as the plan predicts them. Empty if the plan says `unknown`."""
    heads, tied = max(4, shape.hidden // 128), shape.vocab > 100_000
    tables = shape.vocab * shape.hidden * (1 if tied else 2)
    facts = ModelFacts(
        alias="probe", id="probe", model_type="qwen2", params=parameters, layers=shape.layers, hidden=shape.hidden,
        intermediate=4 * shape.hidden, heads=heads, kv_heads=max(2, heads // 4), head_dim=shape.hidden // heads,
        vocab=shape.vocab, context=shape.tokens, tied=tied, dtype="bfloat16", chat=False, gated=False, gated_mlp=True,
        layer_params=(parameters - tables) // shape.layers,
    )  # fmt: skip
    mixed = shape.precision == "mixed"
    weight = 4.0 if mixed else 2.0
    load = Load(
        facts=facts, family="qwen2", engine="none", stage=0, world=1, shard=1, offload=0, element=2, weight=weight,
        amp=mixed, moments=2 * weight, temporary=weight, micro=1, length=shape.tokens, accumulates=False,
        checkpointing=shape.checkpointing, attention="sdpa", loss="fused" if shape.head == "liger" else "kept",
        trained=float(parameters),
    )  # fmt: skip
    with suppress(UnknownMemory):
        return {name: sum(one.values()) for name, one in memory(load).phases.items()}
    return {}


def read(shape: Shape, location: Machine) -> dict[str, Any]:
    """Run memory_probe.py. Return for each phase the measured bytes at its end and at its peak, and the bytes that the
    plan predicts.
    """
    probe = os.path.join(os.path.dirname(os.path.abspath(__file__)), "memory_probe.py")
    requested = json.dumps({**asdict(shape), "device": "cpu" if location.rehearsal else "cuda"})
    found: dict[str, Any] = json.loads(output([sys.executable, probe, requested]).splitlines()[-1])
    printed = planned(shape, found["parameters"])
    peaks = [one["peak"] for one in found["phases"].values() if "peak" in one]
    off = {"off": round(max(printed.values()) / max(peaks) - 1, 4)} if peaks and printed else {}
    return {**found, "shape": asdict(shape), "planned": printed, **off}
