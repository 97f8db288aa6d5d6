"""`xpc doctor` reports on three interpreters: one with every pinned package, one without packages, and one that does
not exist.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from interpreters import stack_of

from xpc.compiler import cli, stacks
from xpc.compiler.commands import doctor
from xpc.compiler.files.inputs import UsageError

SECRET = "hf_thisisasecretthatnobodymaysee"


def script(folder: Path, text: str) -> str:
    """Write a shell script that takes the place of an interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    """A script that starts this Python without its installed packages (`-S`)."""
    return script(tmp_path, f'exec {sys.executable} -S "$@"')


def test_each_missing_package_is_reported(
    interpreter: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))  # without the locks of this machine
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.chdir(tmp_path)  # a folder that this user may write
    assert cli.main(["doctor", "--python", interpreter]) == 1
    output = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in output.splitlines()]
    stack = stack_of(stacks.DEFAULT)
    for name, version in stack.requirements().items():
        assert f"WRONG packages {name} {version} is not installed (pip install {name}=={version})" in lines
    assert "HF_TOKEN is set" in output
    assert SECRET not in output
    assert output.splitlines()[-1] == f"{len(stack.requirements())} things are wrong"
    assert sys.version.split()[0] in output


def test_json_is_for_programs(interpreter: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--python", interpreter, "--target", "trl-0.18", "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["python"], answer["target"]) == (interpreter, "trl-0.18")
    assert answer["wrong"] == sum(one["state"] == "wrong" for one in answer["entries"])
    assert {"python", "packages", "disk", "tokens"} <= {one["what"] for one in answer["entries"]}
    assert any("trl 0.18" in one["says"] for one in answer["entries"])


def test_unusable_interpreter_is_a_failure_of_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--python", "/no/python"]) == 2
    assert "there is no interpreter /no/python" in capsys.readouterr().err
    assert cli.main(["doctor", "--python", script(tmp_path, "echo broken >&2\nexit 3")]) == 2
    assert "failed (status 3): broken" in capsys.readouterr().err
    assert cli.main(["doctor", "--python", script(tmp_path, "echo hello")]) == 2
    assert "failed (status 0): no output" in capsys.readouterr().err


def test_the_interpreter_is_the_one_of_launch_sh(
    interpreter: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON", interpreter)
    cli.main(["doctor"])
    assert capsys.readouterr().out.startswith(f"{interpreter} for {stacks.DEFAULT} (")


def test_nothing_of_the_stack_is_imported_here() -> None:
    code = (
        "import sys; from xpc.compiler import cli\n"
        "try: cli.main(['doctor', '--python', '/no/python'])\n"
        "finally: print(sorted({'torch', 'transformers', 'xpc.runtime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    checked = "import sys; from xpc.compiler import cli; print('xpc.compiler.commands.doctor' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True).stdout == "False\n"


def test_full_or_read_only_disk_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from xpc.runtime import doctor as requested

    monkeypatch.setenv("HF_HOME", os.path.join(tmp_path, "not", "there"))
    monkeypatch.chdir(tmp_path)  # a folder that this user may write
    entries = {says.split(":")[0]: (state, says) for _, state, says in requested.folders()}
    assert str(tmp_path) in entries["HF_HOME"][1]
    monkeypatch.setattr(requested.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 3 * 2**30}))
    entries = {says.split(":")[0]: (state, says) for _, state, says in requested.folders()}
    assert entries["here"][0] == "note"
    assert "3.0 GiB free" in entries["here"][1]
    monkeypatch.setattr(requested.os, "access", lambda *_: False)
    assert {state for _, state, _ in requested.folders()} == {"wrong"}


def test_the_folder_of_the_hub_follows_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from xpc.runtime.doctor import folders

    def home() -> str:
        return next(says for _, _, says in folders() if says.startswith("HF_HOME")).rpartition(" in ")[2]

    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.path.join(tmp_path, "cache"))
    assert home() == os.path.join(tmp_path, "cache", "huggingface")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert home() == os.path.expanduser("~/.cache/huggingface")


def test_a_login_is_seen_and_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from xpc.runtime import doctor as requested

    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with open(os.path.join(tmp_path, "token"), "w", encoding="utf-8") as handle:
        handle.write(SECRET)
    output = [says for what, _, says in requested.variables() if what == "tokens"]
    assert output == ["HF_TOKEN is not set, but `hf auth login` has stored a token", "WANDB_API_KEY is not set"]


def test_other_versions_are_wrong_and_a_local_part_is_not() -> None:
    from importlib.metadata import version

    from xpc.runtime import doctor as requested

    real = version("attrs")
    entries = list(requested.packages({"attrs": real + "+cpu", "pytest": "0.1"}, {"no-such-package": "3", "lark": "0"}))
    assert ("packages", "fine", "1 with the version that the target pins: attrs") in entries
    assert ("packages", "note", "not installed, and only some runs need them: no-such-package") in entries
    assert [says.split()[0] for _, state, says in entries if state == "wrong"] == ["pytest", "lark"]


def test_the_network_is_left_alone(monkeypatch: pytest.MonkeyPatch, interpreter: str) -> None:
    from xpc.runtime import doctor as requested

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert requested.python()[1] == "fine"
    assert list(requested.packages({}, {})) == []
    assert list(requested.folders())
    assert list(requested.variables())


def test_the_exit_status_says_whether_something_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [{"what": "python", "state": state, "says": "3.11"} for state in ("fine", "note", "wrong", "wrong")]
    for count, status, last in ((2, 0, "ready"), (3, 1, "1 thing is wrong"), (4, 1, "2 things are wrong")):
        monkeypatch.setattr(doctor, "ask", lambda python, stack, count=count: entries[:count])
        assert cli.main(["doctor"]) == status
        assert capsys.readouterr().out.splitlines()[-1] == last
        assert cli.main(["doctor", "--format", "json"]) == status
        assert json.loads(capsys.readouterr().out)["wrong"] == count - 2


@pytest.mark.slow
def test_this_environment_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    stack = stack_of(stacks.DEFAULT)
    try:
        entries = doctor.ask(sys.executable, stack)
    except UsageError as error:
        pytest.fail(str(error))
    assert [one for one in entries if one["state"] == "wrong"] == []
    assert next(one["says"] for one in entries if one["what"] == "torch").startswith(stack.pins["torch"])


def test_a_lock_that_a_killed_compilation_left_is_reported(
    interpreter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    for name, age in (("cpu_adam", 3 * 3600), ("fused_adam", 60)):
        lock = tmp_path / "extensions" / "py311_cpu" / name / "lock"
        lock.parent.mkdir(parents=True)
        lock.touch()
        os.utime(lock, (time.time() - age,) * 2)
    assert cli.main(["doctor", "--python", interpreter]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert (
        f"runs wait for {tmp_path}/extensions/py311_cpu/cpu_adam/lock, the lock of a compilation that began" in output
    )
    assert "fused_adam/lock" not in output
