"""Stop requests, such as the signal that a scheduler sends before it ends a job. Standard library only.

SIGTERM and SIGUSR1 have the same effect. Before the first step there is nothing to save, so the process exits at once.
A later request is recorded; all processes agree on the step to stop at (``fault_tolerance``), save, and exit.

launcher.py handles Ctrl-C (SIGINT), and sends the processes SIGTERM instead. The processes themselves ignore SIGINT,
because a terminal or srun sends it to every process of a group, and a data loader's worker would end before the
checkpoint is written.
"""

import contextlib
import os
import signal
import sys
import threading

from . import errors

REQUEUE = 75
"""The exit status of a run that was asked to stop and can be resumed: EX_TEMPFAIL of sysexits.h."""
BROKEN = 76
"""The exit status after a failure that may be temporary, such as a lost process, device or file system."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
END_SIGNAL = signal.SIGUSR2
"""After a failure, launcher.py ends the remaining processes with this signal. It does not count as a stop request."""
LAUNCHER = "XPC_LAUNCHER"
"""The environment variable with the process id of launcher.py."""


class Stopped(Exception):
    """Raised to end the run after a stop request. The state of the run is saved."""


class StopRequest:
    """A stop request: its signal, and whether training has begun; before that, a request ends the process at once."""

    name: str | None = None
    training = False
    main_forks = False
    """Whether the main thread started the newest child process."""


def listen() -> None:
    """Handle stop requests from now on, also during a collective operation, in which Python runs no signal handler.

    The interpreter writes each signal's number into a pipe, and a thread reads the pipe. Forked processes do not handle
    requests.
    """
    end_with_launcher()
    out, into = os.pipe()
    os.set_blocking(into, False)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    if LAUNCHER in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    threading.Thread(target=_read, args=(out,), name="signals", daemon=True).start()
    # A new child inherits the handlers and the pipe: signals are blocked until the child has reset its handlers.
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS),
        after_in_child=_reset_handlers,
    )


def end_with_launcher() -> None:
    """Make the kernel kill this process when its launcher dies; else the output folder and port would stay in use."""
    launcher = os.environ.get(LAUNCHER)
    if launcher is None or not sys.platform.startswith("linux"):
        return
    _end_with_parent()
    if os.getppid() != int(launcher):
        try:
            os.kill(int(launcher), 0)
        except ProcessLookupError:  # the launcher died before the call above
            os._exit(1)


def _end_with_parent() -> None:
    """Make the kernel kill this process when the thread that started it ends (Linux only)."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # 1 is PR_SET_PDEATHSIG


def ignore_end_signal() -> None:
    """Ignore signals that end a process. Called after all processes have agreed to stop: when one of them exits, the
    launcher sends the others a signal."""
    signal.signal(END_SIGNAL, signal.SIG_IGN)


def _read(pipe: int) -> None:
    while True:
        for number in os.read(pipe, 64):
            if number in STOP_SIGNALS:
                _record(signal.Signals(number).name)


def _record(name: str) -> None:
    first, StopRequest.name = StopRequest.name is None, StopRequest.name or name
    errors.stopping = True
    if StopRequest.training:
        return
    if first and errors.rank() == 0:
        with contextlib.suppress(OSError):
            os.write(1, b"[run] asked to stop before the first step: there is nothing to save\n")
    os._exit(REQUEUE)


def _before_fork() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    StopRequest.main_forks = threading.current_thread() is threading.main_thread()


def _reset_handlers() -> None:
    if StopRequest.main_forks:  # otherwise, workers of `datasets.map` would wait forever for a parent that has ended
        _end_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
