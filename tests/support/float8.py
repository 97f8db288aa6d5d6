"""Run bundles and programs in fp8 on a CPU, in an interpreter that can import torchao.

torchao can also multiply fp8 matrices on a CPU. A run on a GPU would differ only in the speed and the rounding of the
kernels. The bundles of these tests have never run on a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from forks import of_python
from stacks import environment

HERE = os.path.dirname(os.path.abspath(__file__))
TORCHAO = os.path.join(os.path.dirname(os.path.dirname(HERE)), ".venv-torchao")
"""The environment into which `make .venv-torchao/ready` installs torchao. torchao is not in .venv, because accelerate
imports an installed torchao in every test.
"""
TORCHRUN = os.path.join(os.path.dirname(find_spec("torch").origin), "distributed", "run.py")
MISSING = "" if os.path.exists(os.path.join(TORCHAO, "ready")) else "`make .venv-torchao/ready` installs torchao"


def run(*words: str, cwd: str, processes: int = 1, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with torchao on a CPU, in one process or several."""
    path = os.pathsep.join([TORCHAO, HERE, *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = environment(PYTHONPATH=path, CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", **variables)
    start = [of_python(sys.executable, path).python]  # the processes that torchrun starts are forks, too
    if processes > 1:
        start += [TORCHRUN, f"--nproc_per_node={processes}", "--standalone"]
    return subprocess.run([*start, *words], cwd=cwd, env=environ, capture_output=True, text=True,
                          check=False)  # fmt: skip


def answers(text: str, cwd: str, *words: str, processes: int = 1, **variables: str) -> list[dict[str, Any]]:
    """Run a Python program, and return the JSON objects that it prints, one per line.

    Fails with the program's stderr if its exit status is not 0.
    """
    path = os.path.join(cwd, "program.py")
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(text)
    done = run(path, *words, cwd=cwd, processes=processes, **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def on_a_cpu(bundle: str, arguments: Mapping[str, Any], processes: int = 1) -> None:
    """Change a bundle that was compiled for GPUs and ddp: it then runs on a CPU with this number of processes. Nothing
    else in the bundle changes.
    """
    path = os.path.join(bundle, "trainer_args.json")
    with open(path, encoding="utf-8") as handle:
        plan = json.load(handle)
    plan["run"].update(device="cpu", gpu=None)
    if processes > 1:
        plan["run"]["distributed_type"] = "MULTI_CPU"
    plan["arguments"].update(use_cpu=True, tf32=None, dataloader_pin_memory=False, **arguments)
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(plan, handle)
