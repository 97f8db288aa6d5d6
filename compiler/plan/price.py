"""The price of a GPU-hour: one price for all GPUs, or one for each kind of GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping

from xpc.compiler.registry import find_gpu

HELP = "price of a GPU-hour: 2.5, or h100-80gb=2.5,a100-80gb=1.4"
EVERY = ""
"""The key of a price that applies to all GPUs."""


def prices(written: str) -> dict[str, float]:
    """Parse `2.5` or `h100-80gb=2.5,a100-80gb=1.4` into prices by GPU name. Raises ValueError with a sentence for the
    user.
    """
    out: dict[str, float] = {}
    for part in written.split(","):
        name, equals, number = part.rpartition("=")
        gpu = find_gpu(name.strip()) if equals else None
        if equals and gpu is None:
            raise ValueError(f"`{name.strip()[:40]}` is not a GPU; `xpc list gpus` lists them")
        if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", number.strip()) is None:
            raise ValueError(f"`{part.strip()[:40]}` is not a price: write 2.5, or h100-80gb=2.5,a100-80gb=1.4")
        key = EVERY if gpu is None else gpu.name
        if key in out:
            what = "all GPUs" if gpu is None else gpu.name
            raise ValueError(f"`{written.strip()[:40]}` has two prices for {what}: write 2.5, or h100-80gb=2.5")
        out[key] = float(number)
    return out


def price_argument(written: str) -> dict[str, float]:
    """Parse prices (see `prices`) for the `type=` of an argparse option: errors are ArgumentTypeErrors, whose text
    argparse prints.
    """
    import argparse

    try:
        return prices(written)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def price_of(known: Mapping[str, float], gpu: str) -> float | None:
    """The price of an hour of this GPU; None if it is unknown."""
    return known.get(gpu, known.get(EVERY))
