"""Run a program in a pseudo-terminal, where Ctrl-C sends SIGINT to all processes of the foreground group."""

from __future__ import annotations

import os
import pty
import select
import signal
import threading
import time
from collections.abc import Callable

from patience import HUNG
from stacks import environment

CTRL_C = b"\x03"


class Terminal:
    """A program in its own pseudo-terminal; ``output`` is the text that it has printed so far."""

    def __init__(self, command: list[str], cwd: str, **environ: str) -> None:
        os.makedirs(cwd, exist_ok=True)
        self.cwd, self.out, self.output = cwd, os.path.join(cwd, "out"), ""
        pid, self.terminal = pty.fork()
        if pid == 0:
            # If pytest runs as a background job, it ignores both signals, and the program would inherit this.
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.chdir(cwd)
            os.execvpe(command[0], command, environment(**environ))
        self.pid = pid
        self.status: int | None = None
        self.closing = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while not self.closing:
            if not select.select([self.terminal], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.terminal, 4096)
            except OSError:  # no process has the terminal open any more
                return
            if not data:
                return
            self.output += data.decode(errors="replace").replace("\r\n", "\n")

    def until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + HUNG
        while not true():
            assert time.monotonic() < end, self.output
            assert self.poll() is None, self.output
            time.sleep(0.02)

    def type(self, data: bytes) -> None:
        os.write(self.terminal, data)

    def close(self) -> None:
        """Close the terminal. The kernel then sends SIGHUP to the program, and the program's later prints fail."""
        self.closing = True
        self.reader.join()
        os.close(self.terminal)

    def poll(self) -> int | None:
        if self.status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if done else None
        return self.status

    def wait(self) -> int:
        end = time.monotonic() + HUNG
        while self.poll() is None:
            assert time.monotonic() < end, f"the command does not end: {self.output}"
            time.sleep(0.02)
        self.reader.join(5)
        assert "Traceback" not in self.output, self.output
        assert self.status is not None
        return self.status
