"""Functions with which proofs measure the environment of a process that launch.sh starts after it has read
environment.sh.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


def after(run: Any, program: str, **before: str) -> str:
    """Let bash read environment.sh and then start a Python program. Return what the program prints."""
    script = 'if [ -e "$0/environment.sh" ]; then . "$0/environment.sh"; fi; exec "$1" -c "$2"'
    words = ["bash", "-euc", script, run.folder, sys.executable, program]
    environ = {"PATH": os.environ["PATH"], "HOME": run.folder, **before}
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def rendezvous(run: Any) -> dict[str, Any]:
    """The launch sets MASTER_ADDR, the address at which the processes meet, to 10.0.0.1. Return its value after bash
    has read environment.sh.
    """
    met = "import os; print(os.environ['MASTER_ADDR'])"
    return {"address": after(run, met, MASTER_ADDR="10.0.0.1")}


def token(run: Any) -> dict[str, Any]:
    """Return a pair: the token that the hub's library reads after environment.sh, and whether other users can read
    environment.sh.
    """
    got = after(run, "from huggingface_hub import get_token; print(get_token() or '')")
    path = os.path.join(run.folder, "environment.sh")
    return {"token": got, "others": bool(os.stat(path).st_mode & 0o004) if got else False}
