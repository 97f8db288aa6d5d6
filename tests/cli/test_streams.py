"""A file or stream that cannot be read or written leads to a message. No command hangs on it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread

import pytest
from case_support import spec
from compile_support import put, xpc

pytestmark = pytest.mark.slow

YAML = "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/x\n"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    root = put(tmp_path, {"a.xp": spec(), "a.yaml": YAML})
    os.mkfifo(tmp_path / "pipe")
    return root


def shell(line: str, folder: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell code. In this line, the command `xpc` is the compiler under test."""
    program = f'xpc() {{ "{sys.executable}" -m xpc.compiler.cli "$@"; }}; {line}'
    environment = {**os.environ, "XPC_CACHE": "off"}
    return subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


@contextmanager
def kernel_log_read() -> Iterator[None]:
    """Until the test ends, a thread reads every message of the kernel's log as soon as it appears. So /proc/kmsg is
    always empty, and a command that reads it blocks.
    """
    if not os.access("/proc/kmsg", os.R_OK):
        yield
        return
    log = os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    ended = Event()

    def wait_and_read(seconds: float) -> bool:
        there = bool(select.select([log], [], [], seconds)[0])
        try:
            return there and bool(os.read(log, 1 << 20))
        except BlockingIOError:
            # another process has already read this message of the kernel's log
            return False

    def read_on() -> None:
        while not ended.is_set():
            wait_and_read(0.05)

    while wait_and_read(0):
        pass
    reader = Thread(target=read_on)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()
        os.close(log)


NAMED = {
    "check": ("check", "{}"),
    "compile": ("compile", "{}"),
    "import": ("import", "{}"),
    "import, accelerate": ("import", "a.yaml", "--accelerate", "{}"),
    "import, deepspeed": ("import", "a.yaml", "--deepspeed", "{}"),
    "explain": ("explain", "{}:gbs"),
}


@pytest.mark.parametrize("way", NAMED)
@pytest.mark.parametrize("path", ["pipe", "/dev/zero", "/dev/tty", "/proc/kmsg"])
def test_what_never_comes_or_never_ends_is_refused(way: str, path: str, folder: str) -> None:
    if not os.path.exists(path) and path != "pipe":
        pytest.skip(f"no {path} here")
    with kernel_log_read() if path == "/proc/kmsg" else nullcontext():
        done = xpc(*(part.format(path) for part in NAMED[way]), cwd=folder)
    assert done.returncode == 2
    reported = done.stderr.decode()
    assert f"xpc: {path} cannot be read: " in reported
    assert "it is not a regular file" in reported or path == "/proc/kmsg"


def test_a_pipe_of_the_shell_is_read(folder: str) -> None:
    done = shell("xpc check <(cat a.xp) && cat a.xp | xpc check /dev/stdin && cat a.xp | xpc check -", folder)
    assert done.returncode == 0, done.stderr
    assert shell("xpc import <(cat a.yaml) >/dev/null", folder).returncode == 0


@pytest.mark.parametrize("command", ["check -", "compile - -o b", "import -"])
def test_standard_input_that_is_closed(command: str, folder: str) -> None:
    done = shell(f"xpc {command} <&-", folder)
    assert (done.returncode, done.stderr) == (2, "xpc: standard input cannot be read: it is closed\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["check a.xp", "check a.xp --format json", "compile a.xp -o b", "import a.yaml",
                                     "explain XP301", "explain a.xp:gbs", "--help", "import --help"])  # fmt: skip
def test_full_disk_under_standard_output_is_reported(command: str, folder: str) -> None:
    done = shell(f"xpc {command} >/dev/full", folder)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[-1] == "xpc: standard output cannot be written: No space left on device"
    assert "broke the compiler" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(("command", "status"), [("check a.xp", 0), ("check nope.xp", 2), ("import a.yaml", 0)])
@pytest.mark.parametrize("to", ["&-", "/dev/full"])
def test_standard_error_that_nobody_reads(command: str, status: int, to: str, folder: str) -> None:
    """If standard error is closed or full, the exit status is the same as otherwise, and the error message does not
    appear on standard output.
    """
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    done = shell(f"xpc {command} 2>{to}", folder)
    assert done.returncode == status
    assert "cannot be read" not in done.stdout


def test_a_working_directory_that_is_missing(folder: str) -> None:
    for command in (f"check {folder}/a.xp", f"compile {folder}/a.xp", f"compile {folder}/a.xp -o b", "check -"):
        os.mkdir(os.path.join(folder, "gone"))
        done = shell(f"cd gone && rmdir ../gone && cat ../a.xp {folder}/a.xp | xpc {command}", folder)
        assert "broke the compiler" not in done.stderr, command
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 2)
