"""Runs the launcher that launch.sh names (``accelerate.commands.launch`` or ``torch.distributed.run``) as it stands.

Three things are added. A run that failed ends in one line, where both launchers print a traceback of their own and a
table below what the failed process said. The wish to stop (``signals``) is passed on to the processes, which save and
end by themselves: torch's agent would kill them after 30 seconds, and accelerate's launcher of one process would die
alone. And the processes end with their launcher, however that ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import runpy
import signal
import sys
from collections.abc import Iterable, Sequence

import psutil  # type: ignore[import-untyped, unused-ignore]  # a requirement of accelerate

LAUNCHERS = ("accelerate.commands.launch", "torch.distributed.run")
ENDINGS = ("failed (exitcode", "closing signal")
_asked = False
"""Whether this launcher was asked to stop."""


def main(folder: str, words: Sequence[str]) -> int:
    """``words`` are the launcher's module and its arguments. Gives the exit status."""
    if not words or words[0] not in LAUNCHERS:
        print(f"error: the first word names the launcher: {' or '.join(LAUNCHERS)}", file=sys.stderr)
        return 2
    from .core import arguments, bundle, signals
    from .core.errors import RunError
    from .library_internals import torch_distributed

    for number in signals.ASKING:
        signal.signal(number, _pass_on)
    try:
        read = bundle.read(folder)
        arguments.prepare_environment(read)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    os.environ[signals.LAUNCHER] = str(os.getpid())
    os.environ["PET_SIGNALS_TO_HANDLE"] = "SIGINT,SIGHUP,SIGQUIT"  # torchrun's agent leaves SIGTERM to `_pass_on`
    from subprocess import CalledProcessError

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    agent = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    agent.addFilter(lambda record: not any(words in record.getMessage() for words in ENDINGS))
    torch_distributed.end_outlived_processes_by(signals.DISMISSED)
    if read.uses("torch_exit_barrier") and "NODE_RANK" in os.environ:
        from .library_internals.torch_exit_barrier import last_to_leave

        last_to_leave(os.environ)
    sys.argv = list(words)
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        codes = [one.exitcode for one in error.failures.values()]
        return _ended(f"process {rank}", failure.exitcode, codes if _asked else [failure.exitcode])
    except CalledProcessError as error:
        return _ended("the process", error.returncode, [error.returncode])
    except SignalException as error:
        return _ended("the launcher", -int(error.sigval), [])
    except KeyboardInterrupt:
        return _ended("the launcher", -signal.SIGINT, [])
    except Exception as error:
        told = None
        if read.uses("node_rendezvous"):
            from .features.node_rendezvous import missed

            told = missed(error)
        if told is None:
            raise
        print(f"error: {told}", file=sys.stderr, flush=True)
        return 1
    return 0


def _pass_on(number: int, _: object) -> None:
    """Asks the processes of the run to stop. Before there are any, there is nothing to wait for."""
    global _asked
    _asked = True
    children = psutil.Process().children()
    if not children:
        os.write(2, b"launch.sh: stopped as asked, before training began\n")
        os._exit(75)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.send_signal(number)


def _ended(who: str, status: int, codes: Iterable[int]) -> int:
    """Tells of the end. ``codes`` are those of the processes that may tell of the wish to stop.

    A process that had not yet begun to hear it has died of the signal itself.
    """
    from .core import signals

    if any(code == signals.REQUEUE or -code in signals.ASKING for code in codes):
        told = "stopped as asked: the same command goes on, from the newest complete checkpoint where there is one"
        print(f"launch.sh: {told} (status {signals.REQUEUE})", file=sys.stderr, flush=True)
        return signals.REQUEUE
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
