"""A tiny all-reduce over the nodes: whether gloo and NCCL reach every one before the run does."""

import os
import time
from datetime import timedelta
from typing import Any

from ..core.bundle import Bundle
from .all_reduce import PATIENCE, ROUNDS, SIZES


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
        from ..core.arguments import no_peer_to_peer

        no_peer_to_peer()
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
