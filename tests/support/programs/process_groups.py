"""Run a test program in several processes. The processes get the environment variables that a launcher sets for one
process group.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

from patience import HUNG
from ports import free_port

ROOT = str(Path(__file__).parents[3])


def together(python: str, program: str, world: int, *words: str) -> None:
    """Run ``program`` of tests/faults in ``world`` processes. If a process fails, raise AssertionError with the output
    of all processes.
    """
    common = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu",
        "PYTHONPATH": ROOT,
    }  # fmt: skip
    path = os.path.join(ROOT, "tests", "faults", program)
    with ExitStack() as opened:
        files = [opened.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in range(world)]
        started = [
            subprocess.Popen(
                [python, path, *words],
                env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            for rank, file in enumerate(files)
        ]
        try:
            failed = _to_the_end(started)
        finally:
            for one in started:
                one.kill()
                one.wait()
        if failed:
            raise AssertionError("\n".join(file.read() for file in files if not file.seek(0)))


def _to_the_end(started: list[subprocess.Popen[bytes]]) -> bool:
    """Wait for all processes. Return False if all processes have ended with status 0. Return True as soon as a process
    fails, because the other processes may wait for it forever. Also return True at the timeout.
    """
    until = time.monotonic() + HUNG
    while time.monotonic() < until:
        found = [one.poll() for one in started]
        if any(found) or None not in found:
            return any(found)
        time.sleep(0.05)
    return True
