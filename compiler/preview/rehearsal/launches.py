"""Launch the bundle of the small run that a rehearsal trains. To test resuming, the run can be killed or stopped as
soon as it has written a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT = 1800
"""If a launch does not end within this many seconds, it counts as hung."""
STOPPED = 75
"""The exit status of a run that got a stop signal, saved a checkpoint and ended."""
ERROR = "error"
LAST = 5
"""If the output contains no error message, this many lines at its end are shown."""


@record
class Launch:
    """The result of a launch: its exit status, its output, its duration in seconds, and whether the run wrote the
    checkpoint at which it gets the signal.
    """

    status: int
    output: str
    seconds: float
    reached: bool = True

    @property
    def reason(self) -> str:
        """The error in one sentence. It is the error message of the run itself, or else an exception, or else the last
        lines of the output.
        """
        lines = [one.strip() for one in self.output.splitlines() if one.strip()]
        own = [one for one in lines if one.startswith((f"{ERROR}:", f"xpc: {ERROR}"))]
        if own:
            return own[-1].partition(":")[2].strip()
        raised = [one for one in lines if one.partition(":")[0].endswith(("Error", "Exception", "Exit"))]
        return (raised or [" / ".join(lines[-LAST:]) or "no output"])[-1]


def launch(
    bundle: str, folder: str, environ: Mapping[str, str], at: str | None = None, number: int = signal.SIGKILL
) -> Launch:
    """Run the launch.sh of the bundle in the folder `folder`. As soon as `at`, the folder of a checkpoint, exists, the
    processes get the signal `number`.
    """
    begin, reached = time.monotonic(), at is None
    output = os.path.join(folder, "launch.log")
    with open(output, "wb") as log:
        process = subprocess.Popen(
            [os.path.join(bundle, "launch.sh")], cwd=folder, env=dict(environ), stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            while process.poll() is None and time.monotonic() - begin < WAIT:
                if not reached and at is not None and os.path.isdir(at):
                    reached = True
                    (os.killpg if number == signal.SIGKILL else os.kill)(process.pid, number)
                time.sleep(0.01)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with open(output, encoding="utf-8", errors="replace") as log_text:
        return Launch(process.returncode, log_text.read(), time.monotonic() - begin, reached)
