"""After a run on several nodes, node 0's launcher (torchrun) exits last, because the others need node 0's store."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ..core.feature import Bundle, Feature

PATIENCE = timedelta(seconds=10)


class TorchExitBarrier(Feature):
    """Hooks of a run on several nodes: node 0's launcher exits last."""

    def before_launch(self, bundle: Bundle, environ: Mapping[str, str]) -> None:
        """If launch.sh gave this node a rank, make node 0's launcher exit last."""
        if "NODE_RANK" in environ:
            last_to_leave(environ)


def last_to_leave(environ: Mapping[str, str]) -> None:
    """Make the launcher of node 0, which hosts torch's store, exit after the launchers of the other nodes.

    torch's agents wait for each other at the end, and the last agent releases all others. If node 0's agent is the last
    one, it may exit before the other agents have read the store. These then print a C++ stack after a successful run
    (torch 2.13, elastic/agent/server/api.py `_exit_barrier`; seen once). A c10d rendezvous reads and writes the store
    once more after the barrier, when launcher/api.py `launch_agent` shuts the rendezvous down (`[c10d] recvVector
    failed`; seen once). So node 0 waits until the other nodes have shut their rendezvous down.
    """
    from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

    barrier = SimpleElasticAgent._exit_barrier
    holds = environ.get("NODE_RANK") == "0"

    def wait(self: Any) -> None:
        barrier(self)
        group, store = self._worker_group, self._store
        handler = group.spec.rdzv_handler
        close = handler.shutdown

        def shutdown() -> bool:
            closed = bool(close())
            with suppress(RuntimeError):
                # the store raises RuntimeError if another node has failed; then this node ends without waiting
                if holds:
                    others = [rank for rank in range(group.group_world_size) if rank != group.group_rank]
                    store.wait([f"xpc/left/{rank}" for rank in others], PATIENCE)
                else:
                    store.set(f"xpc/left/{group.group_rank}", "")
            return closed

        handler.shutdown = shutdown

    SimpleElasticAgent._exit_barrier = wait
