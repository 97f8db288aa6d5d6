"""A tiny all-reduce, and how fast it was: whether gloo and NCCL reach every node and GPU before the run does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..core.bundle import Bundle

PATIENCE = 45.0
"""Seconds for the group and its all-reduce; a healthy one takes less than ten."""
SIZES = {"gloo": 2**22, "nccl": 2**26}
"""Numbers (float32) that are summed: 16 MiB on the CPU, 256 MiB on GPUs."""
ROUNDS = 3
SLOW = {"gloo": 0.1, "nccl": 1.0}
"""GB/s below which a line says so: less than 1 Gbit/s of Ethernet, and less than 10 between machines with GPUs."""


def store(address: str, port: int = 0) -> Any:
    """The store that the group meets at: node 0 makes one on a free port, the others come to it."""
    from torch.distributed import TCPStore

    return TCPStore(
        "127.0.0.1" if not port else address, port, is_master=not port, wait_for_workers=False,
        timeout=timedelta(seconds=PATIENCE),
    )  # fmt: skip


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


def reduce(bundle: Bundle, rank: int, nodes: int, meeting: Any, out: dict[str, Any]) -> None:
    """Writes down GB/s of an all-reduce with one process of each node, by backend; `trying` is the one it is at.

    The bandwidth is NCCL's "bus bandwidth": what a ring would send and receive, 2 (n - 1) / n of the buffer.
    """
    import torch
    from torch import distributed

    backends = {"gloo": "cpu"} if bundle.on_cpu else {"gloo": "cpu", "nccl": "cuda"}
    if not bundle.on_cpu:
        from ..core.arguments import _no_peer_to_peer

        _no_peer_to_peer()
        torch.cuda.set_device(0)
        # A timeout is raised in the waiting thread; torch's watchdog would end the process without a word of ours.
        os.environ.update(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
    out["trying"] = "gloo"
    names = ",".join(f"{device}:{backend}" for backend, device in backends.items())
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


def within(count: int, out: dict[str, Any]) -> None:
    """Writes down GB/s of an all-reduce over the first GPUs of this node, from this one process."""
    import torch
    from torch.cuda import nccl

    from ..core.arguments import _no_peer_to_peer

    _no_peer_to_peer()
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
