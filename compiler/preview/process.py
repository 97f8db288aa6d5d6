"""Compile a spec into a temporary folder, and prepare its rows with the Python interpreter that trains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from xpc.compiler.files.bundle import write
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.files.inputs import SpecError, UsageError, located, read_spec
from xpc.compiler.language.codes import CODES
from xpc.compiler.pipeline import compile_text
from xpc.compiler.render import render
from xpc.compiler.render.output import show, show_rendered
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xpc.compiler.spec import Spec

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker", "start.py")


@record
class Request:
    """The rows to prepare: the first `n` of each source, `row` alone, or `n` random ones with a seed.

    `choice` is `first`, or what needs many rows: `longest`, `cut` or `order`. `scan` says which rows are prepared
    together and counted: so many of each source, `all`, or None for no counts. `rewards` calls the reward functions,
    `trust_code` allows the tokenizer's own code.
    """

    n: int = 3
    row: int | None = None
    random: int | None = None
    choice: str = "first"
    scan: str | None = None
    rewards: bool = False
    trust_code: bool = False


def preview(path: str, request: Request, python: str | None = None) -> dict[str, Any]:
    """Return the worker's answer for a spec, in which each verdict has its slug and severity. Raises UsageError and
    SpecError.
    """
    files, spec = _compiled(path)
    name = os.path.basename(path)
    found = interpreter(spec, python)
    with tempfile.TemporaryDirectory(prefix="xpc-preview-") as folder:
        bundle = os.path.join(folder, "run.bundle")
        write(files, bundle)
        answer = _ask(found, bundle, os.path.join(folder, "scratch"), request, os.path.dirname(os.path.abspath(path)))
    for row in answer["rows"]:
        for one in row["verdicts"]:
            one["slug"], severity = CODES[one["code"]]
            one.setdefault("severity", severity)
    return {"spec": name, **answer}


def _compiled(path: str) -> tuple[Mapping[str, bytes], Spec]:
    data, name, workspace = read_spec(path)
    workspace.memory, workspace.allow_oom = user_memory(), True
    files, checked = compile_text(data, name, workspace)
    if files is None or checked.spec is None:
        errors = [one for one in checked.problems if one.severity == ERROR]
        show_rendered(render(located(errors, path), "full"), sys.stderr)
        raise SpecError(f"{path} does not compile, so there is nothing to preview")
    if checked.members:
        first = checked.members[0]
        begin = f"members/{first.name}/"
        files = {one.removeprefix(begin): content for one, content in files.items() if one.startswith(begin)}
        _note(f"the spec is a sweep; this is its first member, {first.name}")
    return files, checked.spec


def _note(sentence: str) -> None:
    show(f"xpc: {sentence}", sys.stderr)
    sys.stderr.flush()


def interpreter(spec: Spec, python: str | None) -> str:
    """The Python interpreter that has the training packages of a spec's target. Raises UsageError."""
    stack = spec.stack
    pinned = stack.pins["trl"]
    own = _installed_here()
    if python is None and own == pinned:
        return sys.executable
    named = python or os.environ.get("PYTHON")
    if not named:
        has = f"has trl {own}" if own else "has no trl"
        raise UsageError(
            f"preview runs the trainer of {stack.name}, which needs trl {pinned}, and this interpreter {has}: name one "
            "with --python PATH"
        )
    found = shutil.which(named)
    if found is None:
        raise UsageError(f"there is no interpreter {named}; name one with --python PATH")
    return found


def _installed_here() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trl").partition("+")[0]
    except PackageNotFoundError:
        return None


def _ask(python: str, bundle: str, scratch: str, request: Request, beside: str) -> dict[str, Any]:
    """Run the worker and return its answer. Its progress is printed while it works."""
    question = {
        "bundle": bundle, "scratch": scratch, "n": request.n, "row": request.row, "random": request.random,
        "choice": request.choice, "scan": request.scan, "rewards": request.rewards, "trust_code": request.trust_code,
    }  # fmt: skip
    environ = {**os.environ, "XPC_DATA_ROOT": os.environ.get("XPC_DATA_ROOT") or beside}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        try:
            process = subprocess.Popen(
                [python, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, env=environ,
                text=True, encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"{python} cannot be run: {error.strerror}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            try:
                process.stdin.write(json.dumps(question))
                process.stdin.close()
                message = _last_message(process.stdout, bundle)
            except BrokenPipeError:
                message = {}
            except KeyboardInterrupt:
                process.kill()
                raise
        if "error" in message:
            raise UsageError(str(message["error"]))
        if "answer" in message:
            return dict(message["answer"])
        complaints.seek(0)
        lines = complaints.read().strip().splitlines()
        raise UsageError(f"{python} failed (status {process.returncode}): {lines[-1] if lines else 'no output'}")


def _last_message(lines: Any, bundle: str) -> dict[str, Any]:
    """The last message; files of the temporary bundle are named as in the bundle."""
    message: dict[str, Any] = {}
    for line in lines:
        try:
            message = json.loads(line.replace(json.dumps(bundle + os.sep)[1:-1], ""))
        except ValueError:
            continue
        if "progress" in message:
            _note(str(message["progress"]))
    return message
