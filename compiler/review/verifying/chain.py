"""`xpc verify --all [DIR]`: verify everything from the git commit to the weights, with one line for each item.

    commit 3f2a9c1e7b12: 41 tracked files are the same as in this commit
    specs/a.xp: compiles
    specs/a.xp.lock: is current
    specs/a.bundle: is what specs/a.xp compiles to
    models/tiny: 7 files are unchanged since specs/a.bundle was compiled
    out/a: is what specs/a.bundle asks for: 10 steps, 80 sequences

Each line has an exit status. The exit status of the command is the highest one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from xpc.compiler.files import bundled, lfs
from xpc.compiler.files.bundle import MANIFESTS
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.files.folder_contents import walk
from xpc.compiler.files.inputs import UsageError, read_spec
from xpc.compiler.files.workspace import read_toml
from xpc.compiler.locking.state import refusals
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.render.visible import visible
from xpc.compiler.review import repository
from xpc.compiler.review.finished_run import DECISIVE, SUMMARY, bundle_digest, read_json
from xpc.compiler.review.verifying import Verify
from xpc.compiler.review.verifying.run_files import METRICS, RUN
from xpc.compiler.rules import FIRST_RULE
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.record import entity, evolve, field

MOST = 100_000
"""Maximum number of folders that are visited."""
NO_RUN = "XP117"
"""The code of the error for a spec without a `train` sentence. Such a file does not have to compile, because other
specs may extend it.
"""
Line = tuple[str, int]


@entity
class FolderContents:
    """The items below a folder: specs, bundles and sweeps, and the output folders of runs."""

    specs: list[str] = field(factory=list)
    bundles: list[str] = field(factory=list)
    runs: list[str] = field(factory=list)


def chain(folder: str, verify: Verify, verify_run: Verify, quick: bool = False) -> tuple[str, int]:
    """Return the printed lines and the highest exit status. `verify` is a function that checks a bundle (against its
    spec, if there is one), and `verify_run` is a function that checks a finished run against its bundle. With `quick`,
    the lines about locks are based on stored digests: an unchanged file of a local model is not read. Raises
    UsageError.
    """
    found = _walked(folder)
    if not (found.specs or found.bundles or found.runs):
        raise UsageError(f"{folder} has no spec, bundle or run")
    lines = [*_commit(folder)]
    for spec in found.specs:
        lines += spec_lines(spec, quick)
    lines += bundle_lines(found, found, verify, verify_run)
    return as_text(lines)


def as_text(lines: Sequence[Line]) -> tuple[str, int]:
    """The lines as one text, and the highest exit status."""
    # the name of a file may contain a line break, and must not look like a line of its own
    return "".join(f"{visible(line)}\n" for line, _ in lines), max((status for _, status in lines), default=0)


def bundle_lines(wanted: FolderContents, found: FolderContents, verify: Verify, verify_run: Verify) -> Iterator[Line]:
    """Verify the bundles and runs in `wanted`, and yield a line for each. A bundle is compared with its spec, and a run
    with its bundle. These specs and bundles are searched for in `found`.
    """
    specs = by_name(found.specs)
    for bundle in wanted.bundles:
        yield from _bundle(bundle, specs, verify)
    yield from _runs(wanted.runs, found.bundles, verify_run)


def _walked(folder: str) -> FolderContents:
    """Find the specs, bundles and runs below a folder. The search does not enter symbolic links, bundles, output
    folders, hidden folders, and folders such as `node_modules`.
    """
    out = FolderContents()
    for count, (where, folders, names) in enumerate(walk(folder, _unreadable)):
        if count > MOST:
            raise UsageError(f"{folder} has more than {MOST:,} folders")
        path = os.path.normpath(where)
        folders[:] = sorted(one for one in folders if not one.startswith((".", "__", "checkpoint-", "node_modules")))
        if is_bundle(names):
            out.bundles.append(path)
            folders.clear()
        elif is_run(names):
            out.runs.append(path)
            folders.clear()
        else:
            paths = [os.path.normpath(os.path.join(where, one)) for one in sorted(names) if one.endswith(".xp")]
            out.specs.extend(one for one in paths if os.path.isfile(one) and not os.path.islink(one))
    return out


def is_bundle(names: Container[str]) -> bool:
    """Whether a folder with these files is a bundle or a sweep, even if a bundle's manifest was deleted."""
    return any(one in names for one in MANIFESTS) or all(one in names for one in (bundled.SPEC, DECISIVE[0]))


def is_run(names: Container[str]) -> bool:
    """Whether a folder with these files is the output folder of a run, even if one of these files was deleted."""
    return RUN in names or (SUMMARY in names and METRICS in names)


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error


def _commit(folder: str) -> Iterator[Line]:
    """Lines about the commit: its hash, and the tracked files below the folder that differ from the commit."""
    location = repository.find(folder)
    commit = None if location is None else location.commit("HEAD")
    listed = None
    if location is not None and commit is not None:
        with suppress(UsageError):
            listed = repository.Commit.of(location, commit)
    if location is None or commit is None or listed is None:
        yield f"{folder}: not in a commit", 0
        return
    start = location.prefix(folder)
    same, other = 0, list[str]()
    for name, (mode, blob) in listed.files.items():
        if mode.startswith("100") and name.startswith(start):
            if location.blob(name, len(blob)) == blob:
                same += 1
            else:
                other.append(name)
    for name, hash in listed.modules.items():
        module = repository.find(os.path.join(location.top, name)) if name.startswith(start) else None
        if module is not None and module.top == os.path.join(location.top, name) and module.commit("HEAD") != hash:
            other.append(name)
    stored = _stored(listed, [name for name in other if name in listed.files])
    same, other = same + len(stored), [name for name in other if name not in stored]
    if other:
        more = f" and {len(other) - 1} more differ" if len(other) > 1 else " differs"
        yield f"commit {commit[:12]}: {other[0].removeprefix(start)}{more} from it", 0
    else:
        yield f"commit {commit[:12]}: {same:,} tracked files are the same as in this commit", 0


def _stored(commit: repository.Commit, names: Sequence[str]) -> set[str]:
    """The files in the working tree for which the commit has Git LFS pointers, and whose contents agree with these
    pointers.
    """
    location, out = commit.repository, set[str]()
    sizes = location.sizes(commit.files[name][1] for name in names)
    small = [name for name in names if sizes.get(commit.files[name][1], lfs.MOST + 1) <= lfs.MOST]
    commit.read(*small)
    for name in small:
        found = lfs.pointer(commit.blobs.get(commit.files[name][1], b""))
        path = os.path.join(location.top, name)
        if found is not None and repository.stored_file(location, name, *found) == path:
            out.add(name)
    return out


def spec_lines(path: str, quick: bool, compiles: bool = True) -> Iterator[Line]:
    """Lines that say whether a spec compiles and whether its lock is current. The line about compiling is left out if
    `compiles` is false.
    """
    try:
        yield from _spec(path, quick) if compiles else _lock(path, quick)
    except UsageError as error:  # an error in one spec must not hide the lines about the other specs
        yield str(error) if path in str(error) else f"{path}: {error}", 1


def _spec(path: str, quick: bool) -> Iterator[Line]:
    """Lines on whether a spec compiles, and whether its lock is current."""
    data, name, workspace = read_spec(path)
    # a run that does not fit in its GPUs also counts as compiling
    checked = check_text(data, name, evolve(workspace, allow_oom=True))
    errors = [one for one in checked.problems if one.severity == ERROR]
    if {one.code for one in errors if one.code < FIRST_RULE} == {NO_RUN}:
        yield f"{path}: this spec describes no run; other specs extend it", 0
    elif errors:
        yield f"{path}: does not compile: {errors[0].code} {errors[0].message}", 1
    else:
        yield f"{path}: compiles", 0
        if os.path.lexists(f"{path}.lock"):
            yield from _lock(path, quick)


def _lock(path: str, quick: bool) -> Iterator[Line]:
    """A line that says whether the lock of the spec `path` is current. No line if the spec does not compile, because
    `spec_lines` reports this in another line.
    """
    data, name, workspace = read_spec(path)
    workspace = evolve(workspace, allow_oom=True, memory=user_memory(), trusts_memory=quick)
    files, checked = compile_text(data, name, workspace)
    if files is not None:
        wrong = list(refusals(checked, workspace, files))
        yield f"{path}.lock: {wrong[0] if wrong else 'is current'}", int(bool(wrong))


def _bundle(folder: str, specs: Mapping[str, Sequence[str]], verify: Verify) -> Iterator[Line]:
    """Lines that say whether a bundle or a sweep is what its spec compiles to, and whether the files of its local
    models are unchanged.
    """
    spec = spec_of(folder, specs)
    text, status = verify(folder, spec)
    line, _, more = text.partition("\n")
    reported = line.removeprefix(folder).lstrip(" :/") if line.startswith((f"{folder} ", f"{folder}/")) else line
    yield f"{folder}: {reported}", status
    if status == 0:
        table: Mapping[str, Any] = next((table for _, table in _tables(folder)), {})
        weights = table.get("weights", {})
        for model, count in Counter(os.path.dirname(name) for name in weights).items():
            yield f"{_next_to(spec or folder, model)}: {count} files are unchanged since {folder} was compiled", 0
        for source in table.get("data", ()):
            if source.get("image_files"):
                path = _next_to(spec or folder, source["path"])
                yield f"{path}: {source['image_files']:,} images are unchanged since {folder} was compiled", 0
        yield from ((f"{folder}: {one}" if folder not in one else one, 0) for one in more.splitlines())


def _next_to(path: str, name: str) -> str:
    """The path of a file or folder. `name` is its path relative to the folder that contains the spec or bundle
    `path`.
    """
    return os.path.normpath(os.path.join(os.path.dirname(path), name))


def by_name(specs: Sequence[str]) -> dict[str, list[str]]:
    """Map the file names of specs to the paths with this name."""
    out: dict[str, list[str]] = {}
    for one in specs:
        out.setdefault(os.path.basename(one), []).append(one)
    return out


def spec_of(folder: str, specs: Mapping[str, Sequence[str]]) -> str | None:
    """The spec of a bundle. This is the spec next to the bundle with the same name; if there is none, the only spec
    with this name in another folder. None if no spec has this name, or if several specs in other folders have it.
    `specs` maps file names to paths of specs.
    """
    for manifest, head in zip(MANIFESTS, ("bundle", "sweep"), strict=True):
        table = read_toml(os.path.join(folder, manifest)) or {}
        name = table.get(head, {}).get("spec") if isinstance(table.get(head), dict) else None
        if isinstance(name, str):
            next_to = os.path.normpath(os.path.join(os.path.dirname(folder), name))
            named = specs.get(name, [])
            return next_to if next_to in named else named[0] if len(named) == 1 else None
    return None


def _tables(folder: str) -> Iterator[tuple[str, Mapping[str, Mapping[str, str]]]]:
    """Yield the folder and the manifest of a bundle, or of each member of a sweep."""
    members = os.path.join(folder, "members")
    locations = [folder]
    if not os.path.isfile(os.path.join(folder, bundled.MANIFEST)) and os.path.isdir(members):
        locations = [os.path.join(members, one) for one in sorted(os.listdir(members))]
    yield from ((one, table) for one in locations if (table := bundled.manifest(one)) is not None)


def _runs(runs: Sequence[str], folders: Sequence[str], verify_run: Verify) -> Iterator[Line]:
    """A line for each run. A finished run is compared with the bundle that started it."""
    if not runs:
        return
    bundles = {bundle_digest(location): location for one in folders for location, _ in _tables(one)}
    for run in runs:
        if not os.path.lexists(os.path.join(run, SUMMARY)):
            yield f"{run}: has no {SUMMARY}, which a run writes when it ends, and is not verified", 0
            continue
        try:
            used = read_json(os.path.join(run, SUMMARY)).get("bundle")
        except UsageError as error:
            yield f"{run}: {error}", 1
            continue
        bundle = bundles.get(str(used))
        if bundle is None:
            yield f"{run}: the bundle that it used is not here", 1
            continue
        try:
            text, status = verify_run(bundle, run)
        except UsageError as error:
            yield f"{run}: {error}", 1
            continue
        yield f"{run}: {text.partition(chr(10))[0].removeprefix(run).lstrip(' :')}", status
