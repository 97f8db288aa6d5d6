"""A warm interpreter: a Python process that imports the training libraries once, and then runs each program in a fork
of itself.

The process runs worker/fork_server.py.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker")
HUNG = 1800
"""If a process does not end within this many seconds, it counts as hung."""


class Forks:
    """A warm interpreter: a Python process that has already imported the libraries of one stack. `run` trains a bundle;
    `close` ends the interpreter.

    `python` is the path of a program (worker/warm_python.py) that can be used in place of a Python interpreter, for
    example as PYTHON of launch.sh. It runs each program as a fork of the warm interpreter. Error messages are written
    to the file `log` or, if `log` is None, to this process's standard error.
    """

    def __init__(self, python: str, environ: dict[str, str], log: str | None = None) -> None:
        self.folder = tempfile.mkdtemp(prefix="xpc-warm-")
        self.python = os.path.join(self.folder, "python")
        with open(os.path.join(WORKER, "warm_python.py"), encoding="utf-8") as client:
            program = f"#!{python} -IS\n{client.read()}"
        with open(self.python, "w", encoding="utf-8") as out:
            out.write(program)
        os.chmod(self.python, 0o755)
        with ExitStack() as held:
            errors = None if log is None else held.enter_context(open(log, "wb"))
            listener = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(os.path.join(self.folder, "socket"))
            listener.listen(64)
            self.server = subprocess.Popen(
                [python, os.path.join(WORKER, "fork_server.py"), str(listener.fileno())], env=environ, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, pass_fds=[listener.fileno()],
            )  # fmt: skip

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, bundle: str, cwd: str, *words: str, world: int = 1, kill_at: str | None = None, seconds: float = HUNG,
        program: str | None = None, **environ: str,
    ) -> dict[str, Any]:  # fmt: skip
        """Train the bundle in `world` processes, with `cwd` as their working folder. `words` are the arguments of the
        program. As soon as a file `kill_at` exists, all processes are killed.

        If `program` is given, this file is run instead of the bundle's trainer. Returns a dict with `status` (a list
        with the exit status of each process), `out` and `err` (the output of all processes), `killed`, and `late`
        (whether the time limit `seconds` was exceeded).
        """
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        output = os.path.join(os.path.dirname(bundle), "said")
        job = {"bundle": bundle, "cwd": cwd, "words": words, "world": world, "kill_at": kill_at, "seconds": seconds,
               "environ": environ, "program": program, "said": output}  # fmt: skip
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        answer = self.server.stdout.readline()
        assert answer, "the warm interpreter has died"
        return dict(json.loads(answer))

    def close(self) -> None:
        """End the server and remove its folder."""
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(600)
        shutil.rmtree(self.folder)
