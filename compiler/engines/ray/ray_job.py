"""Runs this bundle on a Ray cluster, as a Ray Train job with a worker on each node that starts launch.sh there.

    ray job submit --working-dir . -- python ray_job.py    from this folder, which goes to every node
    python ray_job.py                                      the same, typed on a machine of the cluster

ray.json beside this file has the numbers. PYTHON names the interpreter that trains, on every node (default: python3).
The exit status is that of launch.sh: 0 when the run is done, 75 when it was asked to stop and was not started again.
For Ray 2.51 or newer.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

BUNDLE = os.path.dirname(os.path.abspath(__file__))
TEMPFAIL = 75
"""The status of a run that was asked to stop, and that goes on when it is started again."""
FINAL = (0, 1, 2, TEMPFAIL)
"""Those that are no failure, or one that another start would end in, too."""
ENDED = "launch.sh ended with exit status"
PASSED = ("PYTHON", "OMP_NUM_THREADS")
PREFIXES = ("GLOO_", "HF_", "NCCL_", "PYTORCH_", "TOKENIZERS_", "TRACKIO_", "WANDB_", "XPC_")
"""Variables of the job that go to every node: where they are not set there, or to another value."""


def main() -> int:
    """Starts the job, waits for its end, and starts it again where it was asked to stop."""
    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    job = settings(BUNDLE)
    submitted = "working_dir" in os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "")
    ray.init(runtime_env=None if submitted else {"working_dir": BUNDLE})
    passed = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(PREFIXES)}
    resources = {"CPU": job["cpus"], **({"GPU": job["gpus"]} if job["gpus"] else {})}
    if "memory" in job:
        resources["memory"] = job["memory"] * 2**30
    while True:
        trainer = DataParallelTrainer(
            worker(digest(BUNDLE), passed),
            scaling_config=ScalingConfig(
                num_workers=job["nodes"],
                use_gpu=bool(job["gpus"]),
                resources_per_worker=resources,
                placement_strategy="STRICT_SPREAD",
            ),
            run_config=RunConfig(failure_config=FailureConfig(max_failures=job["retries"])),
        )
        try:
            status = trainer.fit().return_value
        except TrainingFailedError as error:
            found = [int(one) for one in re.findall(ENDED + r" (\d+)", str(error))]
            return max(found, default=1)
        if status != TEMPFAIL or not job["again"]:
            return 1 if status is None else int(status)
        say("stopped before its end; started again, to go on from the newest checkpoint")


def worker(expected: str | None, passed: dict[str, str]) -> Callable[[], int]:
    """What Ray runs on each node. It is a closure, so that tokens among `passed` stand in no record of the job."""

    def node() -> int:
        import ray.train
        from ray.train.collective import broadcast_from_rank_zero

        bundle = next((one for one in (os.getcwd(), BUNDLE) if expected and digest(one) == expected), None)
        if bundle is None:
            raise RuntimeError(f"neither {os.getcwd()} nor {BUNDLE} is the bundle of this job")
        job, context = settings(bundle), ray.train.get_context()
        said = {"XPC_NODE_WAIT": "1800", **inherited(bundle), **passed, "XPC_RETRIES": "0"}  # the job tries again
        said["XPC_RAY_NODE"] = ray.get_runtime_context().get_node_id()
        if job["nodes"] > 1:
            first = context.get_world_rank() == 0
            address, port = broadcast_from_rank_zero((ray.util.get_node_ip_address(), free_port()) if first else None)
            said.update(NODE_RANK=str(context.get_world_rank()), MASTER_ADDR=address, MASTER_PORT=str(port))
        status = attended(bundle, job["folder"] or bundle, said)
        if status not in FINAL:
            raise RuntimeError(f"{ENDED} {status}")
        return status

    return node


def settings(bundle: str) -> Any:
    """The numbers of ray.json."""
    with open(os.path.join(bundle, "ray.json"), encoding="utf-8") as handle:
        return json.load(handle)


def digest(bundle: str) -> str | None:
    """The SHA-256 of a bundle's table of digests, or None where no bundle lies."""
    try:
        with open(os.path.join(bundle, "bundle.toml"), "rb") as handle:
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return None


def inherited(bundle: str) -> dict[str, str]:
    """The worker's environment without what Ray has put there: a thread a core it reserved, and the bundle's folder."""
    found = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    paths = [
        one
        for one in found.pop("PYTHONPATH", "").split(":")
        if one and os.path.realpath(one) != os.path.realpath(bundle)
    ]
    return {**found, **({"PYTHONPATH": ":".join(paths)} if paths else {})}


def free_port() -> int:
    """A port of this machine that nobody holds."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def say(text: str) -> None:
    """A line of the job's log."""
    print(f"ray_job.py: {text}", file=sys.stderr, flush=True)


def attended(bundle: str, folder: str, environment: dict[str, str]) -> int:
    """Runs launch.sh in the folder, and gives its exit status.

    Between the two stands a process of its own session that is no child of the worker, because Ray kills a worker with
    its children: it hears of the worker's end by the end of a pipe, and asks launch.sh to stop.
    """
    alive, hold = os.pipe()
    answer, told = os.pipe()
    words = [sys.executable, os.path.join(bundle, "ray_job.py"), "--node", str(told)]
    subprocess.run(words, stdin=alive, pass_fds=(told,), cwd=folder, env=environment, check=True)
    os.close(alive)
    os.close(told)
    with os.fdopen(answer) as handle:
        status = handle.read()
    os.close(hold)
    return int(status or 128 + signal.SIGKILL)


def attend(told: int) -> None:
    """The process between a worker and launch.sh. The next start on this node waits until it has ended."""
    if os.fork():
        os._exit(0)
    os.setsid()
    job, gone = settings(BUNDLE), threading.Event()
    threading.Thread(target=tell_the_end, args=(gone,), daemon=True).start()
    name = f"{digest(BUNDLE)}-{os.getuid()}-{os.environ['XPC_RAY_NODE']}"
    with open(os.path.join(tempfile.gettempdir(), f"xpc-{name}.lock"), "w", encoding="utf-8") as lock:
        while not held(lock.fileno()):
            if gone.wait(0.2):
                os._exit(0)
        child = subprocess.Popen(["bash", os.path.join(BUNDLE, "launch.sh")], stdin=subprocess.DEVNULL)
        while child.poll() is None and not gone.wait(0.2):
            pass
        if child.poll() is None:
            say("the worker has ended; launch.sh is asked to stop")
            child.send_signal(signal.SIGTERM)
            until = time.monotonic() + job["grace"]
            while child.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
        status = -signal.SIGKILL if child.returncode is None else child.returncode
        with suppress(BrokenPipeError):  # the worker may have ended
            os.write(told, str(128 - status if status < 0 else status).encode())
        os.killpg(0, signal.SIGKILL)  # this process, and whatever the run has left


def tell_the_end(gone: threading.Event) -> None:
    """Waits for the end of the pipe that the worker holds."""
    sys.stdin.buffer.read()
    gone.set()


def held(lock: int) -> bool:
    """Whether the lock is this process's now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["--node"]:
        attend(int(sys.argv[2]))
    sys.exit(main())
