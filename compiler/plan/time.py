"""How long a step takes: a sum of parts whose weights were fitted to public measurements (utilisation.json).

A token costs 2 operations a parameter forward and 4 backward (2 where the weights are frozen), and the forward pass
once more where it is recomputed; attention costs 4 x width x length a layer forward (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1; attention counted without the causal half, as the measurements do).
"""

from __future__ import annotations

import json
import math
import os
from functools import cache

from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "utilisation.json")
NARROW = 768
"""Width whose products of matrices are taken as the unit of what narrow ones lose."""
SMALL = 4096
"""Tokens of a micro-batch, likewise."""


@record
class Work:
    """What one GPU computes: parameters that a token meets, layers, width, tokens of a row and of a micro-batch; GPUs
    in all and in a node; and the card's peak in operations a second."""

    params: float
    layers: int
    hidden: int
    length: int
    tokens: int
    checkpointing: bool
    adapters: bool
    gpus: int
    node: int
    peak: float


@record
class Speed:
    """Tokens a second of one GPU, and how far off 9 of 10 measured runs are from such a prediction."""

    tokens: float
    off: float
    source: str


@cache
def table() -> dict[str, Any]:
    """The fitted weights; read once."""
    with open(TABLE, encoding="utf-8") as handle:
        found: dict[str, Any] = json.load(handle)
    return found


def parts(work: Work) -> list[float]:
    """Seconds of a token at the card's peak: products, those of narrow layers, attention, network, small batches."""
    passes = 2.0 + (2.0 if work.adapters else 4.0) + (2.0 if work.checkpointing else 0.0)
    products = passes * work.params / work.peak
    again = 4.0 / 3.0 if work.checkpointing else 1.0
    attention = 12.0 * again * work.layers * work.hidden * work.length / work.peak
    doublings = max(0.0, math.log2(max(1, work.gpus) / max(1, work.node)))
    return [
        products, products * NARROW / work.hidden, attention, products * doublings,
        products * SMALL / max(1, work.tokens),
    ]  # fmt: skip


def speed(work: Work, generation: int, precision: str, trainer: str) -> Speed | None:
    """Tokens a second, or None where no run of that generation and precision was measured.

    `trainer` is "full", "lora" or "qlora", with " fused" where Liger's or other fused kernels run.
    """
    known = table()
    kind = f"{generation}/{'fp32' if precision == 'fp32' else 'fp8' if precision == 'fp8' else 'half'}"
    weights = known["weights"].get(kind)
    if weights is None or not (work.params and work.hidden):  # a config.json may say 0
        return None
    seconds = sum(weight * part for weight, part in zip(weights, parts(work)))
    if kind == "7/fp32":
        return Speed(1 / seconds, 0.3, "one published run on V100")
    factor = known["trainers"].get(trainer) or known["trainers"].get(trainer.partition(" ")[0]) or 1.0
    near = known["trainers"].get(trainer)
    off = known["range"] + (known["spread"].get(trainer, 0.0) if near else 0.1)
    return Speed(1 / (seconds * factor), min(0.5, off), f"{known['rows'][kind]} published runs")
