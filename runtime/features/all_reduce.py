"""A tiny all-reduce between the GPUs of a node, and how fast it was: one that hangs would hang the run, too."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.bundle import Bundle
from ..core.errors import RunError, say, stop

PATIENCE = 45.0
"""Seconds for the group and its all-reduce; a healthy one takes less than ten."""
SIZES = {"gloo": 2**22, "nccl": 2**26}
"""Numbers (float32) that are summed: 16 MiB on the CPU, 256 MiB on GPUs."""
ROUNDS = 3
SLOW = {"gloo": 0.1, "nccl": 1.0}
"""GB/s below which a line says so: less than 1 Gbit/s of Ethernet, and less than 10 between machines with GPUs."""

left_behind = False
"""Whether a thread of this process hangs in C++: it then cannot end in order, and has to leave by `os._exit`."""


def bounded(work: Callable[[dict[str, Any]], None], seconds: float = PATIENCE + 15) -> dict[str, Any]:
    """What the work writes down; when it fails or does not end, with a sentence under `error`.

    A thread that never ends (NCCL waits in C++ for what does not come) is left behind.
    """
    global left_behind
    out: dict[str, Any] = {}

    def run() -> None:
        try:
            work(out)
        except Exception as error:  # torch raises RuntimeError, DistError and what NCCL says
            out["error"] = (str(error).splitlines() or [type(error).__name__])[0]

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not thread.is_alive():
        return out
    left_behind = True
    return {**out, "error": f"it did not end within {seconds:.0f} s"}


def within(count: int, out: dict[str, Any]) -> None:
    """Writes down GB/s of an all-reduce over the first GPUs of this node, from this one process."""
    import torch
    from torch.cuda import nccl

    from ..core.arguments import no_peer_to_peer

    no_peer_to_peer()
    values = [torch.ones(SIZES["nccl"] // 4, device=f"cuda:{index}") for index in range(count)]

    def rounds(number: int) -> float:
        started = time.perf_counter()
        for _ in range(number):
            nccl.all_reduce(values)
        for index in range(count):
            torch.cuda.synchronize(index)
        return time.perf_counter() - started

    rounds(1)
    if any(one[0].item() != count for one in values):
        raise RuntimeError("the sum over the GPUs is wrong")
    out["nccl"] = 4 * values[0].numel() * ROUNDS * 2 * (count - 1) / count / rounds(ROUNDS) / 1e9


def speeds(out: Mapping[str, Any]) -> str:
    """What an all-reduce measured, and whether that is little."""
    told = []
    for backend, least in SLOW.items():
        if backend in out:
            slow = f", which is slow (below {least:g})" if out[backend] < least else ""
            told.append(f"{backend} {out[backend]:.2g} GB/s{slow}")
    return ", ".join(told)


def between_gpus(bundle: Bundle) -> list[str]:
    """A line on the all-reduce over this node's GPUs, and a finding where it hangs."""
    count = bundle.run["processes_per_node"]
    if count < 2:
        return []
    out = bounded(lambda out: within(count, out))
    if left_behind:
        return [
            f"NCCL hangs between the {count} GPUs of this node; NCCL_DEBUG=INFO tells where, and NCCL_P2P_DISABLE=1 "
            "helps where the GPUs cannot reach each other directly"
        ]
    told = f"warning: not possible ({out['error']})" if "error" in out else speeds(out)
    say(f"all-reduce over the {count} GPUs of this node: {told}")
    return []


def end(bundle: Bundle, error: RunError) -> None:
    """Raises the error. A process with a thread that hangs in C++ tells it and leaves at once."""
    if left_behind:
        status = stop(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    raise error
