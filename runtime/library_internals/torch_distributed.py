"""torch 2.13's process groups and the agent that starts a node's processes, where they have no setting for it."""

from collections.abc import Callable
from datetime import timedelta


def one_timeout(timeout: timedelta) -> None:
    """Lets every process group wait as long as the first: transformers passes ``ddp_timeout`` on for that one only.

    Those of DeepSpeed and of device meshes would wait 10 minutes with NCCL (torch 2.13 ``_get_default_timeout``).
    """
    from torch.distributed import distributed_c10d

    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        setattr(distributed_c10d, name, timeout)


def end_outlived_processes_by(number: int, failed: Callable[[], None]) -> None:
    """Lets the agent end the processes that outlive a failed one by this signal, after a call of ``failed``.

    It sends SIGTERM, which means here that they should save (torch 2.13, elastic/agent/server/local_elastic_agent.py).
    """
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    def stop(agent: LocalElasticAgent, _: object) -> None:
        failed()
        agent._shutdown(number)

    LocalElasticAgent._stop_workers = stop
