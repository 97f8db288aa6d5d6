"""Load a local data file for a check. If the bundle gets a copy of the file, load its contents; otherwise load the
stored survey of its rows (counts and first rows).
"""

from __future__ import annotations

from xpc.compiler.data.rows import columns, survey
from xpc.compiler.files.workspace import DATA_FORMATS, MAX_DATA, Unreadable, Workspace, bundle_name
from xpc.compiler.language.codes import Problems, report
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve

FEW = 64
"""The largest number of files of a folder for which the surveys of the files are stored. The surveys of a larger folder
would displace the stored surveys of other files.
"""


def contents(source: DataSource, workspace: Workspace, remember: bool = True) -> tuple[DataSource, list[Diagnostic]]:
    """Return a pair: the source, and findings. If the bundle gets a copy of the file, the returned source has the
    file's contents; otherwise it has the stored survey of the file's rows.
    """
    path = source.path
    if source.parts:
        return _folder(source, workspace)
    if path is None or not path.lower().endswith(DATA_FORMATS) or workspace.kind(path) != "file":
        return source, []
    problems = Problems()
    try:
        # the file is too large to be copied, so the bundle contains only its digest
        if workspace.size(path) > _most_copied(workspace):
            return evolve(source, sha256=workspace.digest(path)), []
    except OSError:
        return source, []  # the file was deleted between two reads, and another finding reports the missing file
    hidden = workspace.outside_fault(path)
    if hidden:
        help = "put a copy into the spec's folder, if everybody may read it"
        problems.report("XP590", hidden + ", and a copy goes into the bundle", source.label, help=help)
    # imported only here, because most specs have no local data
    from xpc.compiler.data.survey_cache import CachedSurvey, keep, recall

    memory, location = workspace.memory if remember else None, workspace.locate(path)[1]
    key = (
        *columns(source),
        source.context or "",
        *(f"{name}\0{role}" for name, role in source.roles),
        source.documents or "",
    )
    known = None if memory is None else recall(memory, location, source.shape, key)
    if known is not None and not workspace.copies:
        return _bundled(evolve(source, survey=known.survey), path, known.digest), problems
    before = None if memory is None else memory.stamp(location)
    try:
        read = workspace.read(path, limit=MAX_DATA)
    except Unreadable as error:
        return source, [*problems, report("XP114", str(error), source.label)]
    source = _bundled(evolve(source, content=read.data), path, read.digest)
    if known is not None and known.digest == read.digest:
        return evolve(source, survey=known.survey), problems
    found = None if memory is None else survey(source)
    if memory is not None and found is not None:
        keep(memory, location, before, source.shape, key, CachedSurvey(read.digest, found))
    return source, problems


def _folder(source: DataSource, workspace: Workspace) -> tuple[DataSource, list[Diagnostic]]:
    """Return a pair: the source for a folder, and findings. The returned source has the contents of the folder's files.
    If all files together are too large to be copied into a bundle, the returned source has only the digests of the
    files.
    """
    parts: list[DataSource] = []
    problems = Problems()
    names = [part.path or "" for part in source.parts]
    try:
        large = sum(map(workspace.size, names)) > _most_copied(workspace)
    except OSError as error:
        wrong = f"`{source.name[:80]}` cannot be read ({error.strerror or error})"
        return source, [report("XP114", wrong, source.label, help="make the files readable")]
    for name, part in zip(names, source.parts, strict=True):
        if large:
            parts.append(evolve(part, sha256=workspace.digest(name)))
            continue
        read, found = contents(part, workspace, len(names) <= FEW)
        seen = survey(read)
        parts.append(evolve(read, found=None if seen is None else seen.columns, survey=seen))
        problems += [each for each in found if each.code not in {other.code for other in problems}]
    return evolve(source, parts=tuple(parts)), problems


def _most_copied(workspace: Workspace) -> int:
    return MAX_DATA if workspace.most_copied is None else workspace.most_copied


def _bundled(source: DataSource, path: str, digest: str) -> DataSource:
    return evolve(source, sha256=digest, bundled="data/" + bundle_name(path, digest))
