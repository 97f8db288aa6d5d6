"""Run a program in a fork as if in a newly started process. The arguments are the program and the program's own
arguments.

A fork inherits state that a new process would not have. This program drops that state: signal handlers, open files, the
bundle's modules, and exit handlers.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys


def give_up() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    os.closerange(3, 4096)
    for name in [one for one in sys.modules if one.partition(".")[0] == "trainer"]:
        del sys.modules[name]
    atexit._clear()


if __name__ == "__main__":
    give_up()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
