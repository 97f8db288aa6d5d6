"""The client of fork_server.py. It replaces a Python interpreter, for example as PYTHON of a launch.sh.

`forks.Forks` writes it next to the server's socket, with the stack's interpreter in the first line. It runs a program
as a fork of the warm interpreter, with this process's folder, environment, open streams and namespaces. If the program
starts child processes by sys.executable, they run in the same way. Signals are passed on, and this process ends with
the fork's exit status. A fork that outlives this process is killed. Standard library only.
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
"""The Linux namespaces of this process that the fork joins, because a test may run this client in separate
namespaces.
"""


def main(words: Sequence[str]) -> int:
    """Run `[-u] PROGRAM ARGUMENTS` in a fork. Any other command line goes to the real interpreter. Returns the exit
    status.
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
        asked = {"words": words[words.index(program[0]) :], "cwd": os.getcwd(), "environ": dict(os.environ),
                 "python": here, "unbuffered": words[0] == "-u"}  # fmt: skip
        socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2, *spaces])
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
    """Ask the kernel to kill this process when its parent ends, as a bundle's program does (runtime/core/signals.py).
    The fork cannot do that, because its parent is the server.
    """
    import ctypes

    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
