"""Run this bundle on a Ray cluster, as a Ray Train job with one worker per node that starts launch.sh there.

ray job submit --working-dir . -- python ray_job.py    from this folder, which is copied to every node
    python ray_job.py                                      the same, on a machine of the cluster

ray.json next to this file has the numbers. PYTHON names the interpreter that trains, on every node (default: python3).
The exit status is that of launch.sh: 0 if the run is done, 75 if it was asked to stop and not restarted. The job needs
Ray 2.51 or newer.
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
"""The exit status of a run that stopped on request. When it is started again, the run resumes."""
FINAL = (0, 1, 2, TEMPFAIL)
"""Exit statuses after which the job is not retried: success, failures that would happen again, and a stop on request.
"""
ENDED = "launch.sh ended with exit status"
PASSED = ("PYTHON", "OMP_NUM_THREADS")
PREFIXES = (
    "CLEARML_", "GLOO_", "HF_", "MLFLOW_", "NCCL_", "PYTORCH_", "SWANLAB_", "TOKENIZERS_", "TRACKIO_", "WANDB_", "XPC_",
)  # fmt: skip
"""Prefixes of environment variables that are copied from the job to every node. They replace the node's own values."""


def main() -> int:
    """Start the job, wait for its end, and restart it if it was stopped on request."""
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
        say("stopped early; restarting from the newest checkpoint")


def worker(expected: str | None, passed: dict[str, str]) -> Callable[[], int]:
    """Return the function that Ray runs on each node. The variables for launch.sh (`passed`), such as secret tokens,
    are in the function's closure, because Ray writes a function's arguments into its records of the job.
    """

    def node() -> int:
        import ray.train
        from ray.train.collective import broadcast_from_rank_zero

        bundle = next((one for one in (os.getcwd(), BUNDLE) if expected and digest(one) == expected), None)
        if bundle is None:
            raise RuntimeError(f"neither {os.getcwd()} nor {BUNDLE} is the bundle of this job")
        job, context = settings(bundle), ray.train.get_context()
        # launch.sh must not retry, because the Ray job retries
        environment = {"XPC_NODE_WAIT": "1800", **inherited(bundle), **passed, "XPC_RETRIES": "0"}
        environment["XPC_RAY_NODE"] = ray.get_runtime_context().get_node_id()
        if job["nodes"] > 1:
            first = context.get_world_rank() == 0
            address, port = broadcast_from_rank_zero((ray.util.get_node_ip_address(), free_port()) if first else None)
            environment.update(NODE_RANK=str(context.get_world_rank()), MASTER_ADDR=address, MASTER_PORT=str(port))
        status = run_supervised(bundle, job["folder"] or bundle, environment)
        if status not in FINAL:
            raise RuntimeError(f"{ENDED} {status}")
        return status

    return node


def settings(bundle: str) -> Any:
    """Read ray.json from the folder of a bundle."""
    with open(os.path.join(bundle, "ray.json"), encoding="utf-8") as handle:
        return json.load(handle)


def digest(bundle: str) -> str | None:
    """The SHA-256 of a folder's bundle.toml, or None if the folder is not a bundle."""
    try:
        with open(os.path.join(bundle, "bundle.toml"), "rb") as handle:
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return None


def inherited(bundle: str) -> dict[str, str]:
    """The environment variables of this process without what Ray adds: OMP_NUM_THREADS, and the bundle's folder in
    PYTHONPATH.
    """
    found = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    paths = [
        one
        for one in found.pop("PYTHONPATH", "").split(":")
        if one and os.path.realpath(one) != os.path.realpath(bundle)
    ]
    return {**found, **({"PYTHONPATH": ":".join(paths)} if paths else {})}


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def say(text: str) -> None:
    """Print a line into the job's log."""
    print(f"ray_job.py: {text}", file=sys.stderr, flush=True)


def run_supervised(bundle: str, folder: str, environment: dict[str, str]) -> int:
    """Run launch.sh in the folder and return its exit status.

    Ray kills a worker together with its children. Therefore a supervisor in a separate session starts launch.sh. When
    the worker ends, its pipe to the supervisor closes, and the supervisor tells launch.sh to stop.
    """
    alive, hold = os.pipe()
    status_in, status_out = os.pipe()
    words = [sys.executable, os.path.join(bundle, "ray_job.py"), "--node", str(status_out)]
    subprocess.run(words, stdin=alive, pass_fds=(status_out,), cwd=folder, env=environment, check=True)
    os.close(alive)
    os.close(status_out)
    with os.fdopen(status_in) as handle:
        status = handle.read()
    os.close(hold)
    return int(status or 128 + signal.SIGKILL)


def supervise(status_out: int) -> None:
    """Run as the supervisor between a worker and launch.sh. As long as this process runs, the next supervisor on this
    node waits.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    job, disconnected = settings(BUNDLE), threading.Event()
    threading.Thread(target=wait_for_worker, args=(disconnected,), daemon=True).start()
    name = f"{digest(BUNDLE)}-{os.getuid()}-{os.environ['XPC_RAY_NODE']}"
    with open(os.path.join(tempfile.gettempdir(), f"xpc-{name}.lock"), "w", encoding="utf-8") as lock:
        while not is_locked(lock.fileno()):
            if disconnected.wait(0.2):
                os._exit(0)
        child = subprocess.Popen(["bash", os.path.join(BUNDLE, "launch.sh")], stdin=subprocess.DEVNULL)
        while child.poll() is None and not disconnected.wait(0.2):
            pass
        if child.poll() is None:
            say("the worker has ended; launch.sh is asked to stop")
            child.send_signal(signal.SIGTERM)
            until = time.monotonic() + job["grace"]
            while child.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
        status = -signal.SIGKILL if child.returncode is None else child.returncode
        with suppress(BrokenPipeError):  # the worker may have ended, and then nobody reads the status
            os.write(status_out, str(128 - status if status < 0 else status).encode())
        os.killpg(0, signal.SIGKILL)  # kill this process and all remaining processes of the run


def wait_for_worker(disconnected: threading.Event) -> None:
    """Wait until the pipe from the worker closes."""
    sys.stdin.buffer.read()
    disconnected.set()


def is_locked(lock: int) -> bool:
    """Try to take the file lock. Returns whether this process now holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["--node"]:
        supervise(int(sys.argv[2]))
    sys.exit(main())
