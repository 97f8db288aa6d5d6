"""Start bundles as forks of one warm interpreter, and report their process ids to tests that disturb them.

The program reads requests and prints answers, one JSON object per line. The request {"start": job} is answered by
{"pids"}; the job has the form that fork_server.py reads. The request {"wait": pids, "seconds"} is answered by
{"status"} when all these processes have ended. A process that has not ended after `seconds` is killed, and has the
status null. If a process fails, the program sends SIGUSR2 to all others, as a bundle's launcher does.

A job whose program is start.py is a launcher. The processes that the launcher starts are forks of the launcher.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTS, "support"))
sys.path.append(os.path.join(os.path.dirname(TESTS), "compiler", "preview", "rehearsal", "worker"))

import fork_server  # noqa: E402
from ports import free_port  # noqa: E402

MAIN = os.path.join("trainer", "main.py")


def fork_what_is_launched() -> None:
    """Change subprocess, so that this process starts a bundle's program as a fork of itself instead of in a new
    interpreter. The fork has an output file of its own next to the launcher's.
    """
    execute = subprocess.Popen._execute_child

    def fork(self: Any, args: Any, *rest: Any) -> None:
        words = [os.fspath(one) for one in args]
        mains = [index for index, one in enumerate(words) if one.endswith(MAIN)]
        if words[0] != sys.executable or not mains:
            execute(self, args, *rest)
            return
        environ = dict(rest[5] or os.environ)
        job = {"cwd": os.getcwd(), "said": environ["XPC_SAID"], "world": 1, "environ": environ, "bundle": "",
               "program": os.path.join(HERE, "as_started.py"), "words": words[mains[0]:]}  # fmt: skip
        self.pid = fork_server.child(job, 1 + int(environ.get("LOCAL_RANK", "0")), 0)
        self._child_created = True

    subprocess.Popen._execute_child = fork


def wait(pids: list[int], seconds: float) -> list[int | None]:
    until, status = time.monotonic() + seconds, dict[int, int | None]()
    dismissed = False
    while len(status) < len(pids):
        for pid in pids:
            if pid in status:
                continue
            done, code = os.waitpid(pid, os.WNOHANG)
            if done:
                status[pid] = os.waitstatus_to_exitcode(code)
            elif time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                status[pid] = None
        if any(status.values()) and not dismissed:
            dismissed = True
            for pid in set(pids) - set(status):
                os.kill(pid, signal.SIGUSR2)
        time.sleep(0.005)
    return [status[pid] for pid in pids]


def answer(requested: dict[str, Any]) -> dict[str, Any]:
    if "start" in requested:
        job, port = requested["start"], free_port()
        return {"pids": [fork_server.child(job, rank, port) for rank in range(job["world"])]}
    return {"status": wait(requested["wait"], requested["seconds"])}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    fork_server.warm()
    fork_what_is_launched()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()
    os._exit(0)
