"""A Ray cluster on this machine: a head node and a second node, with one core each. `stop` ends all its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec


def missing() -> str:
    """The reason why no cluster can be started here; empty if Ray is installed."""
    return "" if find_spec("ray") else "Ray is not installed: pip install 'ray[train]==2.60.0'"


class Cluster:
    """A running Ray cluster of two nodes with one core each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        # Ray waits 30 s for a daemon to start. On a busy machine this can be too short, so there are up to three tries.
        for last in (False, False, True):
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
        """Start a bundle's ray_job.py, as `ray job submit` does on the head node; its output goes to the file `log`."""
        reported = {**environment, "RAY_ADDRESS": self.nodes.address}
        with open(log, "wb") as out:
            words = [sys.executable, os.path.join(bundle, "ray_job.py")]
            return subprocess.Popen(words, env=reported, stdout=out, stderr=subprocess.STDOUT)

    def workers(self) -> list[int]:
        """The process ids of Ray Train's workers in this cluster (`ray::RayTrainWorker...`)."""
        return [one for one in everyone() if b"RayTrainWorker" in read(one, "cmdline") and descends(one)]

    def ranks(self, node: int) -> list[int]:
        """The ids of the processes that train on the node with this rank."""
        reported = [f"NODE_RANK={node}".encode(), *(f"XPC_RAY_NODE={one}".encode() for one in self.names())]
        found = []
        for one in everyone():
            output = read(one, "environ").split(b"\0")
            if b"trainer/main.py" in read(one, "cmdline") and reported[0] in output and set(reported[1:]) & set(output):
                found.append(one)
        return found

    def names(self) -> list[str]:
        """The ids that Ray gives to the nodes."""
        return [one.node_id for one in self.nodes.list_all_nodes()]

    def stop(self) -> None:
        """End the cluster's daemons."""
        self.nodes.shutdown()


def everyone() -> list[int]:
    """The ids of all processes on this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(process: int, name: str) -> bytes:
    """The content of /proc/PROCESS/NAME; empty if the process has ended."""
    try:
        with open(f"/proc/{process}/{name}", "rb") as handle:
            return handle.read()
    except OSError:
        return b""


def descends(process: int) -> bool:
    """Whether the process is this process or one of its descendants."""
    while process > 1:
        if process == os.getpid():
            return True
        stat = read(process, "stat").rpartition(b")")[2].split()
        process = int(stat[1]) if stat else 0
    return False
