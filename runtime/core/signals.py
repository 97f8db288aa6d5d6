"""The wish that a run stops, as a scheduler sends it before it takes the machine away. Standard library only.

SIGTERM and SIGUSR1 mean the same. Before the first step there is nothing to save, and the process ends at once; from
then on the wish is noted, all processes agree on the step that they stop at (``fault_tolerance``), save, and end.
"""

import contextlib
import os
import signal
import sys
import threading

from .errors import rank

REQUEUE = 75
"""The exit status of a run that was asked to stop and can go on: EX_TEMPFAIL of sysexits.h."""
BROKEN = 76
"""That of a process which failed for what may pass: another process, a device or a file system that was lost."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
END_SIGNAL = signal.SIGUSR2
"""What launcher.py ends the processes with that outlive a failed one: not to be taken for the wish to stop."""
LAUNCHER = "XPC_LAUNCHER"
"""The variable by which launcher.py tells its processes who their parent is."""


class Stopped(Exception):
    """The run was asked to stop, and has saved what it has."""


class StopRequest:
    """The signal that asked this process to stop, and whether that is noted, as from the first step on, or ends it."""

    name: str | None = None
    training = False


def listen() -> None:
    """Hears the wish from now on, also in a collective operation, where Python runs no handler: the interpreter writes
    each signal's number into a pipe, and a thread reads it. Processes that are forked later do not hear it.
    """
    end_with_launcher()
    out, into = os.pipe()
    os.set_blocking(into, False)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    threading.Thread(target=_read, args=(out,), name="signals", daemon=True).start()
    # A child has this process's pipe until it is deaf: no signal may reach it before.
    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS),
        after_in_child=_reset_handlers,
    )


def end_with_launcher() -> None:
    """The kernel kills this process when its launcher has died: it would train on, and hold its folder and its port."""
    launcher = os.environ.get(LAUNCHER)
    if launcher is None or not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG
    if os.getppid() != int(launcher):
        try:
            os.kill(int(launcher), 0)
        except ProcessLookupError:  # it died before the line above
            os._exit(1)


def ignore_end_signal() -> None:
    """All processes will stop: one that is done first is no reason to end this one."""
    signal.signal(END_SIGNAL, signal.SIG_IGN)


def _read(pipe: int) -> None:
    while True:
        for number in os.read(pipe, 64):
            if number in STOP_SIGNALS:
                _record(signal.Signals(number).name)


def _record(name: str) -> None:
    first, StopRequest.name = StopRequest.name is None, StopRequest.name or name
    if StopRequest.training:
        return
    if first and rank() == 0:
        with contextlib.suppress(OSError):
            os.write(1, f"[run] asked to stop ({name}) before the first step: there is nothing to save\n".encode())
    os._exit(REQUEUE)


def _reset_handlers() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
