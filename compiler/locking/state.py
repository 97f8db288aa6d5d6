"""Compare a compiled spec with its lock, and find the pins that are outdated or missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler import __version__
from xpc.compiler.data.rows import count
from xpc.compiler.files.pins import Lock, Pin
from xpc.compiler.files.secrets import pinned
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.locking.environments import requirements
from xpc.compiler.pipeline import Checked
from xpc.compiler.resolve.lockfile import bundle_digest
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.resources import DataSource

UPDATE = "`xpc lock --update` pins it"
RENEW = "`xpc lock` writes it again"


def specs(checked: Checked) -> list[CheckedSpec]:
    """The spec of a run. For a sweep, the specs of all its members."""
    if checked.members:
        return [one.spec for one in checked.members if one.spec is not None]
    return [] if checked.spec is None else [checked.spec]


def _sources(checked: Checked) -> Iterator[DataSource]:
    for spec in specs(checked):
        yield from spec.sources


def digests(checked: Checked, workspace: Workspace) -> dict[str, str]:
    """Map each file that affects the run to its digest. The keys are the names of the files in the spec."""
    reads = {name: digest for spec in specs(checked) for name, digest in spec.inputs.items()}
    out = {name: f"sha256:{digest}" for name, digest in reads.items() if name != workspace.lock}
    for spec in specs(checked):
        out |= {name: f"sha256:{digest}" for name, digest in spec.weights.items()}
        out |= {f"{path} (images)": f"sha256:{one.sha256}" for path, one in spec.images.items() if one.name}
    for source in _sources(checked):
        for one in (source, *source.parts):
            if one.path is not None and one.sha256 is not None:
                out[one.path] = f"sha256:{one.sha256}"
    return out


def counts(checked: Checked) -> dict[str, int]:
    """The number of rows of each local data file, if they can be counted."""
    found = {source.path: count(source) for source in _sources(checked) if source.path is not None}
    return {path: rows for path, rows in found.items() if rows is not None}


def described(reference: tuple[str, str, str, str]) -> str:
    """A reference to a repository in words: `the dataset me/rows`."""
    kind, id, requested, part = reference
    return f"the {kind} {Pin(kind, id, requested, '', part).name}"


def unpinned(lock: Lock) -> list[tuple[str, str, str, str]]:
    """The references that neither the spec nor the lock pins to a commit. A reference is a tuple: kind, id, branch,
    configuration.
    """
    return [reference for reference, pin in lock.lookups.items() if pin is None and not pinned(reference[2])]


def refusals(checked: Checked, workspace: Workspace, files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the reasons, as sentences, why `--locked` refuses the spec. There are none if the lock fits the spec."""
    lock = checked.lock
    if lock is None:
        yield f"there is no {workspace.lock or 'lock'}: `xpc lock --update` writes it"
        return
    for reference in unpinned(lock):
        yield f"{described(reference)} is not pinned; {UPDATE}"
    used = [pin for pin in lock.lookups.values() if pin is not None]
    for pin in lock.pins:
        if pin not in used:
            yield f"the spec no longer names the {pin.kind} {pin.name}; {RENEW}"
    now = digests(checked, workspace)
    for name in sorted({*now, *lock.files}):
        if now.get(name) != lock.files.get(name):
            gone = "is gone or not used" if name not in now else "has changed"
            what = "is not in the lock" if name not in lock.files else gone
            yield f"{name} {what}; {RENEW}"
    target = specs(checked)[0].stack.name
    if target != lock.target:
        yield f"the lock is for {lock.target}, but the spec is for {target}; {RENEW}"
    for name, lines in requirements(files).items():
        environment = lock.environments.get(name)
        if environment is None or environment.requirements != lines:
            yield f"the packages of {name} are not resolved; {UPDATE.replace('pins it', 'resolves them')}"
    if bundle_digest(files) != lock.digest:
        by = "" if lock.xpc == __version__ else f" (xpc {lock.xpc} wrote it, this is {__version__})"
        yield f"the lock was written for another bundle of this spec{by}; {RENEW}"
