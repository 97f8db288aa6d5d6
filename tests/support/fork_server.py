"""Runs bundles one after another from one warm interpreter: the libraries are imported once, each run is a fork.

A run is the bundle's own trainer/main.py in processes of its own, with what torchrun would put into their environment,
so it trains, saves, dies of a signal and goes on like any other; only the ten seconds of imports are shared. Another
program (``program``), one that looks at what runs have left, starts as fast. Started as a program itself it reads one
JSON object a line (see ``forks.Forks.run``) and answers with one. Standard library, until the libraries are asked for.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from importlib import import_module
from typing import Any

TRAINERS = ("SFT", "DPO", "KTO", "Reward", "GRPO", "RLOO", "ORPO")


def warm() -> None:
    """Everything that a run imports, once. What is imported is left out of the garbage collections of the forks."""
    import accelerate.commands.launch
    import datasets
    import deepspeed
    import peft
    import transformers.models.qwen2.modeling_qwen2
    import transformers.trainer
    import trl

    for name in TRAINERS:
        place = trl if hasattr(trl, name + "Trainer") else import_module("trl.experimental." + name.lower())
        getattr(place, name + "Trainer"), getattr(place, name + "Config")
    assert all((accelerate, datasets, deepspeed, peft, transformers))
    gc.freeze()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def child(job: dict[str, Any], rank: int, port: int) -> int:
    """The pid of a fork that runs the program and ends with its status."""
    pid = os.fork()
    if pid:
        return pid
    status = 70  # of a run that not even an exception ends
    try:
        os.setsid()
        os.chdir(job["cwd"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{job['said']}.{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        if job["world"] > 1:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job["world"]),
                LOCAL_WORLD_SIZE=str(job["world"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            )  # fmt: skip
        os.environ.update(job["environ"])
        main = job["program"] or os.path.join(job["bundle"], "trainer", "main.py")
        sys.argv = [main, *job["words"]]
        sys.path.insert(0, os.path.dirname(main))  # as for a program that is started
        try:
            runpy.run_path(main, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        atexit._run_exitfuncs()  # trackers write their last lines there
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(job: dict[str, Any]) -> dict[str, Any]:
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
    said = {}
    for name in ("out", "err"):
        texts = []
        for rank in range(job["world"]):
            with open(f"{job['said']}.{name}.{rank}", encoding="utf-8", errors="replace") as handle:
                texts.append(handle.read())
        said[name] = "".join(texts)
    return {"status": [status[rank] for rank in range(job["world"])], "killed": killed, "late": late, **said}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warm()
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()
    os._exit(0)  # what native modules tell of objects that live to the end is no news here
