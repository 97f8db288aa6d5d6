"""The program that runs proofs in a target's interpreter. It reads jobs from standard input and prints answers, one
line of JSON for each job.

The libraries are imported once, and each job runs in a fork. So a job cannot change the state of a library
(accelerate's state, a process group, a patched function) for the next job, and a job that hangs or crashes does not
affect others.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import selectors
import signal
import sys
import tempfile
import time
import traceback
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
TESTS = os.path.dirname(HERE)
sys.path.append(os.path.join(TESTS, "support"))
sys.path.append(os.path.join(os.path.dirname(TESTS), "compiler", "preview", "rehearsal", "worker"))
TAIL = 4000
"""An answer contains only the end of a child's output: at most this many characters."""


def load() -> None:
    """Import what proofs use, but compute nothing: a computation would start threads, and a forked child would not have
    them.
    """
    import datasets
    import deepspeed
    import fork_server
    import torch

    torch.set_num_threads(1)
    fork_server.warm()
    datasets.disable_progress_bars()
    # If this operator counted as compatible, DeepSpeed would compile it. Compiling takes minutes (see
    # runtime/core/arguments.py).
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    import accelerate.commands.launch
    import small_run
    import transformers.integrations.deepspeed
    import transformers.models.llama.modeling_llama

    assert all((accelerate, small_run, transformers))
    gc.freeze()


class Child:
    """A running job: its forked process, this process's end of the pipe to it, and the file with its output."""

    def __init__(self, job: dict[str, Any], folder: str) -> None:
        self.job = job
        self.log = tempfile.mkstemp(dir=folder, suffix=".log")[1]
        self.until = time.monotonic() + job.get("timeout", 120)
        self.parts: list[bytes] = []
        read, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            _child(job, write, self.log, folder)
        os.close(write)
        self.pipe = read

    def answer(self, ended: str = "") -> dict[str, Any]:
        """The answer that the forked process has sent. If the process has sent no answer, an answer that states the
        reason.
        """
        os.close(self.pipe)
        if ended:
            os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        text = b"".join(self.parts)
        found: dict[str, Any] = json.loads(text) if text and not ended else {}
        if not found:
            why = ended or f"ended with status {status}"
            found = {"raised": {"type": "Ended", "message": why, "at": ""}, "warned": [], "measured": {}, "seconds": {}}
        with open(self.log, encoding="utf-8", errors="replace") as handle:
            found["output"] = handle.read()[-TAIL:]
        return {"id": self.job["id"], **found}


def _child(job: dict[str, Any], pipe: int, log: str, folder: str) -> None:
    """Run a job in this forked process, and exit. Never returns."""
    status = 1
    try:
        os.setsid()
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if job.get("memory"):
            resource.setrlimit(resource.RLIMIT_DATA, (job["memory"] << 30, resource.RLIM_INFINITY))
        location = tempfile.mkdtemp(dir=folder)
        os.chdir(location)
        import small_run

        text = json.dumps(small_run.ranks(job)).encode()
        with os.fdopen(pipe, "wb") as handle:
            handle.write(text)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve(jobs: int) -> None:
    """Serve jobs until the input ends and every child has answered."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    load()
    out.write(json.dumps({"ready": True}) + "\n")
    waiting: list[dict[str, Any]] = []
    running: dict[int, Child] = {}
    watch = selectors.DefaultSelector()
    os.set_blocking(0, False)
    watch.register(0, selectors.EVENT_READ)
    rest, more = b"", True
    with tempfile.TemporaryDirectory(prefix="proofs-") as folder:
        while more or waiting or running:
            while waiting and len(running) < jobs:
                child = Child(waiting.pop(0), folder)
                running[child.pipe] = child
                watch.register(child.pipe, selectors.EVENT_READ)
            for key, _ in watch.select(timeout=1):
                data = os.read(key.fd, 1 << 20)
                if key.fd == 0:
                    if not data:
                        more = False
                        watch.unregister(0)
                    lines = (rest + data).split(b"\n")
                    rest = lines.pop()
                    waiting += [json.loads(line) for line in lines if line.strip()]
                elif data:
                    running[key.fd].parts.append(data)
                else:
                    watch.unregister(key.fd)
                    out.write(json.dumps(running.pop(key.fd).answer()) + "\n")
            for pipe in [pipe for pipe, child in running.items() if child.until < time.monotonic()]:
                watch.unregister(pipe)
                child = running.pop(pipe)
                out.write(json.dumps(child.answer(f"not done after {child.job.get('timeout', 120)} seconds")) + "\n")


if __name__ == "__main__":
    serve(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
