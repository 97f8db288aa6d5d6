"""A comparison as text, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from xpc.compiler.lower.readme import cell
from xpc.compiler.render.visible import visible
from xpc.compiler.review.changes import Comparison
from xpc.compiler.review.compare import ABSENT, Change, Difference, FileChange

SAME = "the same run"
NAMED = 6
"""Maximum members that a section names."""


def headline(found: Comparison) -> str:
    """The first line."""
    before, after = found.counts
    if found.swept:
        return f"{_runs(before)} -> {_runs(after)}: {', '.join(one.name for one in found.swept)} swept"
    if found.equal:
        return SAME if found.counts == (1, 1) else f"the same {_runs(before)}"
    ways = [one for one in found.groups if not one.difference.same]
    if found.counts == (1, 1):
        return ways[0].difference.headline
    parts = [f"{one.difference.headline} in {len(one.members):,} of {_runs(before)}" for one in ways[:1]]
    if len(ways) > 1:
        parts.append(f"{len(ways) - 1} other ways in {sum(len(one.members) for one in ways[1:]):,}")
    parts += [f"{len(names):,} {word}" for names, word in ((found.new, "new"), (found.gone, "removed")) if names]
    return "; ".join(parts)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def as_text(found: Comparison) -> str:
    """The comparison for a terminal."""
    lines = [visible(headline(found))]
    for title, entries in _sections(found):
        lines += ["", title, *(f"  {visible(one)}" for one in entries)]
    return "\n".join(lines) + "\n"


def as_markdown(found: Comparison) -> str:
    """The comparison for a comment on a pull request."""
    lines = [f"**{cell(headline(found))}**"]
    for title, entries in _sections(found):
        lines += ["", f"### {cell(title)}", "", *(f"- {cell(one)}" for one in entries)]
    return "\n".join(lines) + "\n"


def _sections(found: Comparison) -> Iterator[tuple[str, list[str]]]:
    if found.swept:
        yield "Swept", _changes(found.swept)
    for title, names in (("New members", found.new), ("Removed members", found.gone)):
        if names:
            yield title, _few(names)
    for group in found.groups:
        sections = list(_difference_sections(group.difference))
        if sections and found.counts != (1, 1):
            title = "Other differences, in the first member" if found.swept else f"In {_runs(len(group.members))}"
            yield title, _few(group.members)
        yield from sections


def _few(names: Sequence[str]) -> list[str]:
    more = len(names) - NAMED
    return [*names[:NAMED], *([f"and {more:,} more"] if more > 0 else [])]


def _difference_sections(one: Difference) -> Iterator[tuple[str, list[str]]]:
    if one.settings:
        yield "Settings", _changes(one.settings)
    if one.follows:
        yield "What follows", _changes(one.follows)
    if one.renamed:
        yield (
            "Renamed arguments with the same value",
            [f"{each.before} -> {each.after}  ({each.why})" for each in one.renamed],
        )
    one_sided = [ABSENT in (each.before, each.after) for each in one.arguments]
    for stack, side in zip(one.stacks, ("before", "after"), strict=True) if one.across else ():
        only = [
            each
            for each, single in zip(one.arguments, one_sided, strict=True)
            if single and getattr(each, side) != ABSENT
        ]
        if only:
            entries = [(f"{each.name} = {getattr(each, side)}", each.why) for each in only]
            yield f"Only on {stack}", [f"{line}  ({why})" if why else line for line, why in entries]
    changed = [each for each, single in zip(one.arguments, one_sided, strict=True) if not (single and one.across)]
    if changed:
        yield f"Emitted arguments ({one.same_arguments:,} others unchanged)", _changes(changed)
    if one.files:
        yield "Files of the bundle", [_file(each) for each in one.files]
    findings = [*(f"+ {each}" for each in one.new), *(f"- {each}" for each in one.gone)]
    if findings:
        yield "Warnings and notes", findings
    programs = [*(f"+ {each}" for each in one.runs_now), *(f"- {each}" for each in one.ran_before)]
    if programs:
        yield "What the run executes", programs


def _changes(found: Sequence[Change]) -> list[str]:
    width = max(len(each.name) for each in found)
    lines = [f"{each.name:<{width}}  {each.before} -> {each.after}" for each in found]
    return [f"{line}  ({each.why})" if each.why else line for line, each in zip(lines, found, strict=True)]


def _file(one: FileChange) -> str:
    return f"{one.name}  {one.kind}" if one.kind != "changed" else f"{one.name}  +{one.added} -{one.removed}"


def as_json(found: Comparison) -> str:
    """The comparison for programs."""
    from cattrs import unstructure

    groups = [
        {"members": list(group.members), **unstructure(group.difference), "same": group.difference.same}
        for group in found.groups
    ]
    table = {
        "before": found.before, "after": found.after, "same": found.equal, "headline": headline(found),
        "members": {"before": found.counts[0], "after": found.counts[1], "new": found.new, "gone": found.gone},
        "swept": unstructure(found.swept), "groups": groups,
    }  # fmt: skip
    return json.dumps(table, indent=2) + "\n"


FORMATS: dict[str, Callable[[Comparison], str]] = {"text": as_text, "markdown": as_markdown, "json": as_json}
