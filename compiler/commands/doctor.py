"""`xpc doctor`: check whether this machine and a Python interpreter are ready for runs of a target.

Imported only by this command. The checks themselves are in the runtime (`runtime/doctor.py`). They run in a process of
the checked interpreter, because the compiler never imports the training libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Sequence

from xpc.compiler import stacks
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.render.argument_parser import ArgumentParser

EPILOG = (
    "Nothing is written and the network is not used. Exit status: 0 if the machine is ready (perhaps with notes), 1 if "
    "something is wrong, 2 for wrong usage, or if the interpreter does not run."
)
MARKS = {"fine": "ok", "note": "note", "wrong": "WRONG"}
PATIENCE = 300
"""The time limit of the checks, in seconds. It is long, because importing torch from a network disk may
take a minute.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser(
        "xpc doctor", description="Check this machine before runs: Python, packages, GPUs, disks, tokens.",
        epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--python", metavar="PATH", help="the interpreter to check (default: $PYTHON or python3)")
    parser.add_argument("--target", choices=stacks.names(), default=stacks.DEFAULT, help="the stack to check for")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    python = options.python or os.environ.get("PYTHON") or "python3"
    stack = stacks.load(options.target)
    assert stack is not None  # argparse has checked that the stack exists
    entries = ask(python, stack)
    wrong = sum(one["state"] == "wrong" for one in entries)
    if options.format == "json":
        answer = {"python": python, "target": stack.name, "wrong": wrong, "entries": entries}
        return json.dumps(answer, indent=2) + "\n", int(wrong > 0)
    width = max(len(one["what"]) for one in entries)
    lines = [f"{python} for {stack.name} ({stack.title})"]
    lines += [f"  {MARKS[one['state']]:<5}  {one['what']:<{width}}  {one['says']}" for one in entries]
    lines.append("ready" if not wrong else f"{wrong} thing{'s are' if wrong > 1 else ' is'} wrong")
    return "\n".join(lines) + "\n", int(wrong > 0)


def ask(python: str, stack: stacks.Stack) -> list[dict[str, str]]:
    """Run the checks in the interpreter `python`, and return their results. Raises UsageError."""
    here = os.path.dirname(os.path.abspath(__file__))
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"there is no interpreter {python}; name one with --python")
    needed = stack.requirements()
    optional = {name: version for name, version in stack.pins.items() if name not in needed}
    script = os.path.join(os.path.dirname(os.path.dirname(here)), "runtime", "doctor.py")
    try:
        done = subprocess.run(
            [found, script], input=json.dumps({"pins": dict(needed), "optional": optional}), text=True, check=False,
            capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{python} gave no answer within {PATIENCE} s") from error
    except OSError as error:
        raise UsageError(f"{python} cannot be run: {error.strerror}") from error
    try:
        entries = json.loads(done.stdout)
    except ValueError:
        entries = None
    if done.returncode or not entries:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UsageError(f"{python} failed (status {done.returncode}): {last}")
    return [{name: str(one[name]) for name in ("what", "state", "says")} for one in entries]
