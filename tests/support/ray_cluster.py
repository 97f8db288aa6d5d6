"""A Ray cluster on this machine: a node of one core that is the head, and another. Nothing of it outlives `stop`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec


def missing() -> str:
    """Why there is none here, or nothing."""
    return "" if find_spec("ray") else "Ray is not installed: pip install 'ray[train]==2.60.0'"


class Cluster:
    """Two nodes with a core each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        for last in (False, False, True):  # Ray waits 30 seconds for a daemon, which a busy machine may exceed
            try:
                self.nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
                self.nodes.add_node(num_cpus=1)
                self.nodes.wait_for_nodes(120)
            except Exception:
                if last:
                    raise
            else:
                break

    def submit(self, bundle: str, log: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Starts the job of a bundle, as `ray job submit` does on the head; what it says goes to a file."""
        told = {**environment, "RAY_ADDRESS": self.nodes.address}
        with open(log, "wb") as out:
            words = [sys.executable, os.path.join(bundle, "ray_job.py")]
            return subprocess.Popen(words, env=told, stdout=out, stderr=subprocess.STDOUT)

    def workers(self) -> list[int]:
        """The processes of Ray Train's workers: `ray::RayTrainWorker...`, started by the daemons of this cluster."""
        return [one for one in everyone() if b"RayTrainWorker" in read(one, "cmdline") and descends(one)]

    def ranks(self, node: int) -> list[int]:
        """The processes that train on a node of a run."""
        told = [f"NODE_RANK={node}".encode(), *(f"XPC_RAY_NODE={one}".encode() for one in self.names())]
        found = []
        for one in everyone():
            said = read(one, "environ").split(b"\0")
            if b"trainer/main.py" in read(one, "cmdline") and told[0] in said and set(told[1:]) & set(said):
                found.append(one)
        return found

    def names(self) -> list[str]:
        """The nodes as Ray names them."""
        return [one.node_id for one in self.nodes.list_all_nodes()]

    def stop(self) -> None:
        """Ends the daemons."""
        self.nodes.shutdown()


def everyone() -> list[int]:
    """All processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(process: int, name: str) -> bytes:
    """A file of a process, or nothing where it is gone."""
    try:
        with open(f"/proc/{process}/{name}", "rb") as handle:
            return handle.read()
    except OSError:
        return b""


def descends(process: int) -> bool:
    """Whether this process has started it, or one that has."""
    while process > 1:
        if process == os.getpid():
            return True
        stat = read(process, "stat").rpartition(b")")[2].split()
        process = int(stat[1]) if stat else 0
    return False
