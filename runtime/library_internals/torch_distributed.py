"""Options of torch 2.13's process groups and of torchrun's agent that have no public setting."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any


def one_timeout(timeout: timedelta) -> None:
    """Set the timeout of every process group, because transformers passes ``ddp_timeout`` only to the first group.

    With NCCL, the groups of DeepSpeed and of device meshes would wait 10 minutes (torch 2.13 ``_get_default_timeout``).
    """
    from torch.distributed import distributed_c10d

    distributed_c10d.default_pg_timeout = distributed_c10d.default_pg_nccl_timeout = timeout


def adapt_agent(number: int, before: Callable[[], None], started: Callable[[], None]) -> None:
    """Make torchrun's agent call ``before`` and ``started`` around the start of its processes and, after a failure, end
    the remaining processes with the signal ``number``.

    By itself, the agent sends SIGTERM, at which a bundle's processes would save (torch 2.13,
    elastic/agent/server/local_elastic_agent.py).
    """
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    start_workers = LocalElasticAgent._start_workers

    def start(agent: LocalElasticAgent, group: object) -> Any:
        before()
        processes = start_workers(agent, group)
        started()
        return processes

    def stop(agent: LocalElasticAgent, _: object) -> None:
        agent._shutdown(number)

    LocalElasticAgent._start_workers, LocalElasticAgent._stop_workers = start, stop
