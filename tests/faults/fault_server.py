"""Starts bundles as forks of one warm interpreter and tells their process ids, for tests that do things to them.

One JSON object a line: {"start": job} with fork_server's job gives {"pids"}; {"wait": pids, "seconds"} gives {"status"}
once all have ended, and null for one that had to be killed after that time. As the launcher of a bundle does, it sends
SIGUSR2 to the others when one has failed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

import fork_server


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


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    if "start" in asked:
        job, port = asked["start"], fork_server.free_port()
        return {"pids": [fork_server.child(job, rank, port) for rank in range(job["world"])]}
    return {"status": wait(asked["wait"], asked["seconds"])}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    fork_server.warm()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()
    os._exit(0)
