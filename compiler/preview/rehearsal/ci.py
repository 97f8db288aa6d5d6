"""`xpc rehearse --ci`: rehearse the specs that a pull request changes, and sum up the results in Markdown.

After a rehearsal without a finding, a spec is rehearsed again only if something that affects its run has changed: a
file of its bundle, its rows, its local model, or the packages of the interpreter.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from contextlib import ExitStack

from xpc.compiler import __version__
from xpc.compiler.files.digest import sha256
from xpc.compiler.files.inputs import SpecError, UsageError
from xpc.compiler.files.private_folder import private_folder, read, write
from xpc.compiler.lower import lower
from xpc.compiler.preview.process import interpreter, progress
from xpc.compiler.preview.rehearsal import show
from xpc.compiler.preview.rehearsal.small_run import checked_run, rehearse, warm_interpreter
from xpc.compiler.review.pull_request.affected import affected
from xpc.compiler.review.pull_request.entries import changed_files, fork_and_head
from xpc.compiler.review.repository import Repository, of_folder
from xpc.compiler.review.spec_finder import specs_of_commit, specs_of_work_tree
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from xpc.compiler.preview.rehearsal.forks import Forks
    from xpc.compiler.spec.checked import CheckedSpec

KIND = "rehearsals"
"""The folder below `~/.cache/xpc` for the results of `xpc rehearse`."""
PROSE = ("README.md", "bundle.toml", "model_card.md", "spec.xp")
"""Files of a bundle that do not affect its run. The digest of the bundle leaves them out: otherwise, a changed comment
in the spec would change the digest.
"""
PACKAGES = "import importlib.metadata as m; print(sorted({f'{d.name}=={d.version}' for d in m.distributions()}))"


@record
class Outcome:
    """The result of rehearsing one spec: a sentence, whether something went wrong, and the report of the rehearsal."""

    path: str
    sentence: str
    wrong: bool = False
    report: dict[str, Any] | None = None


def rehearse_changed(paths: Sequence[str], base: str | None, python: str | None) -> tuple[str, int]:
    """Rehearse specs below `paths`: those that the changes since the commit `base` affect, or all if `base` is None.
    Returns Markdown and the exit status. Raises UsageError.
    """
    repository = of_folder()
    with ExitStack() as held:
        warm: dict[str, Forks] = {}

        def started(python: str) -> Forks:
            if python not in warm:
                warm[python] = held.enter_context(warm_interpreter(python))
            return warm[python]

        found = [_outcome(repository, path, python, started) for path in _chosen(repository, paths, base)]
    return _markdown(found), int(any(one.wrong for one in found))


def _chosen(repository: Repository, paths: Sequence[str], base: str | None) -> list[str]:
    """The specs to rehearse, as paths relative to the top of the repository."""
    for one in paths:
        if not os.path.exists(one):
            raise UsageError(f"there is no {one}")
    specs = specs_of_work_tree(repository)
    inside = [repository.inside(one) for one in paths] or ["."]
    runs = [path for path in specs.runs if any(one in (".", path) or path.startswith(f"{one}/") for one in inside)]
    if base is None:
        return runs
    before, after = fork_and_head(repository, base)
    concerned = set(affected(repository, specs_of_commit(before), specs, changed_files(before, after)))
    return [path for path in runs if path in concerned]


def _outcome(repository: Repository, path: str, python: str | None, started: Callable[[str], Forks]) -> Outcome:
    """Rehearse one spec. `started` is a function that takes the path of a Python interpreter, and returns a process of
    it that has already imported the training libraries (see forks.py).
    """
    location = os.path.relpath(os.path.join(repository.top, path))
    try:
        spec = checked_run(location)
    except (UsageError, SpecError) as error:
        return Outcome(path, str(error), wrong=True)
    try:
        trains = interpreter(spec, python)
    except UsageError as error:  # the specs may need several stacks, and the job of CI has only one stack installed
        return Outcome(path, f"not rehearsed: {error}")
    folder, key = private_folder(KIND), _key(spec, trains)
    if folder is not None and read(folder, key) is not None:
        return Outcome(path, "rehearsed earlier without a finding, and unchanged since")
    progress(f"rehearsing {path}")
    try:
        report = rehearse(spec, location, started(trains))
    except UsageError as error:
        return Outcome(path, str(error), wrong=True)
    wrong = bool(show.status(report))
    if folder is not None and not wrong:
        write(folder, key, "{}")
    findings = len(report["findings"])
    sentence = "1 finding" if findings == 1 else f"{findings} findings" if findings else "nothing is wrong"
    return Outcome(path, sentence, wrong, report)


def _key(spec: CheckedSpec, python: str) -> str:
    """A digest of everything that affects the rehearsal of a spec: its bundle, its weights, the code of xpc and the
    installed packages.
    """
    files = lower(spec)
    weights = tomllib.loads(files["bundle.toml"].decode()).get("weights")
    digests = sorted((name, sha256(data).hexdigest()) for name, data in files.items() if name not in PROSE)
    packages = subprocess.run([python, "-c", PACKAGES], capture_output=True, check=False).stdout
    return sha256(repr((__version__, digests, weights, packages)).encode()).hexdigest()


def _markdown(found: Sequence[Outcome]) -> str:
    if not found:
        return "No spec to rehearse.\n"
    wrong = sum(one.wrong for one in found)
    head = f"**{len(found)} rehearsal{'s' * (len(found) != 1)}, {wrong or 'none'} with errors**"
    rows = [f"| `{show.cell(one.path)}` | {'✗' if one.wrong else '✓'} | {show.cell(one.sentence)} |" for one in found]
    parts = [f"{head}\n\n| spec | | |\n|---|---|---|\n" + "\n".join(rows) + "\n"]
    for one in found:
        if one.report is not None:
            summary = f"<summary>{show.cell(one.path)}</summary>"
            parts.append(f"<details>{summary}\n\n{show.markdown(one.report)}\n</details>\n")
    return "\n".join(parts)
