"""Compile a spec, with one function per step: read, load, resolve, check, lower."""

from __future__ import annotations

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.advisor import Advisor
from xpc.compiler.language.load import MergedSpec, load
from xpc.compiler.resolve.experiment import resolve
from xpc.compiler.rules import ASSUMED, FIRST_RULE, check, relevant
from xpc.compiler.rules.core.legality import error_codes
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.diagnostic import ERROR, Diagnostic, Silenced
from xpc.grammar.read import decode
from xpc.grammar.record import evolve, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.files.pins import Lock
    from xpc.compiler.resolve.image_digests import Known
    from xpc.compiler.resolve.sweep import Grid
    from xpc.compiler.resolve.sweep_member import Member

PASTED = (
    "XP014", "XP020", "XP021", "XP022", "XP023", "XP024", "XP025", "XP030", "XP032", "XP040", "XP043", "XP044", "XP101",
    "XP102", "XP103", "XP104", "XP106", "XP112",
)  # fmt: skip
"""Codes of findings that often have pasted text as their cause: options of a command line, YAML, or blocks and numbers
of another tool.
"""


@record
class Checked:
    """The result of checking a spec. `spec` is None if there is an error.

    `silenced` are the findings that a comment in the spec silences, and `problems` are all others. For a sweep,
    `members` has the specs of all members, and `spec` is the first of these. `lock` has the pins of the spec's lock.
    """

    spec: CheckedSpec | None
    problems: tuple[Diagnostic, ...]
    silenced: tuple[Silenced, ...] = ()
    members: tuple[Member, ...] = ()
    lock: Lock | None = None


def _suggestions() -> Advisor:
    """The advisor, which suggests names and values for a wrong spec. It is imported only here, because a spec without
    errors does not need it.
    """
    from xpc.compiler.suggest.advisor import Suggestions

    return Suggestions()


def check_text(data: bytes, name: str, workspace: Workspace) -> Checked:
    """Read, parse, resolve and check one spec. Never raises for any input."""
    checked = _check_text(data, name, workspace)

    def findings(text: str) -> tuple[Diagnostic, ...]:
        return _check_text(text.encode(), name, evolve(workspace, pins=checked.lock)).problems

    if checked.spec is None and any(one.code < FIRST_RULE and one.edits for one in checked.problems):
        # imported only here, because few specs have misspelt names or wrong values
        from xpc.compiler.pipeline.cascades import in_one_round

        return evolve(checked, problems=in_one_round(checked.problems, name, findings))
    if any("`target " in (one.help or "") for one in checked.problems):
        from xpc.compiler.pipeline.targets import with_errors_there  # imported only here, because few helps name one

        problems = with_errors_there(checked.problems, data.decode("utf-8", "replace"), findings)
        return evolve(checked, problems=problems)
    return checked


def _check_text(data: bytes, name: str, workspace: Workspace) -> Checked:
    source, problems = decode(data, name)
    loaded = load(source, workspace, _suggestions)
    loaded.problems[:0] = problems
    pinned_by = workspace.lock
    # a lock that is a folder, a pipe or a broken link is an error, too: if xpc ignored it, nothing would be pinned
    if pinned_by and workspace.pins is None and (workspace.kind(pinned_by) or workspace.other_kind(pinned_by)):
        from xpc.compiler.resolve import lockfile  # imported only here, because most specs have no lock

        lock, wrong = lockfile.read(workspace)
        workspace = evolve(workspace, pins=lock)
        loaded.problems += wrong
    if any(one.code in PASTED for one in loaded.problems):
        # imported only here, because few specs contain the notation of another tool
        from xpc.compiler.suggest.blocks import rewrite_foreign_forms

        loaded.problems[:], intended = rewrite_foreign_forms(loaded.problems)
        loaded.intended |= intended
    if loaded.sweep is not None:
        from xpc.compiler.resolve.sweep import read  # imported only here, because only sweeps need it

        grid = read(loaded)
        if grid.groups or grid.problems:
            return _check_sweep(loaded, grid, workspace)
    spec, resolve_problems = resolve(loaded, workspace, error_codes)
    found = [*loaded.problems, *resolve_problems]
    if spec is not None:
        found += check(spec)
    return _checked(loaded, spec, relevant(found), workspace)


def _check_sweep(loaded: MergedSpec, grid: Grid, workspace: Workspace) -> Checked:
    """Check every run of a sweep."""
    from xpc.compiler.pipeline.sweep_members import members

    runs, found = members(loaded, grid, workspace)
    if any(one.severity == ERROR for one in grid.problems):
        # notes about assumed values are dropped, because the line with the error may state these values
        found = [one for one in found if one.code != ASSUMED]
    checked = _checked(loaded, runs[0].spec, relevant(found), workspace)
    return evolve(checked, members=tuple(runs) if checked.spec is not None else ())


def _checked(loaded: MergedSpec, spec: Spec | None, found: list[Diagnostic], workspace: Workspace) -> Checked:
    wrong = any(one.severity == ERROR for one in found)
    silenced: tuple[Silenced, ...] = ()
    if any("xpc:" in one.source.text for one in loaded.files):
        from xpc.compiler.pipeline.silence import apply  # imported only here, because few specs silence findings

        found, silenced = apply(loaded.files, found)
    checked = None if spec is None or wrong else CheckedSpec.of(spec, found, silenced)
    return Checked(checked, tuple(found), silenced, lock=workspace.pins)


def compile_text(data: bytes, name: str, workspace: Workspace) -> tuple[dict[str, bytes] | None, Checked]:
    """Check and compile a spec. Returns a pair: the files of the bundle by name, or None if there is an error; and the
    result of the check.
    """
    workspace = evolve(workspace, hashes=True)
    checked = check_text(data, name, workspace)
    if checked.spec is None:
        return None, checked
    from xpc.compiler.lower import lower  # imported only here, because `check` does not need it

    images: Known = {}
    checked = evolve(
        checked,
        spec=_with_digests(checked.spec, workspace, images),
        members=tuple(
            evolve(one, spec=one.spec and _with_digests(one.spec, workspace, images)) for one in checked.members
        ),
    )
    assert checked.spec is not None
    if checked.members:
        from xpc.compiler.lower.sweep import sweep

        return sweep(checked.members), checked
    return lower(checked.spec), checked


def _with_digests(spec: CheckedSpec, workspace: Workspace, images: Known) -> CheckedSpec:
    """The spec with the digests of the files that the run reads and the bundle has no copy of: files of local models,
    and images whose paths are in the rows.
    """
    from xpc.compiler.resolve.weights import with_weights

    spec = with_weights(spec, workspace)
    if spec.reads_images:
        from xpc.compiler.resolve.image_digests import with_images  # imported only here, because few specs have images

        spec = with_images(spec, workspace, images)
    return spec
