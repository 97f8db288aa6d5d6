"""Tests of the bundle's script `ray_job.py` without Ray. The numbers (nodes, GPUs) come from the ray.json that the
compiler writes.

tests/launch/test_ray_trains.py runs the same script on a Ray cluster of two nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from case_support import spec
from cluster_support import ray
from compile_support import checked, compiled, only
from patience import HUNG
from whole_lines import whole_lines

from xpc.compiler.engines.ray import ray_job
from xpc.compiler.files.bundle import write

STAND_IN = """\
#!/usr/bin/env bash
trap 'echo asked >>said; exit 75' TERM
echo "$NODE_RANK $PWD" >>said
until [ -e go ]; do sleep 0.05; done
exit "$(cat go)"
"""
WORKER = (
    "import sys; sys.path.insert(0, sys.argv[1]); import ray_job; "
    "print(ray_job.run_supervised(sys.argv[1], '.', {env}))"
)
"""A program that stands in for a Ray worker. It is another process, so that a test can kill it."""


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    out = str(tmp_path / "run.bundle")
    write(compiled(spec(ray()), name="run.xp"), out)
    (tmp_path / "run.bundle" / "launch.sh").write_text(STAND_IN)
    return out


def worker(bundle: str, node: str = "n") -> subprocess.Popen[str]:
    reported = {"PATH": os.environ["PATH"], "NODE_RANK": "1", "XPC_RAY_NODE": f"{os.path.dirname(bundle)[-20:]}-{node}"}
    reported["XPC_RAY_NODE"] = reported["XPC_RAY_NODE"].replace("/", "_")
    words = [sys.executable, "-c", WORKER.format(env=reported), bundle]
    return subprocess.Popen(words, cwd=os.path.dirname(bundle), stdout=subprocess.PIPE, text=True)


def launched_lines(bundle: str) -> list[str]:
    return whole_lines(os.path.join(os.path.dirname(bundle), "said"))


def until(seen: Callable[[], object]) -> None:
    end = time.monotonic() + 600
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("~/../runs//a", "/mnt/runs/a"),
        ("s3://mine/./runs", "/mnt/mine/runs"),
        ("..", "/mnt/shared"),
    ],
)
def test_a_folder_that_is_none_keeps_its_names(written: str, typed: str) -> None:
    found = only(checked(spec(ray(f'volume="{written}"'))), "XP894")
    assert [edit.text for edit in found.edits] == [f'volume = "{typed}"']


def test_the_numbers_are_those_of_the_spec():
    text = spec("nodes 2", ray(), batch="gbs=128 micro=8")
    assert json.loads(compiled(text)["ray.json"]) == {
        "nodes": 2, "cpus": 8, "gpus": 8, "folder": "/mnt/shared", "retries": 3, "again": True, "grace": 300,
    }  # fmt: skip
    never = json.loads(compiled(spec("launch ray", "seed 1", save='save "out" every=never'))["ray.json"])
    assert (never["folder"], never["retries"], never["again"]) == (None, 0, False)
    given = json.loads(compiled(spec(ray('volume="/mnt/shared", host_memory=64')))["ray.json"])
    assert given["memory"] == 64
    cpu = json.loads(compiled(spec(ray(), hardware="4 x cpu", precision="fp32"))["ray.json"])
    assert (cpu["cpus"], cpu["gpus"]) == (4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 3, 75])
def test_the_status_of_launch_sh_comes_back(bundle: str, tmp_path: Path, status: int):
    (tmp_path / "go").write_text(str(status))
    out, _ = worker(bundle).communicate(timeout=HUNG)
    assert out == f"{status}\n"
    assert launched_lines(bundle) == [f"1 {tmp_path}"]


@pytest.mark.slow
def test_killed_worker_stops_the_run(bundle: str):
    """Ray kills a worker and the worker's children with SIGKILL. launch.sh is not a child of the worker, but it must
    stop when the worker is killed.
    """
    one = worker(bundle)
    until(lambda: launched_lines(bundle))
    one.kill()
    one.wait()
    until(lambda: launched_lines(bundle)[1:] == ["asked"])


@pytest.mark.slow
def test_a_node_starts_the_run_again_when_the_last_one_has_left(bundle: str, tmp_path: Path):
    """If two workers start on the same node, the second one starts launch.sh only after the first one has ended. A
    worker on another node starts launch.sh at once.
    """
    first, second = worker(bundle), None
    try:
        until(lambda: launched_lines(bundle))
        second, other = worker(bundle), worker(bundle, "other")
        until(lambda: len(launched_lines(bundle)) == 2)
        time.sleep(0.3)
        assert len(launched_lines(bundle)) == 2
        (tmp_path / "go").write_text("0")
        assert [one.wait(600) for one in (first, second, other)] == [0, 0, 0]
        assert len(launched_lines(bundle)) == 3
    finally:
        (tmp_path / "go").write_text("0")


def test_what_ray_sets_for_itself_is_not_the_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Ray sets OMP_NUM_THREADS for its worker and adds a folder to the worker's PYTHONPATH. The training run gets
    neither of the two.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:/shared/modules")
    found = ray_job.inherited(str(tmp_path))
    assert (found.get("OMP_NUM_THREADS"), found["PYTHONPATH"]) == (None, "/shared/modules")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "PYTHONPATH" not in ray_job.inherited(str(tmp_path))


def test_a_bundle_is_known_by_its_digests(bundle: str, tmp_path: Path):
    known = ray_job.digest(bundle)
    assert known is not None
    assert len(known) == 64
    assert ray_job.digest(str(tmp_path)) is None
