"""Run the commands in a bundle's cluster files as the cluster would. Each of two pods is a process on this machine.

The test sets the variables that a controller sets in a pod. The volume is a folder. A separate /etc/hosts maps the
pods' host names to this machine's address. Everything else is as in the cluster files, except that the interpreters are
forks of a warm one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from attrs import frozen
from emitted import compiled
from method_runs import Warm
from patience import HUNG
from ports import free_port
from stacks import environment, payload
from tiny_runs import spec
from whole_lines import events

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

LAUNCH = {"k8s": 'launch k8s(image="me/train:1", volume=claim)', "sky": "launch sky(volume=shared)"}
HOSTS = "127.0.0.1 localhost two-node-0-0.two two-node-0-1.two\n"
NAMED = 'mount --bind "$0" /etc/hosts && exec "$@"'
SECONDS = HUNG
"""Seconds after which a run counts as hanging."""

Pods = list[Mapping[str, str]]


@frozen
class Cluster:
    """A folder that stands for the volume with a bundle, and the command that the cluster file has for each node."""

    file: str
    volume: str
    python: str

    @property
    def bundle(self) -> str:
        return os.path.join(self.volume, "two.bundle")

    def start(self, pods: Pods) -> list[subprocess.Popen[str]]:
        with open(os.path.join(self.bundle, self.file), encoding="utf-8") as handle:
            words, variables = command(self.file, yaml.safe_load(handle))
        words = [word.replace("/workspace", self.volume) for word in words]
        unshare = ["unshare", "--mount", "sh", "-c", NAMED, os.path.join(self.volume, "hosts")]
        where = self.bundle if self.file == "sky.yaml" else "/"
        return [
            subprocess.Popen(
                [*unshare, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=where,
                env=environment(PYTHON=self.python, HOME=self.volume, **{**variables, **pod}),
            )
            for pod in pods
        ]  # fmt: skip

    def end(self, started: list[subprocess.Popen[str]], status: int = 0) -> list[str]:
        """Wait until all nodes have ended, and check their exit status; return the output of each."""
        until = time.monotonic() + SECONDS
        try:
            output = [one.communicate(timeout=max(1, until - time.monotonic()))[0] for one in started]
        finally:
            for one in started:
                one.kill()
        assert [one.returncode for one in started] == [status] * len(started), "\n".join(one[-3000:] for one in output)
        return output

    def steps(self) -> list[int]:
        """The steps for which the run has logged a loss."""
        reported = events(os.path.join(self.volume, payload(self.bundle)["arguments"]["output_dir"]))
        return [event["step"] for event in reported if "loss" in event]


def command(file: str, table: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return a pair: the command that the file gives to a node, and the environment variables that it sets."""
    if file == "sky.yaml":
        return ["bash", "-c", table["run"]], {}
    if file == "trainjob.yaml":
        return table["spec"]["trainer"]["command"], {}
    job = table["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]["containers"][0]
    return pod["command"], {one["name"]: one["value"] for one in pod["env"]}


@pytest.fixture(scope="module")
def cluster(location: str, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Cluster]:
    """Return a function of two arguments, a cluster file and a number of steps. It makes the volume that the file
    names. The volume has the bundle of a run with this number of steps.
    """
    if os.geteuid() or shutil.which("unshare") is None:
        assert not os.environ.get("XPC_EVERY_TEST"), "all tests should run, but this one needs root and unshare"
        pytest.skip("the test needs a separate /etc/hosts for the names of pods, and so root and unshare")
    python = warm.of(DEFAULT).python

    def make(file: str, steps: int) -> Cluster:
        volume = str(tmp_path_factory.mktemp(file.partition(".")[0]))
        launch = LAUNCH["sky" if file == "sky.yaml" else "k8s"]
        text = spec("nodes 2", launch, strategy="zero2", length=f"{steps} steps", sizes="gbs=8 micro=2 seq=32")
        compiled(text, location, os.path.join(volume, "two.bundle"), "two.xp")
        os.symlink(os.path.join(location, "tiny"), os.path.join(volume, "tiny"))
        with open(os.path.join(volume, "hosts"), "w", encoding="utf-8") as handle:
            handle.write(HOSTS)
        return Cluster(file, volume, python)

    return make


def trains(made: Cluster, pods: Pods) -> None:
    output = made.end(made.start(pods))
    assert made.steps() == [1, 2]
    assert "2 processes, DeepSpeed" in output[0]
    assert "rows to train on" not in output[1]  # only node 0 (the first pod) prints the counts


def test_a_trainjob_trains_on_both_pods(cluster: Callable[[str, int], Cluster]) -> None:
    reported = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "two-node-0-0.two",
            "PET_MASTER_PORT": str(free_port())}  # fmt: skip
    trains(cluster("trainjob.yaml", 2), [{**reported, "PET_NODE_RANK": rank} for rank in "01"])


def test_a_task_of_skypilot_trains_on_both_nodes(cluster: Callable[[str, int], Cluster]) -> None:
    reported = {
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "0",
    }
    trains(cluster("sky.yaml", 2), [{**reported, "SKYPILOT_NODE_RANK": rank} for rank in "01"])


def test_a_jobset_goes_on_after_a_pod_was_preempted(cluster: Callable[[str, int], Cluster]) -> None:
    """One pod gets SIGTERM, as if the kubelet preempted it. Both pods end with status 75, and the JobSet's failure
    policy starts both again.
    """
    made, steps = cluster("jobset.yaml", 100), list(range(1, 101))
    pods = [{"JOB_COMPLETION_INDEX": index, "MASTER_PORT": free} for free in [str(free_port())] for index in "01"]
    started = made.start(pods)
    until = time.monotonic() + SECONDS
    while len(made.steps()) < 3 and time.monotonic() < until and not any(one.poll() for one in started):
        time.sleep(0.05)
    started[1].send_signal(signal.SIGTERM)
    output = made.end(started, 75)
    assert "checkpoint-" in output[0]
    done = made.steps()
    assert 3 <= len(done) < 100
    made.end(made.start(pods))
    assert made.steps() == steps
