"""Compare the two arguments of `xpc diff`. If both are sweeps, members with the same name are compared, and members
with the same differences form a group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from xpc.compiler.files.bundle_digests import NOT_EXECUTABLE
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review.compare import CODE, DIFFERS, SAME, VERDICTS, Difference, changes, compare
from xpc.compiler.review.differences.allowed import Allowed, newly_allowed
from xpc.compiler.review.differences.change import MEMBER, Change, Scalar, short, without_name
from xpc.compiler.review.differences.files import FileChange, differing
from xpc.compiler.review.operands import Operand, Run, with_names
from xpc.compiler.review.totals import total_changes
from xpc.grammar.record import evolve, field, record

LISTS = ("members.txt", "sweep.toml")
"""Files in a sweep's folder that list its members. Their changes are not reported, because the members are compared."""
COMMENT = re.compile(r"  # .*$", re.M)


@record
class Group:
    """A group of members of a sweep: all of them have the same `difference` between the two arguments of `xpc diff`.
    For a single run, `members` is empty.
    """

    members: tuple[str, ...]
    difference: Difference


@record
class Comparison:
    """The result of `xpc diff`. The members in `new` exist only in the second argument, and the members in `gone` only
    in the first. The members in `same` are equal in both.

    `renamed` has a pair of names (old, new) for each member whose name is the only thing that changed. If one argument
    is a sweep and the other a single run, `swept` are the settings that the sweep varies. `axes` describes the swept
    settings of each argument, with the number of values of each setting; both texts are empty if the two sweeps agree.
    `launchers` are changes in the files that start a sweep. `counts` are the numbers of runs of both arguments.
    `totals` are the sums over all runs of an argument that have changed: GPU-hours, disk space, cost, and the number of
    runs that do not fit their GPUs. `allowed` are the permissions that only the second argument gives.
    """

    before: str
    after: str
    groups: tuple[Group, ...]
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    swept: tuple[Change, ...] = field(default=())
    axes: tuple[str, str] = ("", "")
    launchers: tuple[FileChange, ...] = ()
    counts: tuple[int, int] = (1, 1)
    totals: tuple[Change, ...] = ()
    allowed: tuple[Allowed, ...] = ()

    @property
    def verdict(self) -> str:
        """The most severe of the verdicts on the groups of members (one of VERDICTS)."""
        if self.new or self.gone or self.renamed or self.swept:
            return DIFFERS
        found = [one.difference.verdict for one in self.groups]
        found.append(CODE if self.launchers else SAME)
        return max(found, key=VERDICTS.index)

    @property
    def equal(self) -> bool:
        """Whether both arguments of `xpc diff` describe the same training runs."""
        return self.verdict == SAME


def compare_operands(one: Operand, other: Operand, prices: Mapping[str, float] | None = None) -> Comparison:
    """Compare the two arguments of `xpc diff`. `prices` maps each GPU to the price of an hour.

    The caller has checked the specs; this function checks members of a sweep on disk. Raises DoesNotCompile if a member
    has errors.
    """
    if not one.sweep and not other.sweep:
        found = Comparison(one.title, other.title, (Group((), compare(one.runs[0], other.runs[0], prices)),))
    else:
        found = (_sweeps if one.sweep and other.sweep else _run_and_sweep)(one, other, prices)
        if found.verdict == DIFFERS:
            found = evolve(found, totals=tuple(total_changes(one.runs, other.runs, prices or {})))
    return evolve(found, allowed=allowed(one, other, found.groups))


def allowed(one: Operand, other: Operand, groups: Sequence[Group] = ()) -> tuple[Allowed, ...]:
    """The permissions, such as silenced warnings, that the second argument of `xpc diff` gives and the first does not.

    If an argument is the folder of a sweep, only the first member of each group in `groups` is checked, because
    checking all members takes too long.
    """
    first = {group.members[0] for group in groups if group.members}
    before, after = (
        [run.spec for run in operand.runs if operand.launchers is None or run.name in first] for operand in (one, other)
    )
    return newly_allowed(before, after)


def _sweeps(one: Operand, other: Operand, prices: Mapping[str, float] | None) -> Comparison:
    """Compare two sweeps member by member."""
    counts = len(one.runs), len(other.runs)
    before, after = ({run.name: run for run in operand.runs} for operand in (one, other))
    differing_members: dict[tuple[object, ...], list[str]] = {}
    same: list[str] = []
    stored = one.launchers is not None or other.launchers is not None
    for name in before:
        if name in after:
            key = tuple((_file_key if stored else _value_key)(before[name], after[name]))
            if key:
                differing_members.setdefault(key, []).append(name)
            else:
                same.append(name)
    groups = [(names, before[names[0]], after[names[0]]) for names in differing_members.values()]
    if same and not stored:  # the settings are equal, but the locked packages or the findings may differ
        groups.append((same, before[same[0]], after[same[0]]))
    changed = tuple(Group(tuple(names), compare(was, now, prices)) for names, was, now in groups)
    removed, new = (
        [name for name in members if name not in others] for members, others in ((before, after), (after, before))
    )
    renamed = _renamed([before[name] for name in removed], [after[name] for name in new])
    was, now = {name for name, _ in renamed}, {name for _, name in renamed}
    axes = ("", "") if one.axes == other.axes else _axes(one, other)
    launchers = tuple(_launchers(one, other)) if stored else ()
    return Comparison(
        one.title, other.title, changed, tuple(name for name in new if name not in now),
        tuple(name for name in removed if name not in was), tuple(same), tuple(renamed), (), axes, launchers, counts,
    )  # fmt: skip


def _value_key(one: Run, other: Run) -> Iterator[object]:
    """Yield the settings in which the old and the new version of a compiled member differ, or nothing if they are
    equal. Members for which the same settings are yielded form a group.
    """
    for found in changes(one.spec, other.spec):
        yield from without_name(found, one.name)


def _file_key(one: Run, other: Run) -> Iterator[object]:
    """Compare the old and the new version of a member of a sweep, both on disk. Yield the lines of their files that
    differ. Members for which the same lines are yielded form a group.
    """
    names = differing(one.digests, other.digests)
    if one.digests.get("spec.xp") != other.digests.get("spec.xp"):
        names.append("spec.xp")
    if one.stale != other.stale:
        yield one.stale, other.stale
    if one.models != other.models:
        yield tuple(one.models.items()), tuple(other.models.items())
    before, after = one.read(names), other.read(names)
    for name in names:
        marks = [run.digests.get(name, "").partition(" ")[2] for run in (one, other)]
        if name not in before or name not in after:
            yield name, name in before, name in after, *marks
            continue
        texts = _without_equal_lines(before[name], after[name])
        was, now = (Counter(_lines(run, text)) for run, text in zip((one, other), texts, strict=True))
        yield name, frozenset((was - now).items()), frozenset((now - was).items()), *marks


def _without_equal_lines(one: bytes, other: bytes) -> tuple[bytes, bytes]:
    """Return two texts without the lines that they share. A line is shared if both texts have it at the same line
    number.
    """
    lines = one.split(b"\n"), other.split(b"\n")
    length = min(map(len, lines))
    different = [at for at in range(length) if lines[0][at] != lines[1][at]]
    before, after = (b"\n".join([*(each[at] for at in different), *each[length:]]) for each in lines)
    return before, after


def _lines(run: Run, data: bytes) -> list[bytes]:
    """The lines of a member's file. The member's name and the digests of its files are replaced by placeholders: any
    two members differ in these, so they say nothing about a change.
    """
    return with_names(data.replace(run.name.encode(), MEMBER.encode()), run.digests).split(b"\n")


def _launchers(one: Operand, other: Operand) -> Iterator[FileChange]:
    before, after = one.starters, other.starters
    for name in differing(before, after):
        if name not in LISTS and not _equal_starters(name, one, other):
            kind = "removed" if name not in after else "added" if name not in before else "differs"
            yield FileChange(name, kind)


def _equal_starters(name: str, one: Operand, other: Operand) -> bool:
    """Whether two files that start a sweep differ only in the digests of members."""
    before, after = one.starters.get(name, ""), other.starters.get(name, "")
    if not before or not after or before.endswith(NOT_EXECUTABLE) != after.endswith(NOT_EXECUTABLE):
        return False
    try:
        return one.starter(name) == other.starter(name)
    except UsageError:  # the path is a folder, or a file that is too large
        return False


def _renamed(removed: Sequence[Run], new: Sequence[Run]) -> list[tuple[str, str]]:
    """Pairs (old name, new name) of members with equal values. Such pairs exist if an axis was added to the sweep,
    because this renames all members.
    """
    if not removed or not new:
        return []
    known = {_identity(run): run for run in new}
    found = [(run, known[key]) for run in removed if (key := _identity(run)) in known]
    return [(one.name, other.name) for one, other in found if _same_values(one, other)]


def _identity(run: Run) -> bytes:
    """The text of a member's spec.xp, without comments, and with MEMBER in place of the member's name. A renamed member
    of a sweep keeps this text.
    """
    text = run.read(["spec.xp"]).get("spec.xp", b"").decode("utf-8", "surrogateescape")
    return COMMENT.sub("", text).replace(run.name, MEMBER).encode("utf-8", "surrogateescape")


def _same_values(one: Run, other: Run) -> bool:
    settings, follows = changes(one.spec, other.spec)
    return all(
        each.before.replace(one.name, MEMBER) == each.after.replace(other.name, MEMBER)
        for each in (*settings, *follows)
    )


def _axes(one: Operand, other: Operand) -> tuple[str, str]:
    """Describe the swept settings of each of two sweeps by their numbers of values: `optimizer.lr (3), seed (2)`. If
    the numbers are equal in both sweeps, list the values instead: `optimizer.lr (1e-06, 2e-06)`.
    """
    for counted in (True, False):
        before, after = (
            ", ".join(f"{path} ({len(values) if counted else ', '.join(values)})" for path, values in each.axes)
            for each in (one, other)
        )
        if before != after:
            break
    return short(before, after)


def _run_and_sweep(one: Operand, other: Operand, prices: Mapping[str, float] | None) -> Comparison:
    """Compare a run with a sweep. The result lists the settings that the sweep varies, and the differences from the run
    that all members have in common.
    """
    counts = len(one.runs), len(other.runs)
    run, members = (one.runs[0], other.runs) if other.sweep else (other.runs[0], one.runs)
    found = [without_name(changes(run.spec, member.spec)[0], member.name) for member in members]
    by_name = [{each.name: each for each in one} for one in found]
    varied = {name: each for name in sorted({*chain(*by_name)}) if (each := _swept(name, by_name)) is not None}
    swept = tuple(each if other.sweep else _reversed(each) for each in varied.values())
    first = compare(*((run, members[0]) if other.sweep else (members[0], run)), prices)
    kept = tuple(each for each in first.settings if each.name not in varied)
    group = Group((members[0].name,), evolve(first, settings=kept))
    return Comparison(one.title, other.title, (group,), swept=swept, counts=counts)


def _swept(name: str, members: Sequence[Mapping[str, Change]]) -> Change | None:
    """The change of a setting between a run and a sweep: from the run's value to the values of all members, as in
    `1e-05 -> 1e-06, 1e-05`. None if all members have the same value. `members` has each member's changes by setting.
    """
    first = next(one[name] for one in members if name in one)
    before = _typed(first, 0)
    values = dict(_typed(one[name], 1) if name in one else before for one in members)
    if len(values) < 2:
        return None
    return Change(name, before[0], ", ".join(values), "", (before[1], (*values.values(),)))


def _typed(change: Change, side: int) -> tuple[str, Scalar]:
    """One of the two values of a change (`side` 0: the old value, 1: the new value), in two forms: as text, and for
    JSON.
    """
    texts = change.before, change.after
    return texts[side], (change.values or texts)[side]


def _reversed(change: Change) -> Change:
    old, new = _typed(change, 0), _typed(change, 1)
    return evolve(change, before=new[0], after=old[0], values=(new[1], old[1]))
