"""Show a comparison as text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from xpc.compiler.lower.readme import cell
from xpc.compiler.render.visible import visible
from xpc.compiler.review.changes import Comparison
from xpc.compiler.review.compare import ABSENT, CODE, Difference
from xpc.compiler.review.differences.allowed import first_line
from xpc.compiler.review.differences.change import Change
from xpc.compiler.review.differences.files import FileChange
from xpc.compiler.review.totals import MISFITS

FORMAT = 1
"""The version of the JSON output format."""
NAMED = 6
"""A section of a comparison names at most this many members of a sweep."""
FOLDED = 3
"""If only one of two runs has some keys of a file, at most this many of them are shown one by one. If there are more,
only their number is shown.
"""


def headline(found: Comparison) -> str:
    """The first line of a comparison. For sweeps, it takes account of the plans of all members. The text below it shows
    only the first member's numbers.
    """
    of_runs = f"of {_runs(found.counts[1])} do not fit their GPUs"
    misfits = [f"{each.after} {of_runs}, was {each.before}" for each in found.totals if each.name == MISFITS]
    return "; ".join(filter(None, [_summary(found), *misfits, first_line(found.allowed)]))


def _summary(found: Comparison) -> str:
    before, after = found.counts
    if found.swept:
        word = "swept" if after >= before else "no longer swept"
        return f"{_runs(before)} -> {_runs(after)}: {', '.join(one.name for one in found.swept)} {word}"
    if found.equal:
        return "the same run" if found.counts == (1, 1) else f"the same {_runs(before)}"
    ways = [one for one in found.groups if not one.difference.same]
    if ways and not ways[0].members:
        return ways[0].difference.headline
    parts = [f"{one.difference.headline} in {len(one.members):,} of {_runs(before)}" for one in ways[:1]]
    if len(ways) > 1:
        others = len(ways) - 1
        way = "another way" if others == 1 else f"{others} other ways"
        parts.append(f"{way} in {sum(len(one.members) for one in ways[1:]):,}")
    if any(found.axes):
        parts.insert(0, f"swept: {found.axes[0] or 'nothing'} -> {found.axes[1] or 'nothing'}")
    counted = ((found.new, "new"), (found.gone, "removed"), (found.renamed, "under a new name"))
    parts += [f"{_runs(len(names))} {word}" for names, word in counted if names]
    if not parts:
        parts = [CODE + ": " + "; ".join(each.line for each in found.launchers)]
    return "; ".join(parts)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def as_text(found: Comparison) -> str:
    """The comparison as text for a terminal."""
    lines = [visible(headline(found))]
    for title, entries in sections(found):
        lines += ["", title, *(f"  {visible(one)}" for one in entries)]
    return "\n".join(lines) + "\n"


def as_markdown(found: Comparison) -> str:
    """The comparison for a comment on a pull request."""
    lines = [f"**{cell(headline(found))}**"]
    for title, entries in sections(found):
        lines += ["", f"### {cell(title)}", "", *(f"- {cell(one)}" for one in entries)]
    return "\n".join(lines) + "\n"


def sections(found: Comparison) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections of a comparison: each has a title and lines of plain text."""
    if found.allowed:
        yield "Newly allowed", list(dict.fromkeys(one.text for one in found.allowed))
    if found.swept:
        yield "Swept", _changes(found.swept)
    if found.totals:
        yield "All runs together", _changes(found.totals)
    renamed = [f"{before} -> {after}" for before, after in found.renamed]
    named = (("New members", found.new), ("Removed members", found.gone), ("Equal under a new name", renamed))
    for title, names in named:
        if names:
            yield title, _few(names)
    if found.launchers:
        yield "Files of the sweep", [each.line for each in found.launchers]
    for group in found.groups:
        sections = list(_difference_sections(group.difference))
        if sections and group.members:
            title = "Other differences, in the first member" if found.swept else f"In {_runs(len(group.members))}"
            yield title, _few(group.members)
        yield from sections


def _few(names: Sequence[str]) -> list[str]:
    more = len(names) - NAMED
    return [*names[:NAMED], *([f"and {more:,} more"] if more > 0 else [])]


def _difference_sections(one: Difference) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the lines of each section of a comparison, without empty sections."""

    everything = (
        ("Settings", _changes(one.settings)),
        ("What follows", _changes(one.follows)),
        ("Checkpoints of the previous run", [one.checkpoints] if one.checkpoints else []),
        (f"Wrong on {one.stacks[0]} for this run, fixed on {one.stacks[1]}", list(one.fixed)),
        (
            "Renamed arguments with the same value",
            [f"{each.before} -> {each.after}  ({each.why})" for each in one.renamed],
        ),
        *_argument_sections(one),
        ("Files of local models (sha256)", _changes(one.models)),
        ("Facts that the trainer's code reads", _changes(one.facts)),
        ("Packages", _changes(one.packages)),
        ("Contents", [*one.contents, *one.images]),
        ("Files of the bundle", [each.line for each in one.files]),
        ("Warnings and notes", [*(f"+ {each}" for each in one.new), *(f"- {each}" for each in one.gone)]),
        ("What the run executes", [*(f"+ {each}" for each in one.runs_now), *(f"- {each}" for each in one.ran_before)]),
    )
    yield from ((title, lines) for title, lines in everything if lines)


def _argument_sections(one: Difference) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections about changed arguments. Arguments that only one of the two stacks has are in sections such as
    `Only on trl-0.18`, and all other arguments are in `Emitted arguments`.
    """
    single = [each for each in one.arguments if one.across and ABSENT in (each.before, each.after)]
    for stack, side in zip(one.stacks, ("before", "after"), strict=True) if one.across else ():
        only = [(getattr(each, side), each) for each in single if getattr(each, side) != ABSENT]
        lines = [f"{each.name} = {value}" + (f"  ({each.why})" if each.why else "") for value, each in only]
        yield f"Only on {stack}", lines
    changed = [each for each in one.arguments if each not in single]
    yield f"Emitted arguments ({one.same_arguments:,} others unchanged)", _folded(changed)


def _changes(found: Sequence[Change]) -> list[str]:
    width = max((len(each.name) for each in found), default=0)
    lines = [f"{each.name:<{width}}  {each.before} -> {each.after}" for each in found]
    return [f"{line}  ({each.why})" if each.why else line for line, each in zip(lines, found, strict=True)]


def _folded(found: Sequence[Change]) -> list[str]:
    """Lines about the changed arguments. If more than FOLDED keys of a file were added or removed, a single line states
    their number: `deepspeed.json  12 keys added`.
    """
    by_file: dict[tuple[str, str], list[Change]] = {}
    for each in found:
        if ABSENT in (each.before, each.after):
            side = "removed" if each.after == ABSENT else "added"
            by_file.setdefault((each.name.partition(" ")[0], side), []).append(each)
    many = {key: changes for key, changes in by_file.items() if len(changes) > FOLDED}
    folded = {id(each) for changes in many.values() for each in changes}
    few = [each for each in found if id(each) not in folded]
    return [*_changes(few), *(f"{file}  {len(changes)} keys {side}" for (file, side), changes in many.items())]


def as_json(found: Comparison) -> str:
    """The comparison as JSON, with numbers as numbers. docs/diff.schema.json describes it."""
    groups = [
        {
            "members": list(group.members),
            "verdict": group.difference.verdict,
            "same": group.difference.same,
            **{name: _value(value) for name, value in vars(group.difference).items()},
        }
        for group in found.groups
    ]
    table = {
        "format": FORMAT, "verdict": found.verdict, "same": found.equal, "headline": headline(found),
        "before": found.before, "after": found.after,
        "members": {
            "before": found.counts[0], "after": found.counts[1], "new": found.new, "gone": found.gone,
            "renamed": [{"before": before, "after": after} for before, after in found.renamed],
        },
        "axes": {"before": found.axes[0], "after": found.axes[1]},
        "allowed": [one.text for one in found.allowed],
        "swept": _value(found.swept), "totals": _value(found.totals), "launchers": _value(found.launchers),
        "groups": groups,
    }  # fmt: skip
    return json.dumps(table, indent=2) + "\n"


def _value(value: object) -> object:
    """Convert a part of a comparison for JSON. The numbers of a `Change` stay numbers if its `values` has them."""
    if isinstance(value, Change):
        before, after = value.values or (value.before, value.after)
        return {"name": value.name, "before": before, "after": after, "why": value.why}
    if isinstance(value, FileChange):
        return vars(value)
    return [_value(one) for one in value] if isinstance(value, tuple) else value


def broken_as_json(titles: Sequence[str]) -> str:
    """The JSON output for arguments that do not compile."""
    return json.dumps({"format": FORMAT, "verdict": "does not compile", "broken": list(titles)}, indent=2) + "\n"


FORMATS: dict[str, Callable[[Comparison], str]] = {"text": as_text, "markdown": as_markdown, "json": as_json}
