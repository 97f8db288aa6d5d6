"""Predict the memory and the time of a run, and choose settings with these predictions.

`from_spec.py` collects the quantities that decide the memory, `memory.py` computes the bytes, and `time.py` the speed.
`experiment.py` joins the predictions in a `Plan`, `choice.py` chooses settings that the spec does not state, and
`changes.py` finds changes that make a run fit or make it faster. `quick_estimate.py` serves families without
measurements.
"""

from __future__ import annotations

from xpc.compiler.language.setting import Path

MIB, GIB = 2**20, 2**30
CHOSEN: tuple[Path, ...] = ("strategy", "memory.checkpointing", "batch.micro")
"""Settings that the plan chooses if the spec does not state them."""
BUDGET = 0.8
"""A run fits its GPU only if its predicted peak is at most this share of the GPU's memory. No public run with a
predicted peak up to this share ran out of memory.
"""
FITS, TIGHT, NO, UNKNOWN = "fits", "tight", "no", "unknown"
DOES_NOT_FIT = ("XP480", "XP960")
"""Codes of the errors for a run that does not fit its GPUs. `--allow-oom` turns them into notes."""
LOW, HIGH = 0.93, 1.07
"""The range in which the ratio of measured peak to predicted peak lies for nine of ten measured runs
(docs/plan-accuracy.md).
"""


def size(value: float) -> str:
    """A number of bytes as text: `46.0 GiB`, `12.3 MiB`."""
    return f"{value / GIB:,.1f} GiB" if value >= GIB / 10 else f"{value / MIB:,.1f} MiB"


def packed_bytes(bits: int, nested: bool) -> float:
    """Bytes of one quantized weight, together with its part of the block's scale (the scale's bytes, divided by the
    number of weights in the block).

    4-bit weights have a float32 scale for each block of 64 weights. With nested (double) quantization, each scale takes
    one byte, and 256 scales share one float32. 8-bit weights have one float32 for each row, which counts as 0.001 bytes
    per weight (bitsandbytes 0.50, `quantize_4bit`, `Int8Params`).
    """
    if bits == 8:
        return 1.001
    return 0.5 + (1 / 64 + 4 / (64 * 256) if nested else 4 / 64)


def verdict(peak: float, capacity: float, low: float | None = None) -> str:
    """The verdict on a predicted peak in bytes. FITS: the peak is at most 80 % of the GPU's memory (`capacity`). NO:
    even the lower bound of the peak (`low`) exceeds the GPU's memory. TIGHT: anything between these two.

    Of 95 public runs that ran out of memory, none had the verdict FITS.
    """
    if peak <= BUDGET * capacity:
        return FITS
    return NO if (peak * LOW if low is None else low) > capacity else TIGHT
