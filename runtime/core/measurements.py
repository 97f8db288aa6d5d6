"""Measure a run: seconds and peak memory by phase, waits for data, padding, saves.

Process 0 appends lines to measured.jsonl. The first is written when training starts. At the 1st, 2nd, 4th, 8th ... log
event, at each checkpoint and at the end, a line with all measurements so far follows, so a run that dies leaves
measurements. Memory is measured in all processes, which exchange their peaks; everything else is measured in process 0.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from . import machine, signals
from .feature import Bundle, Trainer

MEASURED = "measured.jsonl"
SAVING = ("writing checkpoint", "writing the final model")
"""Beginnings of the names of phases in which weights are written."""
TRAINING = ("", "writing metrics.jsonl")


class Measured:
    """The measurements of this process since it started: bytes, seconds, and tokens with and without padding."""

    since = time.monotonic()
    training = False
    seconds: ClassVar[dict[str, float]] = {}
    memory: ClassVar[dict[str, dict[str, int]]] = {}
    of_each: ClassVar[list[dict[str, dict[str, int]]]] = []
    """The peak memory of each process, by rank. `exchange` sets it."""
    waits = 0.0
    saves = saved_bytes = padded = 0
    real: Any = 0


def ended(phase: str) -> None:
    """At the end of a phase (``progress.Phase``), add to it the seconds and the peak memory since the last call."""
    name = "save" if phase.startswith(SAVING) else "evaluate" if phase == "evaluating" else "load"
    if phase in TRAINING or (name == "load" and Measured.training):
        name = "train"
    before, Measured.since = Measured.since, time.monotonic()
    Measured.seconds[name] = Measured.seconds.get(name, 0.0) + Measured.since - before
    peak("step" if name == "train" else name)


def peak(phase: str) -> None:
    """Record the peak memory in bytes since the last call as a peak of ``phase``. Then reset the peak.

    On a GPU, the peaks are torch's ``max_memory_allocated`` and ``max_memory_reserved``. On a CPU, the peak is that of
    the resident set. On Linux, writing 5 to clear_refs resets this peak (proc_pid_clear_refs(5)); other systems cannot
    reset it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        found = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        torch.cuda.reset_peak_memory_stats()
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        found = {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
        with suppress(OSError), open("/proc/self/clear_refs", "w") as handle:
            handle.write("5")
    _raise(Measured.memory.setdefault(phase, {}), found)


def _raise(known: dict[str, int], found: Mapping[str, int]) -> None:
    """For each kind of memory (such as "allocated"): if the size in ``found`` is larger, copy it to ``known``."""
    known.update({kind: max(size, known.get(kind, 0)) for kind, size in found.items()})


def exchange() -> None:
    """Gather the peak memory of all processes. All processes must call this together."""
    from accelerate.utils import gather_object

    Measured.of_each[:] = gather_object([Measured.memory])  # type: ignore[no-untyped-call, unused-ignore]


def highest(each: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """The largest peak that any process has, in bytes: a dict by phase of dicts by kind of memory."""
    out: dict[str, dict[str, int]] = {}
    for phases in each:
        for phase, kinds in phases.items():
            _raise(out.setdefault(phase, {}), kinds)
    return out


def peaks(each: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, list[int]]:
    """For each kind of memory, a list with the highest peak of each process, in the order of the ranks."""
    kinds = dict.fromkeys(kind for phases in each for known in phases.values() for kind in known)
    return {kind: [max(known.get(kind, 0) for known in phases.values()) for phases in each if phases] for kind in kinds}


def batches(found: Iterable[Any], waited: float) -> None:
    """Count the tokens in the batches of a step, and the seconds that the step has waited for them.

    Prompts of online methods have no token ids yet, so they are not counted. Without a mask, all tokens count.
    """
    Measured.waits += waited
    for batch in found:
        for name in batch if isinstance(batch, Mapping) else ():
            if name.endswith("input_ids"):
                ids, mask = batch[name], batch.get(name.replace("input_ids", "attention_mask"))
                Measured.padded += ids.numel()
                Measured.real = Measured.real + (ids.numel() if mask is None else mask.sum())


def saved(folder: str, names: Iterable[str]) -> None:
    """Count a checkpoint as one more save, and add its size to the saved bytes."""
    Measured.saves += 1
    Measured.saved_bytes += sum(os.path.getsize(os.path.join(folder, name)) for name in names)


def started(bundle: Bundle, trainer: Trainer, step: int) -> dict[str, Any]:
    """The line of measured.jsonl for the start of training: time, step, device, versions and counts of the rows."""
    import torch

    return {
        "step": step, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "bundle": bundle.folder,
        "digest": bundle.digest, "world": trainer.args.world_size,
        "device": torch.cuda.get_device_name() if bundle.run["device"] == "cuda" else "cpu",
        "versions": {name: machine.installed(name) for name in bundle.pins}, "data": trainer.data_facts,
    }  # fmt: skip


def now(step: int) -> dict[str, Any]:
    """The line with all measurements since training started. Its key ``stop`` is the signal that stops the run."""
    # process 0 runs this: its own peaks are current; the other processes' peaks are those of the last exchange
    each = [Measured.memory, *Measured.of_each[1:]]
    return {
        "step": step, "seconds": {name: round(spent, 3) for name, spent in Measured.seconds.items()},
        "waits": round(Measured.waits, 3), "memory": highest(each), "peaks": peaks(each),
        "real_tokens": int(Measured.real), "padded_tokens": Measured.padded,
        "saves": Measured.saves, "saved_bytes": Measured.saved_bytes, "stop": signals.StopRequest.name,
    }  # fmt: skip


def append(output_dir: str, line: Mapping[str, Any]) -> None:
    """Append a line to measured.jsonl. If a killed run left an incomplete last line, end it first. Raises OSError."""
    with open(os.path.join(output_dir, MEASURED), "ab+") as handle:
        handle.seek(max(0, handle.tell() - 1))
        torn = handle.read(1) not in (b"", b"\n")
        handle.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
