"""The client of fork_server.py. It is used instead of a Python interpreter, for example as PYTHON of a launch.sh.

`forks.Forks` writes a copy of this file next to the server's socket, with the path of the stack's interpreter in the
first line. The copy runs a program as a fork of the warm interpreter, with its own folder, environment, open streams
and namespaces. Child processes that the program starts by sys.executable run in the same way. Signals are passed on to
the fork, and this process ends with the exit status of the fork. If this process ends first, the fork is killed. The
file imports only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence

PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
SPACES = ("pid", "mnt", "net", "uts")
"""The Linux namespaces that the fork gets from this process. They matter if a test runs this process in separate
namespaces.
"""


def main(words: Sequence[str]) -> int:
    """Run `[-u] PROGRAM ARGUMENTS` in a fork. A command line of any other form is passed to the real interpreter.
    Returns the exit status.
    """
    program = [word for word in words[:2] if word != "-u"][:1]
    if not program or not program[0].endswith(".py"):
        os.execv(sys.executable, [sys.executable, *words])
    here = os.path.abspath(sys.argv[0])
    if os.environ.get("XPC_LAUNCHER") == str(os.getppid()):
        end_with_launcher()
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(os.path.join(os.path.dirname(here), "socket"))
        spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in SPACES]
        requested = {"words": words[words.index(program[0]) :], "cwd": os.getcwd(), "environ": dict(os.environ),
                 "python": here, "unbuffered": words[0] == "-u"}  # fmt: skip
        socket.send_fds(server, [json.dumps(requested).encode()], [0, 1, 2, *spaces])
        for number in PASSED:
            signal.signal(number, lambda number, _: passed_on(server, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
        status = int(server.recv(16) or 70)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def passed_on(server: socket.socket, number: int) -> None:
    """Send a signal to the fork. If the fork has ended, do nothing, because its exit status is about to arrive."""
    with contextlib.suppress(OSError):
        server.send(b"%d" % number)


def end_with_launcher() -> None:
    """Ask the kernel to kill this process when its parent ends. A bundle's program makes the same request
    (runtime/core/signals.py), but the request has no effect in a fork, whose parent is the server and not the launcher.
    """
    import ctypes

    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # 1 is PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
