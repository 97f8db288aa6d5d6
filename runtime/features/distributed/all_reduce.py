"""A small all-reduce between the GPUs of a node. It measures the speed, and detects a hang before the run starts."""

import os
import sys
import threading
import time

from ...core.errors import RunError, first_line, say, stop
from ...core.feature import Bundle, Feature

PATIENCE = 60.0
"""Timeout in seconds. The all-reduce normally takes less than ten seconds."""
SIZE = 2**26
"""The number of float32 values that are all-reduced: 256 MiB."""
ROUNDS = 3
SLOW = 1.0
"""An all-reduce that is slower than this many GB/s is reported. Even Ethernet of 10 Gbit/s between machines is faster.
"""


class AllReduce(Feature):
    """Hooks that run a test all-reduce over the GPUs of one node in the preflight."""

    def check_gpu_links(self, bundle: Bundle) -> list[str]:
        """Print the speed of an all-reduce over this node's GPUs. Ends the process if the all-reduce hangs."""
        count = bundle.run["processes_per_node"]
        watch = threading.Timer(PATIENCE, leave, [RunError(hangs(count))])
        watch.start()
        try:
            result = speed("nccl", measure_node(count), SLOW)
        except Exception as error:  # torch raises RuntimeError, DistError and NCCL's errors
            result = f"warning: not possible ({first_line(error)})"
        finally:
            watch.cancel()
        say(f"all-reduce over the {count} GPUs of this node: {result}")
        return []


def measure_node(count: int) -> float:
    """Measure an all-reduce over the first ``count`` GPUs of this node, in this one process. Returns GB/s."""
    import torch
    from torch.cuda import nccl

    values = [torch.ones(SIZE // 4, device=f"cuda:{index}") for index in range(count)]

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
    return float(4 * values[0].numel() * ROUNDS * 2 * (count - 1) / count / rounds(ROUNDS) / 1e9)


def speed(backend: str, found: float, least: float) -> str:
    """A phrase with the measured GB/s of an all-reduce. If the speed is low, the phrase says so."""
    slow = f", which is slow (below {least:g})" if found < least else ""
    return f"{backend} {found:.2g} GB/s{slow}"


def hangs(count: int) -> str:
    """The message if an all-reduce between this node's GPUs does not end."""
    return (
        f"NCCL hangs between the {count} GPUs of this node; NCCL_DEBUG=INFO shows where, and NCCL_P2P_DISABLE=1 "
        "helps if the GPUs cannot reach each other directly"
    )


def leave(error: RunError) -> None:
    """Print the error and exit immediately: a process with a thread that hangs in C++ cannot exit normally."""
    status = stop(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
