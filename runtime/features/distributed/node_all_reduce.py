"""A tiny all-reduce over the nodes: whether gloo and NCCL reach every one before the run does."""

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
"""Seconds for the group and its all-reduce; a healthy one takes less than ten."""
SIZES = {"gloo": 2**22, "nccl": SIZE}
"""Numbers (float32) that are summed: 16 MiB on the CPU."""
LEAST = {"gloo": 0.1, "nccl": SLOW}
"""GB/s below which a line says so: less than 1 Gbit/s of Ethernet is slow on the CPU."""


thread_hangs = False
"""Whether a thread of this process hangs in C++: it then cannot end in order, and has to leave by `os._exit`."""


def bounded(work: Callable[[dict[str, Any]], None], seconds: float = PATIENCE + 15) -> dict[str, Any]:
    """What the work writes down; when it fails or does not end, with a sentence under `error`.

    A thread that never ends (NCCL waits in C++ for what does not come) is left behind.
    """
    global thread_hangs
    out: dict[str, Any] = {}

    def run() -> None:
        try:
            work(out)
        except Exception as error:  # torch raises RuntimeError, DistError and what NCCL says
            out["error"] = first_line(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not thread.is_alive():
        return out
    thread_hangs = True
    return {**out, "error": f"it did not end within {seconds:.0f} s"}


def speeds(out: Mapping[str, Any]) -> str:
    """What an all-reduce measured with each backend, and whether that is little."""
    return ", ".join(speed(backend, out[backend], least) for backend, least in LEAST.items() if backend in out)


class NodeAllReduce(Feature):
    """An all-reduce over the nodes, before the run."""

    def check_gpu_links(self, bundle: Bundle) -> list[str]:
        """A line on the all-reduce over this node's GPUs, and a finding where it hangs: the other nodes hear of it."""
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
        """Ends the process in the way that it still can."""
        end(error)


def end(error: RunError) -> NoReturn:
    """Raises the error. A process with a thread that hangs in C++ reports it and leaves at once."""
    if thread_hangs:
        leave(error)
    raise error


def store(address: str, port: int = 0) -> Any:
    """The store that the group meets at: node 0 makes one on a free port, the others come to it."""
    from torch.distributed import TCPStore

    return TCPStore(
        "127.0.0.1" if not port else address, port, is_master=not port, wait_for_workers=False,
        timeout=timedelta(seconds=PATIENCE),
    )  # fmt: skip


def reduce(bundle: Bundle, rank: int, nodes: int, meeting: Any, out: dict[str, Any]) -> None:
    """Writes down GB/s of an all-reduce with one process of each node, by backend; `trying` is the one it is at.

    The bandwidth is NCCL's "bus bandwidth": what a ring would send and receive, 2 (n - 1) / n of the buffer.
    """
    import torch
    from torch import distributed

    backends = {"gloo": "cpu"} if bundle.on_cpu else {"gloo": "cpu", "nccl": "cuda"}
    if not bundle.on_cpu:
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
