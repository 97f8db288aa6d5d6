"""Run bundles one after another in one process, which imports the training libraries once and forks for each run.

A run is the bundle's own trainer/main.py in separate processes with the environment variables that torchrun would set.
Such a run trains, saves, is killed and resumes like any other run, but does not spend ten seconds on imports. Other
programs (``program``), such as one that inspects results, can be run in the same way. The server reads requests from
its standard input, one JSON object per line (see ``forks.Forks.run``), and answers each with one line.

The server's argument is the file descriptor of a socket. launch.sh and the launchers call warm_python.py in place of
Python. A process of warm_python.py connects to this socket, and gets a fork that runs its program. Until ``warm`` is
called, the server imports only the standard library.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib.metadata
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

TRAINERS = ("SFT", "DPO", "KTO", "Reward", "GRPO", "RLOO", "ORPO", "CPO")
LATER = (
    "deepspeed",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.runtime.superoffload.superoffload_stage3",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "lomo_optim",
    "numpy.ctypeslib",
    "peft",
    "peft.tuners.lora.bnb",
    "scipy.io",
    "threadpoolctl",
    "torch.distributed.algorithms.ddp_comm_hooks",
    "torch.utils.serialization",
)
"""Modules that are imported only if the environment has the packages that they need."""
LAUNCHERS = ("accelerate.commands.launch", "torch.distributed.run")


def warm() -> None:
    """Import everything that a run imports. Then exclude the imported objects from garbage collection, because a
    collection in a fork would copy the memory of these objects.
    """
    import accelerate.commands.launch
    import datasets
    import transformers.models.qwen2.modeling_qwen2
    import transformers.trainer
    import trl
    from torch.distributed.elastic.agent.server import local_elastic_agent

    for name in TRAINERS:
        location = trl if hasattr(trl, name + "Trainer") else import_module("trl.experimental." + name.lower())
        getattr(location, name + "Trainer"), getattr(location, name + "Config")
    for name in LATER:
        with contextlib.suppress(ImportError):
            import_module(name)
    _look_up(transformers)
    # Forget the imported launchers. accelerate runs a launcher as a program, so each fork must import the launcher
    # again.
    for name in LAUNCHERS:
        sys.modules.pop(name, None)
    assert all((accelerate, datasets, local_elastic_agent, transformers))
    gc.freeze()


def _look_up(transformers: Any) -> None:
    """Cache the results of slow look-ups, which each run would repeat.

    - the metadata of packages
    - the operators that DeepSpeed can build on this machine (DeepSpeed starts a C compiler to find out)
    - the NUMA nodes; DeepSpeed searches for the program numactl at each gradient
    - transformers' list of models, and its table of renamed weights
    """
    importlib.metadata.metadata = cache(importlib.metadata.metadata)
    if "deepspeed" in sys.modules:
        from deepspeed.utils import numa

        numa.get_numa_cores = cache(numa.get_numa_cores)
        assert sys.modules["deepspeed"].ops.__compatible_ops__
    try:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    except ImportError:
        assert list(transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING.keys())
        return
    get_checkpoint_conversion_mapping("qwen2")


def forked(prepare: Callable[[], str]) -> int:
    """Fork, and run a program in the fork. ``prepare`` is a function that is called in the fork and returns the path of
    the program. Returns the pid of the fork.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 70  # the exit status if the program cannot be prepared or run
    try:
        os.setsid()
        main = prepare()
        try:
            runpy.run_path(main, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except Exception:
            traceback.print_exc()
            status = 1
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()  # os._exit below skips exit functions, in which trackers write their last lines
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def child(job: dict[str, Any], rank: int, port: int) -> int:
    """Fork, and run the program of a job in the fork, as the process with the rank ``rank``. Returns the pid of the
    fork.
    """

    def prepare() -> str:
        os.chdir(job["cwd"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{job['said']}.{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        if job["world"] > 1:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job["world"]),
                LOCAL_WORLD_SIZE=str(job["world"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            )  # fmt: skip
        os.environ.update(job["environ"])
        main = str(job["program"] or os.path.join(job["bundle"], "trainer", "main.py"))
        sys.argv = [main, *job["words"]]
        sys.path.insert(0, os.path.dirname(main))  # Python, too, adds the folder of the program that it runs
        return main

    return forked(prepare)


def free_port() -> int:
    """A free port below the range from which the kernel chooses ports for other programs."""
    while True:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("", random.SystemRandom().randint(12000, 32767)))
            return int(one.getsockname()[1])


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job, as `forks.Forks.run` describes it, until it ends. Returns the answer for the client."""
    port, until = free_port(), time.monotonic() + job["seconds"]
    alive = {child(job, rank, port): rank for rank in range(job["world"])}
    status: dict[int, int] = {}
    killed = late = False
    while alive:
        if not killed and job["kill_at"] and os.path.exists(job["kill_at"]):
            killed = True
        late = time.monotonic() > until
        failed = any(code for code in status.values())
        if killed or late or failed:
            for pid in alive:
                os.kill(pid, signal.SIGKILL)
        for pid in list(alive):
            done, code = os.waitpid(pid, 0 if killed or late or failed else os.WNOHANG)
            if done:
                status[alive.pop(pid)] = os.waitstatus_to_exitcode(code)
        time.sleep(0.005)
    output = {}
    for name in ("out", "err"):
        texts = []
        for rank in range(job["world"]):
            with open(f"{job['said']}.{name}.{rank}", encoding="utf-8", errors="replace") as handle:
                texts.append(handle.read())
        output[name] = "".join(texts)
    return {"status": [status[rank] for rank in range(job["world"])], "killed": killed, "late": late, **output}


class Commands:
    """Serves its clients, which are processes of warm_python.py. Each client gets a fork. The fork gets the signals
    that its client gets, and is killed if its client ends.
    """

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        self.listener, self.selector = listener, selector
        self.own = os.open("/proc/self/ns/pid", os.O_RDONLY)
        selector.register(listener, selectors.EVENT_READ, self.accept)

    def accept(self) -> None:
        """Accept the connection of a client."""
        connection, _ = self.listener.accept()
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.start(connection))

    def start(self, connection: socket.socket) -> None:
        """Fork the program that a client requests."""
        self.selector.unregister(connection)
        text, files, _, _ = socket.recv_fds(connection, 1 << 20, 16)
        if not text:  # the client was killed before it requested a program
            connection.close()
            return
        requested = json.loads(text)
        enter(files[3])  # from now on, forks start in the client's pid namespace
        pid = forked(lambda: as_command(requested, files))
        enter(self.own)
        for file in files:
            os.close(file)
        ended = os.pidfd_open(pid)
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.signal(connection, pid))
        self.selector.register(ended, selectors.EVENT_READ, lambda: self.end(connection, ended, pid))

    def signal(self, connection: socket.socket, pid: int) -> None:
        """Pass a client's signal on to the client's fork. If the client has ended, kill the fork."""
        requested = connection.recv(16)
        os.kill(pid, int(requested or signal.SIGKILL))
        if not requested:
            self.selector.unregister(connection)

    def end(self, connection: socket.socket, ended: int, pid: int) -> None:
        """Send the exit status of a fork to the fork's client."""
        self.selector.unregister(ended)
        os.close(ended)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            self.selector.unregister(connection)
            connection.send(b"%d" % status)
        except (KeyError, OSError):  # the client was killed, so nobody waits for the exit status
            connection.close()
            return
        # If a client's signal is unread when the socket closes, the client does not get the exit status. Therefore
        # everything is read until the client ends.
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.drain(connection))

    def drain(self, connection: socket.socket) -> None:
        """Read and discard what a client sends, until it closes the connection."""
        try:
            more = connection.recv(16)
        except OSError:
            more = b""
        if not more:
            self.selector.unregister(connection)
            connection.close()


def enter(space: int) -> None:
    """Join the namespace to which the file descriptor `space` belongs. Only root may do this. Without root, nothing
    needs to be done: server and client are in the same namespaces.
    """
    ctypes.CDLL(None).setns(space, 0)


def as_command(requested: dict[str, Any], files: list[int]) -> str:
    """Give this fork the arguments, the folder, the environment and the open files of the program that the client
    started. Return the path of that program.

    ``requested`` has the program's arguments, folder and environment; ``files`` are the client's open file descriptors.
    """
    for name, space in zip(("mnt", "net", "uts"), files[4:]):
        # do not enter a namespace that this process is already in: for mounts, this would undo a chroot
        if not os.path.samestat(os.fstat(space), os.stat(f"/proc/self/ns/{name}")):
            enter(space)
    os.chdir(requested["cwd"])
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, 1 << 16)  # this also closes the server's own files
    os.environ.clear()
    os.environ.update(requested["environ"])
    # huggingface_hub reads the environment variables only during its import, so import it again
    importlib.reload(sys.modules["huggingface_hub.constants"])
    sys.executable, sys.argv = requested["python"], requested["words"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    if requested["unbuffered"]:
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    return str(sys.argv[0])


def serve(answers: Any, listener: socket.socket) -> None:
    """Answer requests until the standard input of the server ends."""
    with selectors.DefaultSelector() as selector:
        Commands(listener, selector)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    if key in selector.get_map().values():  # an earlier handler may have closed the connection
                        key.data()
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                answers.write(json.dumps(run(json.loads(line))) + "\n")
                answers.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warm()
    serve(answers, socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # `os._exit` keeps native modules from printing messages about leaked objects
