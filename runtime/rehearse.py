"""Rehearse a run on its own nodes before it begins: ``launch.sh --rehearse``, or ``XPC_REHEARSE=1`` for job scripts.

The bundle's own launch.sh trains two steps and saves. Then it is started again, resumes, and trains a third step. The
rehearsal writes to the folder OUT.rehearsal, and uses neither a tracker nor the hub. Then the folder is deleted, and
launch.sh starts the run from the beginning. Every node of the run does the same. Standard library only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from types import FrameType
from typing import Any

VARIABLE = "XPC_REHEARSE"
ENDING = ".rehearsal"
MARKER = "xpc_run.json"
"""The first file that a run writes into its folder."""
OFF: dict[str, Any] = {
    "report_to": ["none"], "push_to_hub": False, "eval_on_start": False, "logging_strategy": "steps",
    "logging_steps": 1,
}  # fmt: skip
"""Values that replace the run's own arguments: each step is logged, and no tracker or hub gets anything."""
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
REQUEUE = 75
"""The exit status of a run that saved and stopped on request."""
SECONDS = 0.2
"""Seconds between two reads of the log."""


class Launch:
    """The running launch of the copied bundle. ``stopped``: whether this process has received a stop request."""

    process: "subprocess.Popen[bytes] | None" = None
    stopped = False

    @classmethod
    def ask(cls, number: int, _: FrameType | None) -> None:
        """Signal handler: pass a stop request on to the launch. SIGINT is not passed on, because Ctrl-C in a terminal
        also reaches the launch directly.
        """
        cls.stopped = True
        if number != signal.SIGINT and cls.process is not None and cls.process.poll() is None:
            cls.process.send_signal(number)


def main(folder: str) -> int:
    """Rehearse. If this succeeds, launch.sh replaces this process; otherwise return the exit status."""
    with open(os.path.join(folder, "trainer_args.json"), encoding="utf-8") as handle:
        plan = json.load(handle)
    out = os.path.abspath(plan["arguments"]["output_dir"])
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    status = 0
    if os.path.exists(os.path.join(out, MARKER)):
        _say(f"{out} already contains a run: this start continues the run, and does not rehearse it")
    else:
        for number in SIGNALS:
            signal.signal(number, Launch.ask)
        with tempfile.TemporaryDirectory(prefix="xpc-rehearse-") as place:
            status = _rehearsed(_copied(folder, place, plan), out + ENDING, plan, environ, folder)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
    if status == 0:
        sys.stdout.flush()
        os.execve(os.path.join(folder, "launch.sh"), ["launch.sh"], environ)
    return status


def _rehearsed(bundle: str, out: str, plan: dict[str, Any], environ: dict[str, str], folder: str) -> int:
    """Launch twice, and delete the folder of the rehearsal. Returns 0, or the status of the launch that failed."""
    if os.path.lexists(out) and os.listdir(out) and not os.path.exists(os.path.join(out, MARKER)):
        _say(f"error: {out!r} is not the folder of a rehearsal; move it away")
        return 1
    shutil.rmtree(out, ignore_errors=True)
    environ = {"XPC_DATA_ROOT": _root(folder), **environ}
    begun, before = time.monotonic(), 0
    for what in ("two steps and a save", "a resume and another step") if plan["run"]["full_state"] else ("two steps",):
        _say(f"rehearsing {what}")
        status = _launched(bundle, out, environ, before)
        if Launch.stopped:
            return REQUEUE
        saved = _newest(out)
        if status not in (0, REQUEUE):
            _say(f"the rehearsal failed, and the run is not started; the files of the rehearsal are in {out}")
            return status
        ended = os.path.exists(os.path.join(out, "summary.json"))  # a short run may end before it gets the stop request
        if status and saved <= before and not ended and os.path.exists(os.path.join(out, "metrics.jsonl")):
            _say(f"error: the rehearsal saved nothing after step {before} in {out!r}")
            return 1
        before = saved
    if os.environ.get("NODE_RANK", "0") == "0":
        shutil.rmtree(out, ignore_errors=True)
    _say(f"rehearsed in {time.monotonic() - begun:.0f} s: the run begins")
    return 0


def _launched(bundle: str, out: str, environ: dict[str, str], before: int) -> int:
    """Launch the copied bundle, and ask it to stop when it logs a step after ``before``. Returns the exit status."""
    Launch.process = process = subprocess.Popen([os.path.join(bundle, "launch.sh")], env=environ)
    requested = False
    while process.poll() is None:
        if not requested and _logged(out) > before:
            requested = True
            process.send_signal(signal.SIGTERM)
        time.sleep(SECONDS)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _logged(out: str) -> int:
    """The newest step in metrics.jsonl, which only process 0 writes; 0 on a node where this file is missing."""
    try:
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as handle:
            return max((json.loads(line)["step"] for line in handle if line.endswith("\n")), default=0)
    except (OSError, ValueError, KeyError):
        return 0


def _newest(out: str) -> int:
    """The step of the newest checkpoint; 0 without a checkpoint."""
    names = os.listdir(out) if os.path.isdir(out) else []
    steps = [one.removeprefix("checkpoint-") for one in names if one.startswith("checkpoint-")]
    return max((int(one) for one in steps if one.isdecimal()), default=0)


def _copied(folder: str, place: str, plan: dict[str, Any]) -> str:
    """Copy the bundle so that it writes to another folder: make links to its files, but a copy of launch.sh, because
    launch.sh runs the bundle in its own folder."""
    bundle = os.path.join(place, "rehearsal.bundle")
    os.mkdir(bundle)
    for name in sorted(os.listdir(folder)):
        if name not in ("launch.sh", "trainer_args.json", "bundle.toml"):
            os.symlink(os.path.join(folder, name), os.path.join(bundle, name))
    shutil.copy(os.path.join(folder, "launch.sh"), bundle)
    arguments = plan["arguments"]
    changed = {name: value for name, value in OFF.items() if name in arguments}
    changed["output_dir"] = str(arguments["output_dir"]).rstrip("/") + ENDING
    text = json.dumps({**plan, "arguments": {**arguments, **changed}, "run": {**plan["run"], "resume": "auto"}})
    with open(os.path.join(folder, "trainer_args.json"), "rb") as handle:
        was = sha256(handle.read()).hexdigest()
    with open(os.path.join(bundle, "trainer_args.json"), "w", encoding="utf-8") as out:
        out.write(text)
    with open(os.path.join(folder, "bundle.toml"), encoding="utf-8") as handle:
        manifest = handle.read().replace(was, sha256(text.encode()).hexdigest())
    with open(os.path.join(bundle, "bundle.toml"), "w", encoding="utf-8") as out:
        out.write(manifest)
    return bundle


def _root(folder: str) -> str:
    """The folder in which a bundle looks for local files: the parent folder of the bundle, or of its sweep."""
    above = os.path.dirname(folder)
    return os.path.dirname(os.path.dirname(above)) if os.path.basename(above) == "members" else above


def _say(sentence: str) -> None:
    if os.environ.get("NODE_RANK", "0") == "0":
        sys.stderr.write(f"launch.sh: {sentence}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.abspath(__file__))))
