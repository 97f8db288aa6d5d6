"""The environment variables of `launch.sh`: a nonsensical value ends the launch with one message, and variables of
another launch are ignored.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from case_support import ROW, spec
from compile_support import compiled, put
from patience import HUNG

from xpc.compiler.files.bundle import write
from xpc.runtime.core import checkpoints, preflight
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.launch.local_files import find

pytestmark = pytest.mark.slow

RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID", "PYTHONOPTIMIZE")
PYTHON = "#!/usr/bin/env bash\nenv\n"


@pytest.fixture(scope="module", params=["8 x h100-80gb", "2 x cpu", "cpu"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle next to a fake python that prints its environment."""
    location = tmp_path_factory.mktemp("launched")
    put(location, {"rows.jsonl": ROW * 40, "python": PYTHON})
    os.chmod(location / "python", 0o755)
    cpu = request.param != "8 x h100-80gb"
    more = {"precision": "fp32", "batch": "gbs=8 micro=4"} if cpu else {}
    text = spec(train='qwen2.5-3b on "rows.jsonl" for 1 epochs', hardware=request.param, **more)
    text = text.replace("strategy zero2\n", "") if cpu else text
    write(compiled(text, str(location)), str(location / "b"))
    return location


def launched(location: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(location / "b" / "launch.sh")], cwd=location, capture_output=True, text=True, timeout=HUNG, check=False,
        env={**os.environ, "PYTHON": str(location / "python"), **environment},
    )  # fmt: skip


@pytest.mark.parametrize("name", RANKS)
def test_ranks_of_another_launch_are_not_read(bundle: Path, name: str) -> None:
    done = launched(bundle, **{name: "5"})
    assert done.returncode == 0, done
    assert f"\n{name}=" not in done.stdout


def test_variables_of_another_launch_are_ignored_together(bundle: Path) -> None:
    done = launched(bundle, **dict.fromkeys(RANKS, "3"))
    assert (done.returncode, [one for one in RANKS if f"\n{one}=" in done.stdout]) == (0, [])


@pytest.mark.parametrize("value", ["x", "-1", "1;ls", "4,2", " ", "1e3"])
def test_nonsense_for_threads_is_one_message(bundle: Path, value: str) -> None:
    done = launched(bundle, OMP_NUM_THREADS=value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("launch.sh: OMP_NUM_THREADS must be a number")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("value", ["99999", "65536", "x", "-1", "9" * 40])
def test_nonsense_for_the_port_is_one_message(bundle: Path, value: str) -> None:
    if "main_process_port" not in (bundle / "b" / "launch.sh").read_text():
        pytest.skip("a run of one process has no port")
    done = launched(bundle, MASTER_PORT=value)
    assert (done.returncode, done.stderr.count("\n"), "MASTER_PORT must be" in done.stderr) == (2, 1, True), done


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    put(
        tmp_path, {"out/checkpoint-2/trainer_state.json": '{"global_step": 2}', "out/checkpoint-2/a/b.safetensors": "x"}
    )
    os.mkfifo(tmp_path / "out" / "checkpoint-2" / "xpc_files.json")
    found, notes = checkpoints.newest_complete(str(tmp_path / "out"), 1, lambda *_: None, True)
    assert (found, "xpc_files.json is not a regular file" in notes[0]) == (None, True)
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(RunError, match="neither a file nor a folder"):
        find(str(tmp_path / "b"), str(tmp_path / "rows.jsonl"))


@pytest.mark.parametrize("name", ["HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"])
def test_a_cache_that_is_no_folder_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"file": ""})
    monkeypatch.setenv(name, str(tmp_path / "file" / "below"))
    (found,) = preflight.caches()
    assert found.startswith(f"{name}={tmp_path}/file/below: ")
    monkeypatch.setenv(name, str(tmp_path / "new" / "below"))
    assert preflight.caches() == []


def test_without_variables_the_default_cache_is_checked_and_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    put(tmp_path, {"file": ""})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (found,) = preflight.caches()
    assert found.startswith(f"HF_HOME={tmp_path}/file/huggingface: ")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "new"))
    assert preflight.caches() == []
