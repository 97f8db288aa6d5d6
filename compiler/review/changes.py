"""Compare two operands run by run: sweep members are matched by name and grouped by how they differ."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.review.compare import Change, Difference, changes, compare
from xpc.compiler.review.operands import Operand, Run
from xpc.grammar.record import evolve, field, record

MEMBER = "MEMBER"
"""Replaces a member's own name in folders and run names, so that members can be compared."""


@record
class Group:
    """The names of the members that differ in the same way; empty for a single run."""

    members: tuple[str, ...]
    difference: Difference


@record
class Comparison:
    """Two operands compared. `new` and `gone` are members of one operand only, `same` are equal in both."""

    before: str
    after: str
    groups: tuple[Group, ...]
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    swept: tuple[Change, ...] = field(default=())
    counts: tuple[int, int] = (1, 1)

    @property
    def equal(self) -> bool:
        """Whether both operands are the same runs."""
        return not self.new and not self.gone and not self.swept and all(one.difference.same for one in self.groups)


def compare_operands(one: Operand, other: Operand) -> Comparison:
    """Compare two operands that compile."""
    counts = len(one.runs), len(other.runs)
    if not one.sweep and not other.sweep:
        return Comparison(one.title, other.title, (Group((), compare(one.runs[0], other.runs[0])),))
    if one.sweep != other.sweep:
        return _run_and_sweep(one, other, counts)
    before, after = ({run.name: run for run in operand.runs} for operand in (one, other))
    differing: dict[tuple[object, ...], list[str]] = {}
    same: list[str] = []
    for name in before:
        if name in after:
            found = [_without_name(each, name) for each in changes(before[name].spec, after[name].spec)]
            if any(found):
                differing.setdefault(tuple(map(tuple, found)), []).append(name)
            else:
                same.append(name)
    groups = [(names, before[names[0]], after[names[0]]) for names in differing.values()]
    if same:  # emitted files and findings may still differ
        groups.append((same, before[same[0]], after[same[0]]))
    changed = tuple(Group(tuple(names), _compare_members(*runs)) for names, *runs in groups)
    gone, new = (
        [name for name in members if name not in others] for members, others in ((before, after), (after, before))
    )
    return Comparison(one.title, other.title, changed, tuple(new), tuple(gone), tuple(same), counts=counts)


def _compare_members(one: Run, other: Run) -> Difference:
    found = compare(one, other)
    return evolve(
        found, settings=_without_name(found.settings, one.name), follows=_without_name(found.follows, one.name)
    )


def _without_name(found: Sequence[Change], name: str) -> tuple[Change, ...]:
    """The changes with the member's name replaced by MEMBER."""
    if not name:
        return tuple(found)
    return tuple(
        evolve(each, before=each.before.replace(name, MEMBER), after=each.after.replace(name, MEMBER)) for each in found
    )


def _run_and_sweep(one: Operand, other: Operand, counts: tuple[int, int]) -> Comparison:
    """Compare a run with a sweep: the swept settings, and what differs from the run in every member."""
    run, members = (one.runs[0], other.runs) if other.sweep else (other.runs[0], one.runs)
    found = [_without_name(changes(run.spec, member.spec)[0], member.name) for member in members]
    values: dict[str, list[str]] = {}  # by setting: the run's value, then each member's
    for change in (each for one in found for each in one):
        if change.name not in values:
            after_by_name = [{each.name: each.after for each in one} for one in found]
            values[change.name] = [change.before, *(each.get(change.name, change.before) for each in after_by_name)]
    varied = {name for name, (_, *swept) in values.items() if len({*swept}) > 1}
    swept = [
        Change(name, *(values[name][0], ", ".join(dict.fromkeys(values[name][1:])))[:: 1 if other.sweep else -1])
        for name in sorted(varied)
    ]
    first = compare(*((run, members[0]) if other.sweep else (members[0], run)))
    kept = tuple(each for each in _without_name(first.settings, members[0].name) if each.name not in varied)
    follows = _without_name(first.follows, members[0].name)
    group = Group((members[0].name,), evolve(first, settings=kept, follows=follows))
    return Comparison(one.title, other.title, (group,), swept=tuple(swept), counts=counts)
