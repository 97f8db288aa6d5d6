"""Somebody may put bytecode files (.pyc) into a bundle. No program of the bundle loads them or writes any."""

from __future__ import annotations

import importlib.util
import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest
from case_support import ROW, spec
from compile_support import compiled, put, xpc

from xpc.compiler.files.bundle import write

pytestmark = pytest.mark.slow

PLANTED = "open({mark!r}, 'a').write({name!r} + '\\n')"
PROGRAMS = {
    "stage": ["--help"],
    "launcher": ["accelerate.commands.launch"],
    "main": ["--preflight"],
    "evaluate": [],
    "doctor": [],
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    put(tmp_path / "in", {"rows.jsonl": ROW * 40})
    text = spec("eval(tasks=[gsm8k])", train='qwen2.5-3b on "rows.jsonl" for 1 epochs')
    write(compiled(text, str(tmp_path / "in")), str(tmp_path / "b"))
    return tmp_path / "b"


def plant(bundle: Path, mark: Path) -> list[Path]:
    """Write hostile bytecode for each module of the trainer, in a form that Python loads without comparing it with the
    source.
    """
    out = []
    for source in [*bundle.rglob("*.py")]:
        name = source.relative_to(bundle).as_posix()
        code = compile(PLANTED.format(mark=str(mark), name=name), str(source), "exec")
        path = Path(importlib.util.cache_from_source(str(source)))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little") + bytes(8) + marshal.dumps(code))
        out.append(path)
    return out


def started(bundle: Path, program: str, words: list[str]) -> bytes:
    """Start a program of a bundle; return its output. trainer_args.json is missing, so the program imports its own
    modules and then stops, before it imports any library.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, str(bundle / "trainer" / f"{program}.py"), *words], cwd=bundle.parent, env=environment,
        capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_planted_bytecode_is_not_run(program: str, bundle: Path, tmp_path: Path) -> None:
    if not (bundle / "trainer" / f"{program}.py").exists():
        pytest.skip("this bundle has no such program")
    os.rename(bundle / "trainer_args.json", tmp_path / "kept")
    mark = tmp_path / "mark"
    plant(bundle, mark)
    printed = started(bundle, program, PROGRAMS[program])
    assert not mark.exists(), (mark.read_text(), printed)
    assert b"usage" in printed or b"trainer_args.json" in printed, printed


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_bytecode_is_left(program: str, bundle: Path, tmp_path: Path) -> None:
    if not (bundle / "trainer" / f"{program}.py").exists():
        pytest.skip("this bundle has no such program")
    os.rename(bundle / "trainer_args.json", tmp_path / "kept")
    started(bundle, program, PROGRAMS[program])
    assert not [*bundle.rglob("__pycache__")]


def test_verify_lists_bytecode_as_foreign(bundle: Path, tmp_path: Path) -> None:
    plant(bundle, tmp_path / "mark")
    done = xpc("verify", str(bundle))
    assert (done.returncode, b"trainer/core/__pycache__ was not written by the compiler" in done.stdout) == (0, True), (
        done
    )
    done = xpc("verify", str(bundle), "--strict")
    assert (done.returncode, b"trainer/core/__pycache__ was not written by the compiler" in done.stdout) == (1, True), (
        done
    )


@pytest.mark.parametrize("name", ["trainer/core/run.pyc", "x.pyc", "trainer/__pycache__/x.py", "__pycache__/a/x.pyc"])
def test_verify_fails_for_bytecode_elsewhere(name: str, bundle: Path) -> None:
    put(bundle, {name: b"x"})
    done = xpc("verify", str(bundle))
    assert (done.returncode, name.encode() in done.stdout) == (1, True), done
