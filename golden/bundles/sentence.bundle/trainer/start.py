"""Runs the launcher that launch.sh names (``accelerate.commands.launch`` or ``torch.distributed.run``) as it stands.

Its one addition is the end of a run that failed: both launchers print a Python traceback of their own and a table below
what the failed process said. Here that is one line, and the exit status stays. Nothing else of them is touched.
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import sys
from collections.abc import Sequence

LAUNCHERS = ("accelerate.commands.launch", "torch.distributed.run")
ENDINGS = ("failed (exitcode", "closing signal")


def main(folder: str, words: Sequence[str]) -> int:
    """``words`` are the launcher's module and its arguments. Gives the exit status."""
    if not words or words[0] not in LAUNCHERS:
        print(f"error: the first word names the launcher: {' or '.join(LAUNCHERS)}", file=sys.stderr)
        return 2
    from . import bundle, state
    from .errors import RunError

    try:
        state.prepare_environment(bundle.read(folder))
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    from subprocess import CalledProcessError

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # torchrun's agent logs the same end, once for each process.
    agent = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    agent.addFilter(lambda record: not any(words in record.getMessage() for words in ENDINGS))
    sys.argv = list(words)
    signal.signal(signal.SIGTERM, _pass_on)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        return _ended(f"process {rank}", failure.exitcode)
    except CalledProcessError as error:
        return _ended("the process", error.returncode)
    except SignalException as error:
        return _ended("the launcher", -int(error.sigval))
    except KeyboardInterrupt:
        return _ended("the launcher", -signal.SIGINT)
    return 0


def _pass_on(number: int, _: object) -> None:
    """accelerate's launcher of a single process dies of SIGTERM alone, and the run would go on without it.

    torchrun's agent, where there is one, puts its own handler in the place of this one.
    """
    import psutil  # type: ignore[import-untyped, unused-ignore]  # a requirement of accelerate

    for child in psutil.Process().children():
        child.send_signal(number)


def _ended(who: str, status: int) -> int:
    if status >= 0:
        print(f"launch.sh: {who} ended with status {status}; its message stands above", file=sys.stderr, flush=True)
        return status
    name = signal.Signals(-status).name
    hint = "; the machine may have run out of memory" if -status == signal.SIGKILL else ""
    print(f"launch.sh: {who} was ended by {name}{hint}", file=sys.stderr, flush=True)
    return 128 - status


if __name__ == "__main__":
    _folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = os.path.dirname(_folder)
    __package__ = os.path.basename(_folder)
    __import__(__package__)
    del sys.path[0]  # the launcher's own imports see nothing of the bundle
    sys.exit(main(os.path.dirname(_folder), sys.argv[1:]))
