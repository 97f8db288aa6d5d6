"""Compile a spec into a temporary folder, and prepare its rows with the Python interpreter that has the training
packages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version

from xpc.compiler import stacks
from xpc.compiler.data import rows
from xpc.compiler.data.preview_counts import keep, sentence
from xpc.compiler.files.bundle import write
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.files.inputs import SpecError, UsageError, located, read_spec
from xpc.compiler.files.package import install_command
from xpc.compiler.language.codes import CODES
from xpc.compiler.lower import lower
from xpc.compiler.lower.sweep import named
from xpc.compiler.pipeline import check_text
from xpc.compiler.preview import stored_rows
from xpc.compiler.render import render
from xpc.compiler.render.output import show, show_rendered
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.nearest import nearest
from xpc.grammar.record import evolve, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from xpc.compiler.files.workspace import Workspace
    from xpc.compiler.pipeline import Checked
    from xpc.compiler.spec import Spec
    from xpc.compiler.spec.checked import CheckedSpec

FEW = 4 * 2**20
"""The largest size in bytes of a data file that is copied for a preview of a few rows. Copying a larger file would take
seconds.
"""
COPY = re.compile(r"\bfiles/(\S*?)(?:-[0-9a-f]{8})+(?=\.\w)")
"""Matches the name of a copied file in a bundle: `files/reward-1a2b3c4d.py`."""
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker", "start.py")


@record
class Request:
    """The rows that the worker should prepare from each source: the first `n` rows, only the row with the index `row`,
    or `n` random rows with the seed `random`.

    - `choice`: `first`, or a choice for which many rows are tokenized: the `longest` rows, truncated rows (`cut`), or
      the rows of the first steps (`order`).
    - `scan`: how many rows are tokenized and counted: a number of rows of each source, `all` rows, `local` (all rows of
      local sources, but only the first rows of sources on the hub), or None to count nothing.
    - `rewards`: whether the reward functions are called.
    - `trust_code`: whether the tokenizer's own code may run.
    - `member`: the name of a sweep's member; None is the first member.
    """

    n: int = 3
    row: int | None = None
    random: int | None = None
    choice: str = "first"
    scan: str | None = None
    rewards: bool = False
    trust_code: bool = False
    member: str | None = None


def preview(path: str, request: Request, python: str | None = None) -> dict[str, Any]:
    """Prepare the requested rows of a spec, and return the worker's answer as JSON data. The slug and the severity are
    added to each finding in the answer. The counts are stored, so that later commands can use them. Raises UsageError
    and SpecError.
    """
    spec, workspace = _checked(path, request)
    name = os.path.basename(path)
    if os.environ.get("XPC_PREPARED"):
        from xpc.compiler.preview.prepared_counts import prepared_counts

        prepared = prepared_counts(spec, workspace.root)
        progress(
            "XPC_PREPARED has no prepared rows of this run"
            if prepared is None
            else sentence(prepared, "in the prepared")
        )
    found = interpreter(spec, python)
    with tempfile.TemporaryDirectory(prefix="xpc-preview-") as folder:
        bundle = os.path.join(folder, "run.bundle")
        write(lower(spec), bundle)
        scratch = os.path.join(folder, "scratch")
        os.mkdir(scratch)
        unread = rows.unread(spec) if request.scan is not None else []
        files = {index: stored_rows.path(scratch, index) for index in unread}
        answer = ask(found, bundle, scratch, request, os.path.dirname(os.path.abspath(path)), unread=files)
        if answer["written"]:
            answer["stored"] = stored_rows.findings(spec, scratch, answer["written"])
    if answer["counts"] is not None:
        keep(spec, workspace, answer["counts"])
    return {"spec": name, **answer}


def _checked(path: str, request: Request) -> tuple[CheckedSpec, Workspace]:
    """Check the spec to preview. This check computes no digests of weights, and digests of data only if many rows are
    prepared.
    """
    data, name, workspace = read_spec(path)
    few = request.scan is None
    workspace = evolve(
        workspace, memory=user_memory(), allow_oom=True, hashes=not few, most_copied=FEW if few else None,
        most_members=int(request.member is None),
    )  # fmt: skip
    return chosen_run(check_text(data, name, workspace), path, request.member, "preview"), workspace


def chosen_run(checked: Checked, path: str, name: str | None, verb: str) -> CheckedSpec:
    """The run of a checked spec. For a sweep, this is the member whose name or number is `name`, or the first member if
    `name` is None. `verb` is the verb for messages, such as `preview`.

    Raises UsageError for an unknown member. If the spec does not compile, prints its errors and raises SpecError.
    """
    spec = _without_errors(checked, path, verb)
    if not checked.members:
        if name is not None:
            raise UsageError(f"{path} is not a sweep, and has no member {name[:80]}")
        return spec
    wanted = name or checked.members[0].name
    member = next((one for one in checked.members if wanted in (one.name, str(one.index))), None)
    if member is None or member.spec is None:
        near = nearest(wanted, [one.name for one in checked.members])
        hint = (
            f"; the most similar name is {near}" if near else f"; they are numbered 0 to {len(checked.members) - 1:,}"
        )
        raise UsageError(f"the sweep has no member {wanted[:80]}{hint}")
    if name is None:
        progress(f"the spec is a sweep; this is its first member, {member.name}: --member names another")
    return named(member.spec, member.name)


def _without_errors(checked: Checked, path: str, verb: str) -> CheckedSpec:
    """The checked spec or, for a sweep, the spec of its first member. If the spec does not compile, its errors are
    printed, and SpecError is raised.
    """
    if checked.spec is None:
        errors = [one for one in checked.problems if one.severity == ERROR]
        show_rendered(render(located(errors, path), "full"), sys.stderr)
        raise SpecError(f"{path} does not compile, so there is nothing to {verb}")
    return checked.spec


def progress(sentence: str) -> None:
    """Print a progress line to standard error."""
    show(f"xpc: {sentence}", sys.stderr)
    sys.stderr.flush()


def _other_stack(trl: str | None) -> str:
    """The end of a message: how to move a spec to the stack whose version of TRL is installed. "" if there is no such
    stack.
    """
    for name in stacks.names():
        stack = stacks.load(name)
        if stack is not None and stack.pins["trl"] == trl:
            return f", or move a copy of the spec to {name}: `xpc upgrade COPY --target {name} --write`"
    return ""


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
        install = f"install it (`{install_command('train')}`), or " if stack.name == stacks.DEFAULT and not own else ""
        raise UsageError(
            f"the trainer of {stack.name} needs trl {pinned}, and this interpreter {has}: {install}name another "
            f"interpreter with --python PATH{_other_stack(own)}"
        )
    found = shutil.which(named)
    if found is None:
        raise UsageError(f"there is no interpreter {named}; name one with --python PATH")
    return found


def _installed_here() -> str | None:
    try:
        return version("trl").partition("+")[0]
    except PackageNotFoundError:
        return None


def ask(
    python: str,
    bundle: str,
    scratch: str,
    request: Request,
    next_to: str,
    environ: Mapping[str, str] = os.environ,
    unread: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """Start the worker on a bundle, and return its answer. The lines about its progress are printed as soon as they
    arrive. Raises UsageError.

    `scratch` is a folder for temporary files. `next_to` is the spec's folder, to which the paths of data files are
    relative. `unread` maps the indices of some sources to the files into which the worker writes their rows.
    """
    question = {**vars(request), "bundle": bundle, "scratch": scratch, "unread": unread or {}}
    variables = {**environ, "XPC_DATA_ROOT": environ.get("XPC_DATA_ROOT") or next_to}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        try:
            process = subprocess.Popen(
                [python, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, env=variables,
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
            return _with_slugs(dict(message["answer"]))
        complaints.seek(0)
        lines = complaints.read().strip().splitlines()
        raise UsageError(f"{python} failed (status {process.returncode}): {lines[-1] if lines else 'no output'}")


def _with_slugs(answer: dict[str, Any]) -> dict[str, Any]:
    """Add the slug and the severity of each finding to the worker's answer. A message names a file of the spec, and not
    its copy in the bundle.
    """
    for row in answer["rows"]:
        for one in row["verdicts"]:
            one["message"] = COPY.sub(r"\1", one["message"])
            one["slug"], severity = CODES.get(one["code"]) or _of_rule(one["code"])
            one.setdefault("severity", severity)
    return answer


def _of_rule(code: str) -> tuple[str, str]:
    # imported only here, because most previews find nothing that a rule of `xpc check` reports
    from xpc.compiler.rules.core.all_codes import all_codes

    slug, severity, _ = all_codes()[code]
    return slug, severity


def _last_message(lines: Any, bundle: str) -> dict[str, Any]:
    """The worker's last message. Paths in it are made relative to the temporary bundle. The worker's messages about its
    progress are printed.
    """
    message: dict[str, Any] = {}
    for line in lines:
        try:
            message = json.loads(line.replace(json.dumps(bundle + os.sep)[1:-1], ""))
        except ValueError:
            continue
        if "progress" in message:
            progress(str(message["progress"]))
    return message
