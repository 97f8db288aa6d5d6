"""A small all-reduce over the nodes. Before the run, it checks that gloo and NCCL connect all nodes."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NoReturn

from ...core.errors import RunError, first_line, say
from ...core.feature import Bundle, Feature
from .all_reduce import ROUNDS, SIZE, SLOW, hangs, leave, measure_node, speed

PATIENCE = 45.0
"""Timeout in seconds for creating the group and for its all-reduce. Each normally takes less than ten seconds."""
SIZES = {"gloo": 2**22, "nccl": SIZE}
"""Maps each backend to the number of float32 values that are all-reduced. With gloo, they take 16 MiB."""
LEAST = {"gloo": 0.1, "nccl": SLOW}
"""An all-reduce that is slower than this many GB/s is reported. Even gloo on 1 Gbit/s Ethernet is faster than 0.1."""


thread_hangs = False
"""Whether a thread of this process hangs in C++. If so, the process can only exit by `os._exit`."""


def bounded(work: Callable[[dict[str, object]], None], seconds: float = PATIENCE + 15) -> dict[str, object]:
    """Run ``work(out)`` in a thread and return the dict ``out``. After a failure or timeout, the dict has a sentence
    under `error`.

    A thread that never ends (NCCL waits in C++) is abandoned.
    """
    global thread_hangs
    out: dict[str, Any] = {}

    def run() -> None:
        try:
            work(out)
        except Exception as error:  # torch raises RuntimeError, DistError and NCCL's errors
            out["error"] = first_line(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not thread.is_alive():
        return out
    thread_hangs = True
    return {**out, "error": f"no result within {seconds:.0f} s"}


def speeds(out: Mapping[str, Any]) -> str:
    """A phrase with each backend's measured speed of an all-reduce. If a speed is low, the phrase says so."""
    return ", ".join(speed(backend, out[backend], least) for backend, least in LEAST.items() if backend in out)


class NodeAllReduce(Feature):
    """Hooks that run a test all-reduce over the nodes in the preflight."""

    def check_gpu_links(self, bundle: Bundle) -> list[str]:
        """Print the all-reduce speed of this node's GPUs. If the all-reduce hangs, return a finding that says so."""
        count = bundle.run["processes_per_node"]
        if count < 2:
            return []
        out = bounded(lambda out: out.update(nccl=measure_node(count)))
        if thread_hangs:
            return [hangs(count)]
        result = f"warning: not possible ({out['error']})" if "error" in out else speeds(out)
        say(f"all-reduce over the {count} GPUs of this node: {result}")
        return []

    def preflight_failed(self, bundle: Bundle, error: RunError) -> None:
        """End the process; if it has a hanging thread, exit immediately."""
        end(error)


def end(error: RunError) -> NoReturn:
    """Raise the error. If a thread of this process hangs in C++, print the error and exit immediately instead."""
    if thread_hangs:
        leave(error)
    raise error


def store(address: str, port: int = 0) -> Any:
    """The store of the process group. Node 0 creates it on a free port, and the other nodes connect to node 0."""
    from torch.distributed import TCPStore

    return TCPStore(
        "127.0.0.1" if not port else address, port, is_master=not port, wait_for_workers=False,
        timeout=timedelta(seconds=PATIENCE),
    )  # fmt: skip


def reduce(bundle: Bundle, rank: int, nodes: int, meeting: object, out: dict[str, object]) -> None:
    """For each backend, time an all-reduce with one process per node. ``out`` gets the GB/s by backend ("gloo",
    "nccl"), and under `trying` the name of the backend that is being timed.

    The bandwidth is NCCL's "bus bandwidth": in a ring, each process sends and receives 2 (n - 1) / n of the buffer.
    """
    import torch
    from torch import distributed

    backends = {"gloo": "cpu"} if bundle.on_cpu else {"gloo": "cpu", "nccl": "cuda"}
    if not bundle.on_cpu:
        torch.cuda.set_device(0)
        # with these variables, a timeout raises an error in the waiting thread; without them, torch's watchdog would
        # end the process
        os.environ.update(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
    out["trying"] = "gloo"
    names = "gloo" if bundle.on_cpu else "cpu:gloo,cuda:nccl"  # for "cpu:gloo" alone, torch 2.13 would warn
    distributed.init_process_group(
        names, store=meeting, rank=rank, world_size=nodes, timeout=timedelta(seconds=PATIENCE)
    )
    try:
        for backend, device in backends.items():
            out["trying"] = backend
            values = torch.ones(SIZES[backend], device=device)
            distributed.all_reduce(values)
            if device == "cuda":
                torch.cuda.synchronize()
            wrong = values[0].item() != nodes
            started = time.perf_counter()
            for _ in range(ROUNDS):
                distributed.all_reduce(values)
            if device == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - started
            moved = 4 * values.numel() * ROUNDS * 2 * (nodes - 1) / nodes
            out[backend] = moved / seconds / 1e9
            if wrong:
                raise RuntimeError("the sum over the nodes is wrong")
    finally:
        distributed.destroy_process_group()
