"""The text of the comment on a pull request: a line about all changes, and then the changes, grouped by their cause."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from xpc.compiler.plan import size
from xpc.compiler.render.visible import visible
from xpc.compiler.review.pull_request.alerts import alert_lines
from xpc.compiler.review.pull_request.entries import BROKEN, CHANGED, COPIES, GONE, NEW, RENAMED, SILENCED, Entry
from xpc.compiler.review.pull_request.github import MARKER

MOST = 60_000
"""Maximum number of characters of a comment; GitHub accepts 65,536."""
NAMED = 20
"""Maximum number of specs that the summary line of a group names."""
LONGEST = 400
"""Maximum number of characters of a group's summary line in the comment."""
BUNDLES_ONLY = "No spec changes its run, but committed bundles change."
ORDER = (BROKEN, CHANGED, SILENCED, RENAMED, NEW, GONE)
WORDS = {
    BROKEN: "broken", CHANGED: "changed", SILENCED: "unchanged with newly silenced warnings", RENAMED: "renamed",
    NEW: "new", GONE: "gone",
}  # fmt: skip


def comment(found: Sequence[Entry], most: int = MOST) -> str:
    """The text of the comment on a pull request. The first line sums up the changes. The last lines say which changed
    bundles are not compared, and how much was left out because GitHub limits the length of a comment.
    """
    last = [f"\n{plain(f'{one.path} {one.line}')}.\n" for one in found if one.kind == COPIES]
    found, most = [one for one in found if one.kind != COPIES], most - sum(map(len, last))
    groups = _groups(found)
    title = BUNDLES_ONLY if last and not found else _headline(found, groups)
    parts = [f"{MARKER}\n**{title}**\n"]
    # the summaries have priority over the full texts, which get the remaining space
    short = [f"\n- {_line(group)}\n" for group in groups]
    length, omitted = len(parts[0]), 0
    left = sum(map(len, short))
    for group, line in zip(groups, short, strict=True):
        left -= len(line)
        part = _part(group)
        if length + len(part) + left > most:
            part = line
        if length + len(part) > most:
            omitted += len(group)
        else:
            parts.append(part)
            length += len(part)
    if omitted:
        parts.append(f"\n{omitted} more do not fit into this comment.\n")
    return "".join([*parts, *last])


def _headline(found: Sequence[Entry], groups: Sequence[Sequence[Entry]]) -> str:
    """The first line of the comment: `3 changed, 1 new, 1 gone; new warning XP203; +14.2 GPU-hours, +80 GiB`. If all
    changes form one group, the first line is the summary line of this group.
    """
    if not found:
        return "No run changes."
    total = ", ".join(_totals(found))
    if len(groups) == 1:
        return _line(groups[0]) + (f"; {total}" if total else "")
    kinds = [(kind, sum(one.kind == kind for one in found)) for kind in ORDER]
    counts = ", ".join(f"{count} {WORDS[kind]}" for kind, count in kinds if count)
    alarms = map(plain, alert_lines(one.alerts for one in found))
    return "; ".join(filter(None, [counts, *alarms, total]))


def _totals(found: Sequence[Entry]) -> Iterator[str]:
    """The changes in GPU-hours, disk space and cost, each summed over the specs for which it is known. The number of
    specs with unknown GPU-hours follows in parentheses: `+14.2 GPU-hours (2 specs unknown)`.
    """
    hours = sum(one.hours for one in found if one.hours is not None)
    unknown = sum(one.hours is None and not one.broken for one in found)
    if abs(hours) >= 0.05:
        more = f" ({unknown} spec{'s' if unknown > 1 else ''} unknown)" if unknown else ""
        yield f"{hours:+,.1f} GPU-hours{more}"
    cost = sum(one.cost for one in found if one.cost is not None)
    if abs(cost) >= 0.005:
        yield f"{cost:+,.2f} cost"
    disk = sum(one.disk for one in found if one.disk is not None)
    if round(abs(disk) / 2**20, 1):
        yield f"{'+' if disk > 0 else '-'}{size(abs(disk))}"


def _groups(found: Iterable[Entry]) -> list[list[Entry]]:
    """Group the entries. Entries with the same `cause`, such as one changed line of a base that all of them extend,
    form a group. An entry without a `cause` forms a group by itself. Specs that do not compile come first.
    """
    groups: dict[object, list[Entry]] = {}
    for one in found:
        groups.setdefault((one.kind, one.cause) if one.cause else (one.kind, one.path), []).append(one)
    return sorted(groups.values(), key=lambda group: ORDER.index(group[0].kind))


def _line(group: Sequence[Entry]) -> str:
    """The summary line of a group. Markup and @mentions in it are escaped."""
    first = group[0]
    if first.cause and len(group) > 1:
        return plain(f"{'; '.join(first.cause)}: {_counted(group)}")
    return plain(f"{first.path}: {first.line}")


def _counted(group: Sequence[Entry]) -> str:
    """The number of specs and sweeps in a group: `5 specs, 1 sweep (12 members)`."""
    members = [one.members for one in group if one.members]
    specs, total = len(group) - len(members), sum(members)
    parts = [f"{specs} spec{'s' if specs > 1 else ''}"] if specs else []
    if members:
        ending = "s" if len(members) > 1 else ""
        parts.append(f"{len(members)} sweep{ending} ({total:,} member{'s' if total > 1 else ''})")
    return ", ".join(parts)


def _part(group: Sequence[Entry]) -> str:
    """The full comparison of a group, as a section that unfolds below the summary line. Its code fence is longer than
    any fence inside the text, so no text can end the section early.
    """
    first = group[0]
    if not first.text and len(group) == 1:
        return f"\n- {_line(group)}\n"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", first.text)), default=0))
    inside = [f"\n- {plain(f'{one.path}: {one.line}')}" for one in group[:NAMED]] if len(group) > 1 else []
    if len(group) > NAMED:
        inside.append(f"\n- and {len(group) - NAMED} more")
    named = "".join(inside) + ("\n" if inside else "")
    title = f"\n{plain(first.path)}:\n" if inside else ""
    text = f"{fence}text\n{first.text.rstrip()}\n{fence}\n" if first.text else ""
    return f"\n<details><summary>{_line(group)}</summary>\n{named}{title}\n{text}\n</details>\n"


def plain(text: str) -> str:
    """Write the text on one line. Unprintable characters, markup and @mentions are escaped."""
    line = visible(" ".join(text.split()))
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
    return "".join(f"&#{ord(one)};" if one in "@*_`[]()!#~|\\:" else html.escape(one) for one in line)
