"""The changes of a pull request, spec by spec. An entry says whether a spec is changed, new, gone, renamed or broken,
and why, and how its GPU-hours, disk space and cost change.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from xpc.compiler.files.inputs import MAX_SPEC, UsageError
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.render import render
from xpc.compiler.review.changes import compare_operands
from xpc.compiler.review.consequences import IS, Forecast, follows
from xpc.compiler.review.differences.allowed import first_line
from xpc.compiler.review.differences.change import Change
from xpc.compiler.review.operands import Operand, UncheckedOperand, open_operand
from xpc.compiler.review.pull_request.affected import affected
from xpc.compiler.review.pull_request.alerts import Alerts, alerts, warning_line
from xpc.compiler.review.pull_request.causes import Cause, cause
from xpc.compiler.review.pull_request.previews import preview_changes
from xpc.compiler.review.repository import Commit, Repository, of_folder
from xpc.compiler.review.revision import snapshot
from xpc.compiler.review.show import as_text, headline
from xpc.compiler.review.spec_finder import Specs, parents, specs_of_commit, specs_of_work_tree
from xpc.compiler.review.totals import MISFITS, added, forecasts, summed
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    Opened = Callable[[str], tuple[bytes, str, Workspace]]
    Prices = Mapping[str, float]

BROKEN, CHANGED, NEW, GONE, RENAMED, COPIES = "broken", "changed", "new", "gone", "renamed", "copies"
SILENCED = "silenced"
"""The kinds of entries of the comment on a pull request. The entry of kind `COPIES` is about committed bundles:
some have changed, but they are not compared. A spec of kind `SILENCED` has the same run as before, but a new
comment in it silences a warning.
"""
GIB = 2**30
SIMILAR = 0.7
"""If the similarity of a deleted and a new spec (from 0 to 1) is at least this, they count as one spec that was
renamed.
"""
PAIRED = 40
"""At most this many new specs, and at most this many deleted specs, are compared to find renamed specs."""
LONGEST = 20_000
"""Only this many bytes at the beginning of a spec are compared to find out whether it was renamed."""
OF_ROW = ("steps", "memory", "GPU-hours", "cost", MISFITS)
"""If several specs change for the same reason, the comment shows them as one group. In the group, the line of each spec
has these quantities.
"""
SUMMED = 1000
"""If a sweep has more members than this, their GPU-hours, disk space and cost are not added up."""


@record
class Entry:
    """The change of one spec: a summary of one line, and the full text. `broken` is true if the spec does not compile.

    `cause` lists the changed lines of specs if these lines alone explain the change; otherwise it is empty. `members`
    is the number of members of a sweep that change; 0 for a single run. `hours`, `disk` and `cost` are the changes in
    GPU-hours, bytes and money; None if they are unknown.
    """

    path: str
    line: str
    text: str
    broken: bool = False
    kind: str = CHANGED
    cause: tuple[str, ...] = ()
    hours: float | None = None
    disk: float | None = None
    cost: float | None = None
    members: int = 0
    alerts: Alerts = Alerts()


def entries(folder: str, base: str, prices: Prices | None = None) -> Iterator[Entry]:
    """Yield an entry for every spec that is new, gone, broken or renamed since the commit `base`, and for every spec
    whose run has changed since then.

    Raises UsageError.
    """
    repository = of_folder(folder)
    before, after = fork_and_head(repository, base)
    changed = changed_files(before, after)
    was, now = specs_of_commit(before), specs_of_work_tree(repository)
    start = repository.prefix(folder)
    with snapshot(before) as opened:
        found = _Comparer(repository, opened, prices or {}, start)
        renamed = dict(_renamed(before, after, was, now))
        shown: dict[tuple[str, ...], str] = {}
        for path in affected(repository, was, now, changed):
            if path in renamed.values() or not path.startswith(start):
                continue
            try:
                if path not in was.runs:
                    yield found.new(path)
                elif path in now.runs:
                    yield from found.compared(path, path, shown)
                elif path in renamed:
                    yield from found.compared(path, renamed[path], shown)
                else:
                    yield evolve(found.gone(path), line=_why_gone(path, after, now))
            except UsageError as error:  # an error in one spec must not hide the changes of the others
                why = str(error).replace(os.path.join(repository.top, start), "")
                yield Entry(found.shown(path), f"cannot be compared: {why}", "", True, BROKEN)
        bundles = [path for path in _changed_bundles({*was.copies, *now.copies}, changed) if path.startswith(start)]
        if bundles:
            yield Entry(found.shown(bundles[0]), excluded(len(bundles), *EDITED), "", kind=COPIES)
        for path, line, text in preview_changes(before, after, start):
            yield Entry(found.shown(path), line, text, hours=0, disk=0, cost=0)


def _changed_bundles(copies: Iterable[str], changed: Iterable[str]) -> list[str]:
    """The bundles and sweeps with changed files, sorted. `copies` are the `spec.xp` of all bundles, also of a sweep's
    members.
    """
    folders = {os.path.dirname(path).partition("/members/")[0] for path in copies}
    return sorted({folder for path in changed for folder in parents(path) if folder in folders})


EDITED = (
    "a bundle with changed files; only `xpc verify` compares it with its spec",
    "bundles with changed files; only `xpc verify` compares them with their specs",
)
COPIED = (
    "the spec of a bundle; only `xpc verify` compares it",
    "the specs of bundles; only `xpc verify` compares them",
)
"""Arguments for `excluded`: a phrase for one file, and a phrase for several. `EDITED` is about changed bundles, and
`COPIED` about the copies of specs in bundles.
"""


def excluded(count: int, one: str, several: str) -> str:
    """A message about `count` files that are not compared. The caller prints the name of the first file before this
    message.
    """
    return f"is {one}" if count == 1 else f"and {count - 1:,} more are {several}"


def matching(pattern: str) -> list[str]:
    """The files that a glob matches, sorted. If `pattern` is an existing path or has no wildcards, the result is
    `pattern` itself.
    """
    if glob.has_magic(pattern) and not os.path.exists(pattern):
        return sorted(glob.glob(pattern, recursive=True))
    return [pattern]


def _why_gone(path: str, after: Commit, now: Specs) -> str:
    if path in now.links:
        return "is a symbolic link now, and is not checked"
    return "no longer describes a run: it has no `train`" if path in after.files else "deleted"


def fork_and_head(repository: Repository, base: str) -> tuple[Commit, Commit]:
    """The merge base of HEAD and `base`, and HEAD itself. Raises UsageError if git does not know one of the commits."""
    start, head = (_commit(repository, revision) for revision in (base, "HEAD"))
    fork = (repository.git("merge-base", start, head) or start.encode()).decode().strip()
    return Commit.of(repository, fork), Commit.of(repository, head)


def _commit(repository: Repository, revision: str) -> str:
    found = repository.commit(revision)
    if found is None:
        raise UsageError(f"git does not know the commit {revision}; the workflow's checkout needs `fetch-depth: 0`")
    return found


def changed_files(before: Commit, after: Commit) -> set[str]:
    """The paths of files whose contents or modes differ between two commits, and of submodules that point to another
    commit.
    """
    tables: tuple[tuple[Mapping[str, object], Mapping[str, object]], ...] = (
        (before.files, after.files), (before.modules, after.modules),
    )  # fmt: skip
    return {path for was, now in tables for path in {*was, *now} if was.get(path) != now.get(path)}


def _renamed(before: Commit, after: Commit, was: Specs, now: Specs) -> Iterator[tuple[str, str]]:
    """Pairs of a deleted and a new spec (their paths) whose texts are equal or similar."""
    gone = [path for path in was.runs if path not in after.files][:PAIRED]
    new = [path for path in now.runs if path not in before.files][:PAIRED]
    after.read(*new, most=MAX_SPEC)
    for old in gone:
        text = _text(before, old)
        best, most = "", SIMILAR
        for path in new:
            if before.files[old] == after.files.get(path):
                best = path
                break
            texts = text, _text(after, path)
            if _sentence(texts[0]) != _sentence(texts[1]):
                continue
            ratio = _similarity(*texts)
            if ratio >= most:
                best, most = path, ratio
        if best:
            new.remove(best)
            yield old, best


def _similarity(one: str, other: str) -> float:
    """The share of lines that two texts have in common, from 0 to 1. The order of the lines does not matter, because
    comparing it would take much longer.
    """
    counts = Counter(one.splitlines()), Counter(other.splitlines())
    return 2 * (counts[0] & counts[1]).total() / max(1, counts[0].total() + counts[1].total())


def _text(commit: Commit, path: str) -> str:
    return (commit.small(path, MAX_SPEC) or b"")[:LONGEST].decode("utf-8", "replace")


def _sentence(text: str) -> str:
    """The `train` line of a spec up to `for` or `with`: the model and the data."""
    found = next((line for line in text.splitlines() if line.lstrip().startswith("train ")), "")
    return re.split(" for | with ", found, maxsplit=1)[0]


class _Comparer:
    """Compares the specs at the merge base with the specs in the working tree. `opened` is a function that reads a spec
    at the merge base.
    """

    def __init__(self, repository: Repository, opened: Opened, prices: Prices, start: str) -> None:
        self.repository, self.opened, self.prices, self.start = repository, opened, prices, start

    def shown(self, path: str) -> str:
        """The path relative to the compared folder."""
        return path.removeprefix(self.start)

    def before(self, path: str) -> Operand:
        """The spec at the merge base."""
        data, name, workspace = self.opened(path)
        return UncheckedOperand(path, data, name, workspace, "").check(name)

    def was_broken(self, path: str) -> bool:
        """Whether the spec has errors at the merge base, too."""
        try:
            return not self.before(path).runs
        except UsageError:
            return True

    def after(self, path: str, name: str = "") -> Operand:
        """The spec in the working tree. A renamed spec is checked under its old name `name`, so that the comparison
        shows no difference of names.
        """
        with open_operand(os.path.join(self.repository.top, path)) as one:
            return evolve(one, title=path).check(name or one.name)

    def compared(self, old: str, new: str, shown: dict[tuple[str, ...], str]) -> Iterator[Entry]:
        """For a spec that exists at both commits, yield an entry if the spec was renamed, or if its run has changed. If
        an earlier entry has the same cause, the new entry gets no full text. For this, `shown` maps the causes of
        earlier entries to the kinds of these entries.
        """
        now = self.after(new, os.path.basename(old) if old != new else "")
        if not now.runs:
            line = "does not compile" + (", as before this pull request" if self.was_broken(old) else "")
            yield Entry(self.shown(new), line, render(now.errors, "full"), True, BROKEN)
            return
        was = self.before(old)
        if not was.runs:
            yield Entry(self.shown(new), "compiles again", "")
            return
        title, kind = self.shown(new), CHANGED
        if old != new:
            title, kind = f"{self.shown(old)} -> {title}", RENAMED
        why = cause(new, was, now)
        before, after = self._forecasts(was), self._forecasts(now)
        totals = _totals(before, after)
        alarm = alerts(was.runs, now.runs, before, after)
        found = None if why.lines in shown else compare_operands(was, now, self.prices)
        if found is None:
            kind = kind if old != new else shown[why.lines]
            line = _row(now, before, after, why, alarm)
            yield Entry(title, line, "", False, kind, why.lines, *totals, why.members, alarm)
            return
        if found.equal and old == new:
            if not first_line(found.allowed):
                return
            kind = SILENCED
        if why.lines:
            shown[why.lines] = kind if old == new else SILENCED if found.equal else CHANGED
        text = as_text(found).partition("\n")[2].strip("\n")
        yield Entry(title, headline(found), text, False, kind, why.lines, *totals, why.members, alarm)

    def new(self, path: str) -> Entry:
        """The entry of a new spec: its model, its data, its hardware, and its plan."""
        now = self.after(path)
        if not now.runs:
            return Entry(self.shown(path), "does not compile", render(now.errors, "full"), True, BROKEN)
        planned = self._forecasts(now)
        alarm = alerts((), now.runs, [], planned)
        allowing = first_line(alarm.allowed).replace("newly allowed", "allowed")
        line = "; ".join(filter(None, [f"new: {_summary(now, planned)}", allowing]))
        return Entry(self.shown(path), line, "", False, NEW, (), *_totals([], planned), alerts=alarm)

    def gone(self, path: str) -> Entry:
        """The entry of a spec that does not exist any more."""
        was = self.before(path)
        return Entry(self.shown(path), "deleted", "", False, GONE, (), *_totals(self._forecasts(was), []))

    def _forecasts(self, operand: Operand) -> list[Forecast] | None:
        """The hours, the cost and the memory of each run. Empty if the spec does not compile, and None if its sweep has
        too many runs.
        """
        return forecasts(operand.runs, self.prices) if len(operand.runs) <= SUMMED else None


def _totals(
    before: list[Forecast] | None, after: list[Forecast] | None
) -> tuple[float | None, float | None, float | None]:
    """The changes in GPU-hours, in bytes on disk and in cost. A change is None if its old or its new
    value is unknown.
    """

    def change(name: str) -> float | None:
        was, now = (None if side is None else added(side, name) for side in (before, after))
        return None if was is None or now is None else now - was

    hours, disk, cost = (change(name) for name in ("GPU-hours", "disk, at most", "cost"))
    return hours, disk, cost


def _row(now: Operand, before: list[Forecast] | None, after: list[Forecast] | None, why: Cause, alarm: Alerts) -> str:
    """The line of a spec within a group. All specs of a group have the same changed settings, so the line lists only
    their effects on this spec: the changes of steps, memory, GPU-hours, cost and warnings.
    """
    changed: list[Change] = []
    if before and after:
        changed = list(summed(before, after)) if now.sweep else follows(before[0], after[0])
    parts = [f"{why.members:,} of {len(now.runs):,} runs"] if now.sweep else []
    parts += [
        f"{one.name} {one.before} -> {one.after}" + (f": {one.why}" if ", was " in one.why else "")
        for one in changed
        if one.name in OF_ROW
    ]
    parts += [warning_line(alarm.warnings), first_line(alarm.allowed)]
    return "; ".join(filter(None, parts)) or "steps, memory and GPU-hours do not change, as far as they are known"


def _summary(operand: Operand, planned: list[Forecast] | None) -> str:
    """The summary of a new spec: `qwen2.5-3b on alpaca, 8 x h100-80gb, 54.1 GiB (fits), 12.3 hours, 98.1 GPU-hours`."""
    spec = operand.runs[0].spec
    data = ", ".join(dict.fromkeys(one.name for one in spec.data))
    parts = [f"{spec.model.location} on {data}", _hardware(spec)]
    if operand.sweep:
        axes = ", ".join(f"{path} ({len(values)})" for path, values in operand.axes)
        parts.insert(0, f"{len(operand.runs):,} runs over {axes}")
    if not planned:
        return ", ".join(parts)
    peaks = [(one.plan.peak.value, one.plan.verdict) for one in planned if one.plan.peak is not None]
    if peaks:
        peak, verdict = max(peaks)
        parts.append(f"{'at most ' if operand.sweep else ''}{peak / GIB:.1f} GiB a GPU ({IS[verdict]})")
    for name, unit in (("hours", "hours"), ("GPU-hours", "GPU-hours"), ("cost", "cost")):
        total = added(planned, name)
        if total is not None:
            parts.append(f"{total:,.1f} {unit}{' together' if operand.sweep else ''}")
    return ", ".join(parts)


def _hardware(spec: Spec) -> str:
    hardware = spec.hardware
    return f"{hardware.world} x {hardware.gpu.name}" if hardware.gpu is not None else "CPU"
