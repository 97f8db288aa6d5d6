"""Check the members of a sweep. Each member is a complete spec, and the findings of all members are merged.

Each member has one value from every list of the sweep. A finding of all members is reported once. A finding of all
members with a certain value is reported once, at this value. Any other finding names the members that have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import product

from xpc.compiler.engines.engine import engine
from xpc.compiler.files.workspace import Read, Workspace
from xpc.compiler.language.codes import Problems, report
from xpc.compiler.language.items import ParsedFile
from xpc.compiler.language.load import MergedSpec, overlay
from xpc.compiler.pipeline.silence import apply as silence
from xpc.compiler.resolve.experiment import resolve
from xpc.compiler.resolve.sweep import MOST, Grid, Pick, fitted
from xpc.compiler.resolve.sweep_member import APART, Member
from xpc.compiler.rules import check, relevant
from xpc.compiler.rules.core.legality import error_codes
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.diagnostic import ERROR, Diagnostic, Label
from xpc.grammar.record import evolve

LONGEST = 120
"""The largest number of characters in the name of a sweep's member. A longer name is truncated, and ends with a digest
of the full name.
"""
KINDS = 3
"""The members of a sweep may have different findings with the same code at the same position. At most this many of
these findings are reported.
"""


def members(loaded: MergedSpec, grid: Grid, workspace: Workspace) -> tuple[list[Member], list[Diagnostic]]:
    """Check every member. Returns the members, and all findings about the sweep."""
    rows = list(product(*grid.groups)) if grid.size <= MOST else [tuple(group[0] for group in grid.groups)]
    rows = rows[: workspace.most_members or None]
    names = _names(rows)
    answers: dict[tuple[str, str, int], Read | str] = {}
    by_comment = any("xpc:" in one.source.text for one in loaded.files)
    out: list[Member] = []
    every: list[list[Diagnostic]] = []
    for index, (picks, name) in enumerate(zip(rows, names, strict=True)):
        view = evolve(workspace, reads=dict(workspace.reads), answers=answers)
        spec, found = resolve(_one(loaded, grid, picks, name), view, error_codes)
        if spec is not None:
            found += check(spec)
        found = relevant([*loaded.problems, *found])[len(loaded.problems) :]
        own = [_fitted(one, picks) for one in found]
        every.append(own)
        wrong = any(one.severity == ERROR for one in (*loaded.problems, *own))
        left, silenced = silence(loaded.files, own) if by_comment and not wrong else (own, ())
        settings = tuple(pair for pick in picks for pair in pick.shown)
        checked = None if spec is None or wrong else CheckedSpec.of(spec, left, silenced)
        out.append(Member(name, index, settings, checked))
    together = [*loaded.problems, *grid.problems, *_together(every, rows, names)]
    if not any(one.severity == ERROR for one in together):
        together += _across(out, grid)
    return out, together


def _one(loaded: MergedSpec, grid: Grid, picks: Sequence[Pick], name: str) -> MergedSpec:
    """The spec of one member: each list of the sweep is replaced by the member's value from this list."""
    one = evolve(
        loaded, items=dict(loaded.items), kinds=dict(loaded.kinds), problems=Problems(), member=name, sweep=None
    )
    for pick in picks:
        overlay(one, ParsedFile(grid.source, items=dict(pick.items)), loaded.sweep_kind)
        if pick.model is not None and one.train is not None:
            one.train = evolve(one.train, model=pick.model)
            one.model_source = grid.source
    return one


def _names(rows: Sequence[tuple[Pick, ...]]) -> list[str]:
    """A name for each member, which consists of its values: `lr=1e-06,beta=0.1`. The name does not depend on the order
    of the members.
    """
    paths = [path for pick in rows[0] for path, _ in pick.shown]
    short = [path.rpartition(".")[2] for path in paths]
    title = {path: one if short.count(one) == 1 else path for path, one in zip(paths, short, strict=True)}
    out = []
    for picks in rows:
        name = ",".join(f"{title[path]}={shown}" for pick in picks for path, shown in pick.shown) or "only"
        if len(name) > LONGEST:
            name = f"{name[: LONGEST - 9]}-{sha256(name.encode()).hexdigest()[:8]}"
        out.append(name)
    return out


# -- findings ---------------------------------------------------------------------------------------------------------


def _fitted(found: Diagnostic, picks: Sequence[Pick]) -> Diagnostic:
    """Return the finding with an edit that fits a sweep: if the finding is about one value of a list, its edit replaces
    only this value.
    """
    if not found.edits or found.primary is None:
        return found
    for pick in picks:
        if pick.holds(found.primary):
            path = next((path for path, item in pick.items.items() if item.label.span == found.primary.span), "model")
            return fitted(found, path, found.primary.span)
    return found


def _together(
    every: Sequence[Sequence[Diagnostic]], rows: Sequence[tuple[Pick, ...]], names: Sequence[str]
) -> Iterator[Diagnostic]:
    """Merge the findings of all members, so that each is reported once."""
    has: dict[tuple[object, ...], tuple[Diagnostic, list[int]]] = {}
    for index, found in enumerate(every):
        for one in found:
            entry = has.setdefault(_key(one), (one, []))
            if not entry[1] or entry[1][-1] != index:
                entry[1].append(index)
    partial: dict[tuple[object, ...], list[tuple[Diagnostic, list[int]]]] = {}
    for one, where in has.values():
        if len(where) == len(rows) or len(where) == _implied(one, rows):
            yield one
        else:
            partial.setdefault((one.code, _location(one.primary)), []).append((one, where))
    for group in partial.values():
        first, rest = group[:KINDS], group[KINDS:]
        more = {index for _, where in rest for index in where}
        for number, (one, where) in enumerate(first):
            members = _listed([names[index] for index in where], len(rows))
            if more and number == len(first) - 1:
                members += f"; {len(more)} more members have similar messages"
            yield evolve(one, message=f"{one.message} ({members})")


def _key(one: Diagnostic) -> tuple[object, ...]:
    return (one.code, one.severity, one.message, one.help, _location(one.primary), *map(_location, one.related))


def _location(label: Label | None) -> tuple[object, ...] | None:
    return None if label is None else (label.source.name, label.span.start, label.span.end, label.text)


def _implied(one: Diagnostic, rows: Sequence[tuple[Pick, ...]]) -> int:
    """A finding may point at swept values, such as `micro=8`. Return the number of members that have all of these
    values, or 0 if the finding points at no swept value.
    """
    picks = {id(pick): pick for row in rows for pick in row}
    labels = [label for label in (one.primary, *one.related) if label is not None]
    held = [{key for key, pick in picks.items() if pick.holds(label)} for label in labels]
    wanted = [keys for keys in held if keys]
    if not wanted:
        return 0
    return sum(all(any(id(pick) in keys for pick in row) for keys in wanted) for row in rows)


def _listed(names: Sequence[str], of: int) -> str:
    if len(names) == 1:
        return f"member {names[0]}"
    first = ", ".join(names[:2])
    return f"members {first}" if len(names) == 2 else f"members {first} and {len(names) - 2} more of {of}"


def _across(found: Sequence[Member], grid: Grid) -> Iterator[Diagnostic]:
    """Findings that concern several members: two members are the same run, two members push to the same branch, or the
    members of one job array need different machines.
    """
    specs = [(one.name, one.spec) for one in found if one.spec is not None]
    if len(specs) < 2:
        return
    location = next(iter(grid.locations.values()))
    pushed = [(spec.get("save.hub.name"), spec.get("save.hub.revision")) for _, spec in specs if spec.flag("save.hub")]
    branches = len(set(pushed))
    if branches < len(pushed):
        yield report(
            "XP886",
            f"{len(pushed)} members push to {'one branch' if branches == 1 else f'{branches} branches'}",
            next(spec.label("save.hub.revision") for _, spec in specs if spec.written("save.hub.revision")),
            help="leave `revision` out: each member has a branch of its own",
        )
    swept = next((grid.locations[path] for path in ("nodes", "hardware") if path in grid.locations), location)
    yield from engine(specs[0][1]).sweep_faults([spec for _, spec in specs], swept, grid.label)
    seen: dict[tuple[object, ...], str] = {}
    twins = []
    for name, spec in specs:
        run = (
            spec.model.name,
            *((path, repr(value.value)) for path, value in spec.values.items() if path not in APART),
        )
        if seen.setdefault(run, name) != name:
            twins.append((seen[run], name))
    if twins:
        more = f", and {len(twins) - 1} more pairs" if len(twins) > 1 else ""
        message = f"{twins[0][0]} and {twins[0][1]} are the same run{more}"
        yield report("XP884", message, location, help="leave out one of the two values: they mean the same")
