"""The end of a run on several nodes, where torchrun's agents wait for each other."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ..core.feature import Bundle, Feature

PATIENCE = timedelta(seconds=10)


class TorchExitBarrier(Feature):
    """The end of the launchers of several nodes."""

    def before_launch(self, bundle: Bundle, environ: Mapping[str, str]) -> None:
        """Where launch.sh has given this node a place among others."""
        if "NODE_RANK" in environ:
            last_to_leave(environ)


def last_to_leave(environ: Mapping[str, str]) -> None:
    """Lets the launcher of node 0, which holds the store, leave after the others.

    torch's agents wait for each other at the end, and the last one that comes frees all: where that is node 0 it is
    gone before the others have heard, and they print a stack of C++ over a run that went well (torch 2.13,
    elastic/agent/server/api.py `_exit_barrier`; seen once).
    """
    from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

    barrier = SimpleElasticAgent._exit_barrier
    holds = environ.get("NODE_RANK") == "0"

    def wait(self: Any) -> None:
        barrier(self)
        group, store = self._worker_group, self._store
        try:
            if holds:
                others = [rank for rank in range(group.group_world_size) if rank != group.group_rank]
                store.wait([f"xpc/left/{rank}" for rank in others], PATIENCE)
            else:
                store.set(f"xpc/left/{group.group_rank}", "")
        except RuntimeError:
            return  # another node has died at its end: nothing is waited for

    SimpleElasticAgent._exit_barrier = wait
