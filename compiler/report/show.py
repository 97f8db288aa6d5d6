"""Show a report as text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from xpc.compiler.lower.readme import cell
from xpc.compiler.render.visible import visible
from xpc.compiler.report.entry import Entry, winner
from xpc.compiler.report.row import Row
from xpc.compiler.report.run_record import RunRecord
from xpc.compiler.review import show
from xpc.runtime.picture import curves

FORMAT = 1
"""The version of the JSON output format."""
POINTS = 2000
"""A curve has at most this many points in JSON. If it has more, points are left out."""
HEADS = ("asked", "planned", "ran", "remarks")
WIDEST, WIDEST_OF_RUNS = 32, 48
"""The largest width, in characters, to which a column is padded. The first number is for the text about one run, the
second for a table of several runs.
"""


def as_text(found: Sequence[Entry]) -> str:
    """The report for a terminal, in the same order as in Markdown. For several runs, it has only the rows in which the
    actual value is not the planned one.
    """
    several = len(found) > 1
    lines = [visible(", ".join(one.label for one in found))]
    if several:
        rows = [[f"{group}: {name}", *texts] for group, name, texts in overview(found)]
        if best := winner(found):
            lines.append(visible(best))
        lines += ["", *_aligned([["", *(one.label for one in found)], *rows], WIDEST_OF_RUNS)]
        for one in found[1:]:
            if one.diff is not None:
                lines += ["", visible(f"Spec of {one.label}, compared with {found[0].label}"), ""]
                lines += show.as_text(one.diff).rstrip("\n").split("\n")
    for one in found:
        lines += ["", *([visible(one.label), ""] if several else []), visible(one.summary)]
        lines += [f"note: {visible(note)}" for note in one.notes]
        group, table = "", []
        for row in one.rows:
            if several and not row.differs:
                continue
            if row.group != group:
                group = row.group
                table += [[], [group, *HEADS]]
            why = f"differs: {row.why}" if row.differs else row.why
            table.append([f"  {row.name}", row.requested, row.planned, row.actual, why])
        lines += _aligned(table)
    if several:
        lines += [
            "",
            "The tables above omit equal values. To see all values of a run, report one folder, or use `--html FILE`.",
        ]
    return "\n".join(lines) + "\n"


def _aligned(table: Sequence[Sequence[str]], widest: int = WIDEST) -> list[str]:
    """The rows as lines with aligned columns. A cell that is wider than `widest` shifts the rest of its line to the
    right.
    """
    shown = [[visible(one) for one in row] for row in table]
    count = max(map(len, shown), default=0)
    widths = [min(max(len(row[at]) for row in shown if row), widest) for at in range(count)]
    return ["  ".join(f"{one:<{width}}" for one, width in zip(row, widths, strict=False)).rstrip() for row in shown]


def markdown(found: Sequence[Entry]) -> str:
    """The report as Markdown. For several runs, it begins with a table of all runs and with the differences between
    their specs.
    """
    lines = [f"# {cell(', '.join(one.label for one in found))}"]
    if len(found) > 1:
        if best := winner(found):
            lines += ["", cell(best)]
        lines += ["", *_overview(found)]
        for one in found[1:]:
            if one.diff is not None:
                lines += ["", f"## Spec of {cell(one.label)}, compared with {cell(found[0].label)}", ""]
                lines += show.as_markdown(one.diff).rstrip("\n").replace("\n### ", "\n#### ").split("\n")
    for one in found:
        lines += ["", *([f"## {cell(one.label)}", ""] if len(found) > 1 else [])]
        lines += [cell(one.summary), ""]
        lines += [*(f"> {cell(note)}" for note in one.notes), *([""] if one.notes else [])]
        lines += _table(one.rows)
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            yield from ("", f"### {group}", "", f"| | {' | '.join(HEADS)} |", "|---|---|---|---|---|")
        texts = [row.name, row.requested, row.planned, row.actual, f"{'**differs**: ' * row.differs}"]
        cells = [*map(cell, texts[:4]), texts[4] + cell(row.why)]
        yield f"| {' | '.join(cells)} |"


def overview(found: Sequence[Entry]) -> list[tuple[str, str, list[str]]]:
    """The table of several runs. It has all measured values, and the settings that differ between the runs. Each of its
    rows is a triple: the group of the row, the name of the row, and a list with a text for each run.
    """
    groups = list(dict.fromkeys(row.group for one in found for row in one.rows))
    listed = dict.fromkeys((row.group, row.name) for one in found for row in one.rows)
    names = sorted(listed, key=lambda one: groups.index(one[0]))
    tables = [{(row.group, row.name): _overlaid(row) for row in one.rows} for one in found]
    out = []
    for group, name in names:
        texts = [each.get((group, name), "") for each in tables]
        plain = group not in ("Settings", "Arguments", "Versions")
        if plain or (len(set(texts)) > 1 and (group == "Settings" or all(texts))):
            out.append((group, name, texts))
    return out


def _overlaid(row: Row) -> str:
    """The text of a row in the table of several runs; `planned: VALUE` if the run has no measured value yet."""
    if row.actual or row.group in ("Settings", "Arguments"):
        return row.actual or row.planned
    return f"planned: {row.planned}" if row.group != "Versions" and row.planned not in ("", "unknown") else ""


def _overview(found: Sequence[Entry]) -> list[str]:
    heads = [cell(one.label) for one in found]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    return [
        *lines,
        *(f"| {group}: {cell(name)} | {' | '.join(map(cell, texts))} |" for group, name, texts in overview(found)),
    ]


def as_json(found: Sequence[Entry]) -> str:
    """The report as JSON. The cells of the report's table are texts, and the measurements and curves are numbers."""
    return json.dumps({"format": FORMAT, "runs": [_entry(one) for one in found]}, indent=2) + "\n"


def _entry(one: Entry) -> Mapping[str, object]:
    return {
        "name": one.label, "folder": None if one.run is None else one.run.folder,
        "bundle": None if one.bundle is None else one.bundle.folder, "notes": one.notes,
        "rows": [
            {"group": row.group, "name": row.name, "asked": row.requested, "planned": row.planned, "ran": row.actual,
             "why": row.why, "differs": row.differs} for row in one.rows
        ],
        **({} if one.run is None else _run(one.run)),
        "diff": None if one.diff is None else json.loads(show.as_json(one.diff)),
    }  # fmt: skip


def _run(run: RunRecord) -> Mapping[str, object]:
    return {
        "status": run.status, "step": run.step, "seconds": run.seconds, "tokens": run.tokens, "restarts": run.restarts,
        "checkpoints": run.checkpoints, "measured": run.measured, "results": _finite(run.results(False)),
        "curves": {panel: {name: [[step, _finite(value)] for step, value in points[:: len(points) // POINTS + 1]]
                           for name, points in named.items()} for panel, named in curves(run.events).items()},
    }  # fmt: skip


def _finite(value: object) -> object:
    """The value for JSON. nan and inf, which JSON does not have, become strings."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return str(value) if isinstance(value, float) and not isfinite(value) else value
