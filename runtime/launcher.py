"""Run the launcher that launch.sh names (``accelerate.commands.launch`` or ``torch.distributed.run``), unchanged.

This module adds four things. It runs the preflight. After a failure it prints one line instead of the launcher's
traceback. It sends stop requests to the processes of the run, because torch's agent would kill them 30 seconds after a
request. When the launcher ends for any reason, all processes end. The first Ctrl-C is a stop request, and so is a
closed terminal; the second Ctrl-C ends the run at once.
"""

import contextlib
import logging
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .core.feature import Bundle

LAUNCHERS = ("accelerate.commands.launch", "torch.distributed.run")
ENDINGS = ("failed (exitcode", "closing signal")
RETRIES, ATTEMPT = "XPC_RETRIES", "XPC_ATTEMPT"
"""Environment variables: the number of restarts left for temporary failures, and the attempt, such as "1 of 4"."""
_command, _environment = [sys.executable, *sys.argv], dict(os.environ)
"""The command and the environment variables with which this launcher was started."""


class State:
    """The state of this launcher, which its signal handlers read and change."""

    stop_requested = False
    interrupted = False
    """Whether the user has pressed Ctrl-C."""
    output_dir: str | None = None
    """The run's output folder; None until the bundle is read."""
    started: ClassVar[list[bool]] = []
    """Not empty after torchrun's agent has started the run's processes. From then on, the agent decides when this
    launcher ends, because the nodes wait for each other at the end."""
    process: Any = None
    """The class psutil.Process. None until psutil is imported: a stop request may arrive before that."""


def main(folder: str, words: Sequence[str]) -> int:
    """The program; ``words`` are the launcher's module and its arguments. Returns the exit status."""
    if not words or words[0] not in LAUNCHERS:
        print(f"error: the first argument must be {' or '.join(LAUNCHERS)}", file=sys.stderr)
        return 2
    from .core import arguments, bundle, preflight, progress, signals
    from .core.errors import RunError, stop
    from .core.output_folder import Finished, finished
    from .enabled import FEATURES

    for number in signals.STOP_SIGNALS:
        signal.signal(number, _forward_signal)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # under nohup, SIGHUP must stay ignored
        signal.signal(signal.SIGHUP, lambda *_: _forward_signal(signal.SIGTERM, None))
    os.environ[signals.LAUNCHER] = str(os.getpid())
    checked = os.environ.get(preflight.DONE)
    if os.environ.get("NODE_RANK", "0") == "0":
        # once a training process has started, it prints progress lines itself
        progress.watch(lambda: not (State.started or (State.process and State.process().children())))
    progress.now("checking this machine")
    try:
        read = bundle.read(folder, FEATURES)
        State.output_dir = read.output_dir
        arguments.prepare_environment(read)
        if not checked and (found := preflight.without_libraries(read)):
            preflight.check(read, 0, 0, found)  # raises one RunError with all findings
    except Finished as done:
        return finished(read, done)
    except RunError as error:
        return stop(error)
    progress.now("starting the processes")
    from psutil import Process  # type: ignore[import-untyped, unused-ignore]  # a requirement of accelerate

    State.process = Process
    starters = [start for feature in read.features if (start := feature.process_starter(read, words[-1]))]
    if read.run["distributed_type"] == "NO":
        return _launched(starters[0], read)
    from torch.distributed.elastic.multiprocessing import api

    if not checked and (read.run["nodes"] > 1 or (not read.on_cpu and read.run["processes_per_node"] > 1)):
        status = _preflight(folder)
        if status != 0:
            return status
    # torch's agent handles only SIGQUIT; `_forward_signal` and `_interrupt` handle the other signals
    os.environ["PET_SIGNALS_TO_HANDLE"] = "SIGQUIT"
    logging.getLogger(api.__name__).addFilter(lambda one: not any(words in one.getMessage() for words in ENDINGS))
    from .library_internals import torch_distributed

    torch_distributed.adapt_agent(signals.END_SIGNAL, _exit_if_stopped, lambda: State.started.append(True))
    for feature in read.features:
        feature.before_launch(read, os.environ)
    sys.argv = list(words)
    return _launched(lambda: runpy.run_module(words[0], run_name="__main__", alter_sys=True), read)


def _preflight(folder: str) -> int:
    """Run the rest of the preflight in a fork, so that this process gets no CUDA context."""
    from .core import preflight, run, signals

    child = os.fork()
    if child == 0:
        for number in (signal.SIGINT, *signals.STOP_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        signals.end_with_launcher()
        status = run.main(folder, ["--preflight"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _exit_if_stopped()
    os.environ[preflight.DONE] = "passed"
    return status if status >= 0 else _ended("the preflight", status, [])


def _launched(launch: Callable[[], object], read: "Bundle") -> int:
    """Run the launcher and return its exit status."""
    from .core.signals import BROKEN

    _exit_if_stopped()
    try:
        launch()
    except Exception as error:
        for who, status in [end for feature in read.features for end in feature.launch_failed(read, error)]:
            return _ended(who, status, [status]) if who else status
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        if isinstance(error, ChildFailedError):
            # of several failed processes, report the one that failed first: all others have the exit status BROKEN
            rank, failure = min(error.failures.items(), key=lambda one: one[1].exitcode == BROKEN)
            codes = [one.exitcode for one in error.failures.values()]
            return _ended(f"process {rank}", failure.exitcode, codes if State.stop_requested else [failure.exitcode])
        if isinstance(error, SignalException):
            return _ended("the launcher", -int(error.sigval), [])
        raise
    return 0


def _forward_signal(number: int, _: object) -> None:
    """Pass a stop request on to the processes of the run. If there are none yet, exit immediately."""
    State.stop_requested = True
    children = State.process().children() if State.process else []
    if not children and not State.started:
        _exit_if_stopped()
    _signal(children, number)


def _exit_if_stopped() -> None:
    """Exit if there was a stop request. It may have come while a library was running another program."""
    if State.stop_requested:
        _report(_stopped())
        os._exit(75)


def _interrupt(*_: object) -> None:
    """Handle Ctrl-C: the first is a stop request, the second kills every process of the run."""
    if State.interrupted:
        _signal(State.process().children(recursive=True) if State.process else [], signal.SIGKILL)
        _report(f"quit at once; newest checkpoint: {_newest() or 'none, nothing is saved'}")
        os._exit(130)
    State.interrupted = True
    if State.process and State.process().children():
        _report("stopping; a run that has begun to train saves first. Press Ctrl-C again to quit at once")
    _forward_signal(signal.SIGTERM, None)


def _signal(processes: Iterable[Any], number: int) -> None:
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, number)


def _newest() -> str | None:
    """The name of the newest checkpoint."""
    if State.output_dir is None:
        return None
    from .core.checkpoints import steps

    found = steps(State.output_dir)
    return os.path.basename(found[0][1]) if found else None


def _stopped() -> str:
    """The message after a stop request."""
    newest = _newest()
    then = f"the same command {f'resumes from {newest}' if newest else 'starts from the beginning'} (status 75)"
    return f"stopped as asked: {'' if newest else 'there is no checkpoint, so '}{then}"


def _report(message: str) -> None:
    """Write one line. A closed terminal raises no error here, so that the run can save."""
    begin = "\r\x1b[K" if os.isatty(2) else ""  # erases the progress line of the last step
    with contextlib.suppress(OSError):
        os.write(2, f"{begin}launch.sh: {message}\n".encode())


def _ended(who: str, status: int, codes: Iterable[int]) -> int:
    """Report how ``who`` (a process or the run) ended, or start the run again. Returns the exit status. If one of the
    exit ``codes`` is that of a stop request, the run counts as stopped."""
    from .core import signals

    # if Ctrl-C kills a process that has no handler, its exit status is that of SIGINT
    stops = (*signals.STOP_SIGNALS, signal.SIGINT) if State.interrupted else signals.STOP_SIGNALS
    if any(code == signals.REQUEUE or -code in stops for code in codes):
        _report(_stopped())
        return signals.REQUEUE
    message = f"{who} ended with status {status}; its message is above"
    if status < 0:
        hint = "; the machine may have run out of memory" if -status == signal.SIGKILL else ""
        message, status = f"{who} was ended by {signal.Signals(-status).name}{hint}", 128 - status
    left = int(os.environ.get(RETRIES, "0"))
    number, of, last = os.environ.get(ATTEMPT, f"1 of {1 + left}").partition(" of ")
    may_pass = status == signals.BROKEN or status > 128 + signal.SIGQUIT  # SIGHUP, SIGINT and SIGQUIT stop a run
    again = may_pass and left > 0 and not State.stop_requested
    message += f" (attempt {number} of {last})" if may_pass and last != "1" else ""
    message += "; started again, from the newest complete checkpoint if there is one" if again else ""
    _report(message)
    if again:
        counted = {RETRIES: str(left - 1), ATTEMPT: f"{int(number) + 1}{of}{last}"}
        os.execve(sys.executable, _command, {**_environment, **counted})
    return status


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)  # the imports below take seconds, so signals are handled before them
    _folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = os.path.dirname(_folder)
    __package__ = os.path.basename(_folder)
    _kept, sys.pycache_prefix = sys.pycache_prefix, os.devnull  # read no bytecode of this folder (see __init__.py)
    __import__(__package__)
    sys.pycache_prefix = _kept
    # The launcher must not import modules from the bundle.
    del sys.path[0]
    sys.exit(main(os.path.dirname(_folder), sys.argv[1:]))
