"""Compare the data sources of two runs. Sources may be added, removed, or read in another way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xpc.compiler.files.digest import sha256
from xpc.compiler.lower.specfile import ref
from xpc.compiler.render.line_difference import blocks
from xpc.compiler.review.differences.change import Change
from xpc.compiler.spec.resources import DataSource

WORK = 2 * 10**6
"""A limit on the time for finding equal parts of two lists of data sources (the argument `work` of `blocks`). About a
thousand different sources can be compared. The limit is small, because the lists of every member of a sweep are
compared.
"""
UNSET = "unset"
NONE = "none"


def source_changes(
    name: str, before: Sequence[DataSource], after: Sequence[DataSource]
) -> Iterator[tuple[Change, bool]]:
    """Yield a pair for each changed source: the change, and whether only the way of reading the rows changed (format,
    columns, ...). `name` is `data`, or `eval.data` with the name of an evaluation set.
    """
    names = [[ref(each) for each in sources] for sources in (before, after)]
    if names[0] != names[1] and sorted(map(described, before)) == sorted(map(described, after)):
        was, now = (", ".join(refs) for refs in names)
        yield Change(name, was, now, "the same sources in another order"), False
        return
    at = begun = 0
    for start, end, begin, stop in (
        *blocks(names[0], names[1], WORK),
        (len(before), len(before), len(after), len(after)),
    ):
        for one, other in zip(before[at:start], after[begun:begin], strict=True):
            yield from _row_changes(name, one, other)
        at, begun = end, stop
        old, new = before[start:end], after[begin:stop]
        if len(old) == len(new):
            for one, other in zip(old, new, strict=True):
                yield Change(name, described(one), described(other)), False
        else:
            yield from ((Change(name, described(each), NONE), False) for each in old)
            yield from ((Change(name, NONE, described(each)), False) for each in new)


def _row_changes(name: str, one: DataSource, other: DataSource) -> Iterator[tuple[Change, bool]]:
    for operands, reading in (((_reading(one), _reading(other)), True), ((_chosen(one), _chosen(other)), False)):
        was, now = (
            ", ".join(each for each in mine if each not in others) for mine, others in (operands, operands[::-1])
        )
        if was or now:
            yield Change(f"{name} {ref(one)}", was or UNSET, now or UNSET), reading


def described(source: DataSource) -> str:
    """Describe a source: its name, how its rows are read, and which of them are used."""
    return ", ".join((ref(source), *_reading(source), *_chosen(source)))


def _reading(source: DataSource) -> list[str]:
    """Phrases that say how the rows of a source are read, such as `columns prompt, answer`."""
    parts = [source.wording or source.shape]
    if source.columns is not None and source.only:
        parts.append(f"columns {', '.join(source.columns)}")
    if source.context is not None:
        parts.append(f"context {source.context}")
    return parts + ["as a chat"] * source.chat


def _chosen(source: DataSource) -> list[str]:
    """Phrases that say which rows of a source are used, such as `at most 1000 rows` or `take 10%`. For a local file or
    folder, a further phrase has its digest: `content 1a2b3c4d`.
    """
    parts = [] if source.limit is None else [f"at most {source.limit} rows"]
    if source.take is not None:
        take = source.take
        parts.append(f"take {take.value:.10g}" if take.unit != "share" else f"take {100 * take.value:.10g}%")
    if source.share is not None:
        parts.append(f"share {100 * source.share:.10g}%")
    digests = [part.sha256 or "" for part in source.parts] or [source.sha256 or ""]
    if any(digests):
        one = digests[0] if len(digests) == 1 else sha256(" ".join(digests).encode()).hexdigest()
        parts.append(f"content {one[:8]}")
    return parts
