"""A Slurm cluster on this machine: munged, slurmctld and a slurmd for each node, with all files in one folder.

It needs Debian's packages `slurm-wlm` and `munge`, but neither systemd nor root. By hand: ``python
tests/support/slurm.py sbatch --wait x.bundle/job.sbatch`` starts the cluster, runs this sbatch command in it, and ends
the cluster. Without a command, it runs a shell.

Each daemon is the child of a keeper process. If a descendant of the daemon loses its parent, the keeper becomes its
parent (as a child subreaper of Linux). When the keeper's stdin is closed, the keeper kills the daemon and all
descendants with SIGKILL, as if the node lost its power.
"""

from __future__ import annotations

import ctypes
import glob
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from patience import HUNG
from ports import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "sinfo")
SBIN = "/usr/sbin"
SET_CHILD_SUBREAPER = 36
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
EnforcePartLimits=ALL
ReturnToService=2
SlurmdTimeout=300
KillWait=6
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=INFINITE
{nodes}
NodeName=big[1-16] CPUs=128 RealMemory=1000000 Gres=gpu:8 State=CLOUD
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=120 State=UP
PartitionName=urgent Nodes={names} MaxTime=INFINITE PriorityTier=9 PreemptMode=OFF State=UP
PartitionName=gpu Nodes=big[1-16] MaxTime=7-0 State=UP
"""
# Slurm starts a requeued job under its old job id after cred_expire seconds. Before that, the job's old processes must
# have ended on all nodes, which takes up to KillWait + 2 seconds. So KillWait + 2 must be less than cred_expire.
# Slurm's defaults are 30 s for KillWait and 120 s for cred_expire.
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000 State=UNKNOWN"


def missing() -> list[str]:
    """The programs that the cluster needs and that are not installed here."""
    return [name for name in PROGRAMS if _program(name) is None]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=SBIN)


class Cluster:
    """A cluster of `nodes` nodes (`node1`, `node2`, ...) with four cores each. It has three partitions: `main` is the
    default; jobs in `urgent` preempt jobs in `main`; `gpu` has 16 more nodes with GPUs. These nodes exist only in the
    configuration, so Slurm checks a job for them but never starts it.
    """

    def __init__(self, folder: str, nodes: int = 2) -> None:
        self.folder = folder
        self.names = [f"node{number}" for number in range(1, nodes + 1)]
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "SLURM_CONF": os.path.join(folder, "slurm.conf")}
        self.environment["PATH"] = os.pathsep.join((self.environment.get("PATH", os.defpath), SBIN))
        for name in [one for one in self.environment if one.startswith(("SLURM_", "SBATCH_", "SRUN_"))]:
            if name != "SLURM_CONF":
                del self.environment[name]

    def start(self, seconds: float = HUNG) -> Cluster:
        """Start all daemons and wait until the nodes are idle. Raises RuntimeError with their logs at the timeout."""
        import pwd

        plugins = glob.glob("/usr/lib/*/slurm-wlm") or glob.glob("/usr/lib*/slurm") or ["/usr/lib/slurm"]
        ports, host = free_ports(1 + len(self.names)), socket.gethostname().split(".")[0]
        rows = [NODE.format(name=name, host=host, port=port) for name, port in zip(self.names, ports[1:])]
        text = CONFIGURATION.format(
            host=host, port=ports[0], user=pwd.getpwuid(os.getuid()).pw_name, folder=self.folder, plugins=plugins[0],
            nodes="\n".join(rows), names=",".join(self.names),
        )  # fmt: skip
        os.makedirs(os.path.join(self.folder, "state"), mode=0o755)
        for name, content in {"slurm.conf": text, "gres.conf": "NodeName=big[1-16] Name=gpu Count=8\n"}.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as handle:
                handle.write(content)
        with open(os.open(self._path("munge.key"), os.O_WRONLY | os.O_CREAT, 0o400), "wb") as key:
            key.write(os.urandom(1024))
        named = {one: self._path(f"munge.{one}") for one in ("socket", "key", "pid", "log", "seed")}
        self._keep(
            "munged", "--foreground", "--force", f"--socket={named['socket']}", f"--key-file={named['key']}",
            f"--pid-file={named['pid']}", f"--log-file={named['log']}", f"--seed-file={named['seed']}",
        )  # fmt: skip
        until = time.monotonic() + seconds
        while not os.path.exists(named["socket"]) and time.monotonic() < until:
            time.sleep(0.05)
        self._keep("slurmctld", "-D")
        for name in self.names:
            self.start_node(name)
        while not self._ready():
            if time.monotonic() > until:
                reported = self.logs()
                self.stop()
                raise RuntimeError(f"the cluster has not started within {seconds} seconds\n{reported}")
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        """End all daemons and all processes of jobs."""
        for name in reversed(list(self._keepers)):
            self._end(name)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node. After `kill_node`, it has no jobs.

        Within a minute, Slurm sends the node the messages that the node has missed, for example to end a job. No job
        should start on the node before these messages. (With Slurm's defaults, a requeued job waits for two minutes
        anyway.)
        """
        self._keep("slurmd", "-D", "-N", name, key=name)

    def kill_node(self, name: str) -> None:
        """Kill the slurmd of a node and all processes of the node's jobs by SIGKILL. Slurm itself notices this only
        after 300 seconds.
        """
        self._end(name)

    def notice(self, name: str) -> None:
        """Make Slurm notice at once that a node is lost. Slurm then ends the node's jobs, and requeues those jobs that
        allow it.
        """
        self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=lost")

    def run(self, *words: str, cwd: str | None = None, seconds: float = HUNG) -> subprocess.CompletedProcess[str]:
        """Run a command, such as `squeue`, with the cluster's environment variables."""
        return subprocess.run(
            words, cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip

    def submit(self, *words: str, cwd: str) -> str:
        """Submit a job with sbatch from the folder `cwd`; return its id. Raises RuntimeError with sbatch's message."""
        done = self.run("sbatch", "--parsable", *words, cwd=cwd)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip().partition(";")[0]

    def job(self, number: str) -> dict[str, str]:
        """The fields of a job in `scontrol show job`, such as `JobState`."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number: str, seconds: float = HUNG) -> dict[str, str]:
        """Wait until a job has ended and its nodes are free; return its fields. Raises TimeoutError with the logs."""
        until = time.monotonic() + seconds
        while True:
            job = self.job(number)
            if job.get("JobState") not in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING"):
                return job
            if time.monotonic() > until:
                raise TimeoutError(f"job {number} did not end within {seconds} seconds: {job}\n{self.logs()}")
            time.sleep(0.2)

    def logs(self, lines: int = 30) -> str:
        """The last lines of each daemon's log and output."""
        reported = []
        for path in sorted(glob.glob(self._path("*.log")) + glob.glob(self._path("*.said"))):
            with open(path, encoding="utf-8", errors="replace") as handle:
                reported.append(f"== {os.path.basename(path)}\n" + "".join(handle.readlines()[-lines:]))
        return "\n".join(reported)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _ready(self) -> bool:
        states = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T").stdout.split()
        return states == ["idle"] * len(self.names)

    def _keep(self, program: str, *words: str, key: str = "") -> None:
        found = _program(program)
        assert found is not None, program
        with open(self._path(f"{key or program}.said"), "ab") as output:
            self._keepers[key or program] = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--keep", found, *words],
                env=self.environment, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def _end(self, name: str) -> None:
        keeper = self._keepers.pop(name, None)
        if keeper is not None and keeper.stdin is not None:
            keeper.stdin.close()
            keeper.wait()


def _keep(words: Sequence[str]) -> int:
    """Act as the keeper of a daemon: run the daemon until it ends or stdin is closed. Then kill the daemon and all its
    descendants.
    """
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    while child.poll() is None:
        if select.select([0], [], [], 0.5)[0] and not os.read(0, 1024):
            break
        _bury(child.pid)
    while below := _descendants(os.getpid()):
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _bury(None)
        time.sleep(0.02)
    return 0


def _bury(but: int | None) -> None:
    """Reap the adopted processes that have ended, except the process ``but`` (the daemon), because the caller waits for
    it.
    """
    try:
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if found.si_pid == but:
                return
            os.waitpid(found.si_pid, 0)
    except ChildProcessError:
        return


def _descendants(of: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as handle:
                    parent = int(handle.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(name))
    found, left = [], [of]
    while left:
        below = parents.get(left.pop(), [])
        found += below
        left += below
    return found


def main(words: Sequence[str]) -> int:
    lacking = missing()
    if lacking:
        print(f"not installed: {', '.join(lacking)} (Debian: slurm-wlm, munge)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        cluster = Cluster(folder)
        cluster.start()
        try:
            command = list(words) or [os.environ.get("SHELL", "/bin/sh")]
            return subprocess.run(command, env=cluster.environment, check=False).returncode
        finally:
            cluster.stop()


if __name__ == "__main__":
    sys.exit(_keep(sys.argv[2:]) if sys.argv[1:2] == ["--keep"] else main(sys.argv[1:]))
