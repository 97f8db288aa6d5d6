"""The rule XP913 refuses some arguments of `ray job submit`. The tests pass these arguments to Ray's real command, with
a fake cluster, to see what they do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from emitted import compiled, one
from patience import HUNG
from ray_cluster import missing

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text

pytestmark = pytest.mark.slow

QUESTION = """\
import json, shlex, sys
from ray.dashboard.modules.job import cli

class Cluster:
    def __init__(self, address, **_):
        print("ASKED", json.dumps({"address": address}))
    def get_version(self):
        return "2"
    def submit_job(self, **job):
        print("ASKED", json.dumps({name: value for name, value in job.items() if value}))
        raise SystemExit

cli._get_sdk_client = Cluster
cli.job_cli_group(shlex.split(sys.stdin.read())[2:], prog_name="ray job")
"""
PLAIN = {"address": None, "entrypoint": "python ray_job.py", "runtime_env": {"working_dir": "."}}


def text(*words: str) -> str:
    return one("a", f'launch ray(volume="/mnt/shared", extra_args={json.dumps(words)})').text


def refused(word: str) -> bool:
    """Whether the rule XP913 refuses this argument in `extra_args`."""
    found = check_text(text(word).encode(), "spec.xp", Workspace("."))
    return "XP913" in [problem.code for problem in found.problems]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The `ray job submit` command in a bundle's README.md."""
    folder = tmp_path_factory.mktemp("made")
    bundle = compiled(text("--verbose"), str(folder), str(folder / "b.bundle"))
    lines = Path(bundle, "README.md").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith("ray job submit")]
    assert "--verbose" in found
    return found


def submitted(command: str, word: str) -> tuple[int, dict[str, Any]]:
    """Run the README's command, with `word` in place of `--verbose`. Return the command's exit status, and what it
    requests from the cluster.
    """
    if missing():
        pytest.skip(missing())
    done = subprocess.run(
        [sys.executable, "-c", QUESTION],
        input=command.replace("--verbose", word),
        text=True,
        capture_output=True,
        timeout=HUNG,
    )
    parts = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("ASKED ")]
    return done.returncode, {name: value for part in parts for name, value in part.items()}


def test_an_option_of_the_command_reaches_the_cluster(command: str) -> None:
    word = "--address=http://head:8265"
    assert not refused(word)
    assert submitted(command, word) == (0, {**PLAIN, "address": "http://head:8265"})


@pytest.mark.parametrize(
    ("word", "differs"),
    [
        ("verbose", {"entrypoint": "verbose python ray_job.py"}),  # The job would start another program.
        # The option reserves GPUs for ray_job.py, and the workers of the run then lack them.
        ("--entrypoint-num-gpus=8", {"entrypoint_num_gpus": 8.0}),
        ("--working-dir=/elsewhere", {}),  # the command already has this option, and the last of two wins
    ],
)
def test_what_is_refused_goes_wrong_in_silence(command: str, word: str, differs: dict[str, Any]) -> None:
    assert refused(word)
    assert submitted(command, word) == (0, {**PLAIN, **differs})
