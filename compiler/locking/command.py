"""`xpc lock SPEC`: pin the repositories, files and packages that the spec names. The hub and the package index are
accessed only with `--update`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from hashlib import sha256

from xpc.compiler import __version__, registry
from xpc.compiler.files.atomic import replace_files
from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.files.pins import MODEL, Environment, Lock, Pin
from xpc.compiler.files.secrets import pinned
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.locking import state
from xpc.compiler.locking.environments import ResolveError, requirements, resolve
from xpc.compiler.locking.hub import Hub, HubError
from xpc.compiler.locking.lock_text import complete, written
from xpc.compiler.pipeline import Checked, check_text, compile_text
from xpc.compiler.render import render
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.visible import visible
from xpc.compiler.resolve import lockfile
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.record import evolve

EPILOG = (
    "Without --update, neither the hub nor pip is used: files are hashed, what the spec names by a full commit is "
    "pinned to this commit, and other pins stay if the spec still names the same things. --update NAME updates one "
    "model, one dataset, or `environment` (the packages). `xpc compile --locked` refuses stale and missing pins. Exit "
    "status: 0 if everything is pinned, 1 if something is not, or the spec has errors, 2 for wrong usage, or if the "
    "hub or pip failed."
)
ENVIRONMENT = "environment"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser("xpc lock", description="Pin what a spec names, in SPEC.lock.", epilog=EPILOG)
    parser.add_argument("words", nargs="+", metavar="SPEC", help="the spec, a file ending in .xp")
    parser.add_argument(
        "--update", action="store_true", help="ask the hub and pip again, for everything or for the NAMEs that follow"
    )
    parser.add_argument("--pin", action="append", default=[], metavar="NAME=COMMIT", help="pin NAME to this commit")
    parser.add_argument(
        "--python", metavar="PATH", help="the interpreter whose pip resolves the packages (default: $PYTHON or python3)"
    )
    options = parser.parse_intermixed_args(list(arguments))
    files = [one for one in options.words if one.endswith(".xp")]
    options.names = [one for one in options.words if not one.endswith(".xp")]
    if len(files) != 1:
        parser.error("give exactly one spec")
    if options.names and not options.update:
        parser.error(f"`{options.names[0]}` is not a spec; names of packages or repositories need --update")
    options.file = files[0]
    return options


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    data, name, workspace = read_spec(options.file)
    before = _before(workspace)
    lock = Lock(workspace.lock, before.pins, environments=before.environments, xpc=__version__)
    checked = _checked(data, name, workspace, lock)
    lock = evolve(lock, pins=tuple(_pins(lock, options)), lookups={})
    again = _checked(data, name, Workspace(workspace.root, lock=workspace.lock), lock)
    if again.spec is None:
        errors = [one for one in again.problems if one.severity == ERROR]
        return render(located(errors or checked.problems, options.file), "full"), 1
    lock = _complete(data, name, lock, again, options)
    path = os.path.join(workspace.root, workspace.lock)
    # links are not followed, because a stranger's repository may contain a link to any file of this user
    if os.path.islink(path):
        raise UsageError(f"{path} is a link, and is not followed: remove it first")
    try:
        replace_files({path: complete(lock)})
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return _report(before, lock, f"{options.file}.lock")


def _before(workspace: Workspace) -> Lock:
    """Read the existing lock. Returns an empty lock if there is no lock, or if the existing lock cannot be read (it
    will then be replaced).
    """
    found, _ = lockfile.read(workspace) if workspace.kind(workspace.lock) == "file" else (None, [])
    workspace.reads.pop(workspace.lock, None)
    return Lock(workspace.lock) if found is None else found


def _checked(data: bytes, name: str, workspace: Workspace, lock: Lock) -> Checked:
    # a run that does not fit in its GPUs can be locked, although `xpc compile` refuses it
    return check_text(data, name, evolve(workspace, pins=lock, hashes=True, allow_oom=True))


def _pins(lock: Lock, options: argparse.Namespace) -> list[Pin]:
    """A pin for each reference. A pin comes from --pin, from the existing lock, or from the hub."""
    by_hand = dict(_by_hand(one) for one in options.pin)
    names = {one for name in options.names for one in (name, *_ids(name))}
    known = {one[1] for one in lock.lookups}
    for name in (*options.names, *by_hand):
        if name != ENVIRONMENT and not {name, *_ids(name)} & known:
            raise UsageError(
                f"the spec does not name `{name}`" + (f"; it names {', '.join(sorted(known))}" if known else "")
            )
    out: list[Pin] = []
    hub: Hub | None = None
    for (kind, id, requested, part), pin in lock.lookups.items():
        if id in by_hand:
            pin = Pin(kind, id, requested, by_hand[id], part)
        elif (
            options.update
            and (id in names if options.names else True)
            and (not pinned(requested) or _unknown(kind, id))
        ):
            try:
                hub = hub or Hub()
                pin = hub.pin(kind, id, requested, part)
            except HubError as error:
                raise UsageError(str(error)) from error
        if pin is not None and pin not in out:
            out.append(pin)
    return out


def _by_hand(written: str) -> tuple[str, str]:
    name, _, commit = written.partition("=")
    if not pinned(commit):
        raise UsageError(f"--pin {written}: a commit has 40 hexadecimal digits")
    return next(iter(_ids(name)), name), commit


def _ids(name: str) -> list[str]:
    """The ids of the hub repositories that a name of the registry stands for."""
    found = registry.find_model(name), registry.find_dataset(name)
    return [one.id for one in found if one is not None]


def _unknown(kind: str, id: str) -> bool:
    return (registry.find_model(id) if kind == MODEL else registry.find_dataset(id)) is None


def _complete(data: bytes, name: str, lock: Lock, checked: Checked, options: argparse.Namespace) -> Lock:
    """Add to the lock everything that is computed from the pins: files, rows, packages, and the digest of the bundle
    that is compiled with this lock.
    """
    folder = os.path.dirname(os.path.abspath(options.file))
    lock = evolve(lock, target=state.specs(checked)[0].stack.name, lookups={})
    workspace = Workspace(folder, lock=lock.name, pins=lock, hashes=True, allow_oom=True)
    files, checked = compile_text(data, name, workspace)
    assert files is not None  # the caller has already compiled the spec without errors
    environments = _environments(requirements(files), lock, options)
    lock = evolve(lock, files=state.digests(checked, workspace), rows=state.counts(checked), environments=environments)
    lock = evolve(lock, text=written(lock))
    reads = {lock.name: sha256(lock.text).hexdigest()}
    files, _ = compile_text(data, name, evolve(workspace, pins=lock, reads=reads))
    assert files is not None
    return evolve(lock, digest=lockfile.bundle_digest(files))


def _environments(
    requested: dict[str, tuple[str, ...]], lock: Lock, options: argparse.Namespace
) -> dict[str, Environment]:
    kept = {name: one for name, one in lock.environments.items() if requested.get(name) == one.requirements}
    if not options.update or (options.names and ENVIRONMENT not in options.names):
        return kept
    try:
        return resolve(requested, options.python or os.environ.get("PYTHON") or "python3")
    except ResolveError as error:
        raise UsageError(str(error)) from error


def _report(before: Lock, lock: Lock, path: str) -> tuple[str, int]:
    """Return a pair: the text to print, which lists changed and missing pins, and the exit status. The status is 1 if a
    pin is missing.
    """
    was = {(one.kind, one.id, one.requested, one.part): one.revision for one in before.pins}
    lines = []
    for one in lock.pins:
        old = was.get((one.kind, one.id, one.requested, one.part))
        if old != one.revision:
            lines.append(f"{one.kind} {one.name} {f'{old[:12]} -> ' if old else ''}{one.revision[:12]}")
    for name, environment in sorted(lock.environments.items()):
        if before.environments.get(name) != environment:
            lines.append(f"{name}: {len(environment.resolved)} packages")
    missing = [state.described(reference) for reference in state.unpinned(lock)]
    if not lock.environments:
        missing.append("the packages")
    lines.append(f"wrote {path}")
    if missing:
        lines.append(
            f"not pinned yet: {', '.join(missing)}; `xpc lock --update {path.removesuffix('.lock')}` pins them"
        )
    return "".join(f"{visible(line)}\n" for line in lines), int(bool(missing))
