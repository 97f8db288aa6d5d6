"""Compare the rows of a local file in two runs: how many were added and removed, and the first row that differs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from xpc.compiler.data.reader import read
from xpc.compiler.data.rows import readable
from xpc.compiler.review.differences.change import short
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Broken


def row_changes(one: Spec, other: Spec) -> Iterator[str]:
    """Yield a sentence for each local file whose rows differ between two runs. If both runs read the same folder, also
    yield a sentence for each file that only one run has in this folder.
    """
    before, after = ({part.path: part for part in _files(spec)} for spec in (one, other))
    folders = _folders(one) & _folders(other)
    for path in dict.fromkeys((*before, *after)):
        was, now = before.get(path), after.get(path)
        if was is None or now is None:
            if path and any(path[:at] in folders for at, letter in enumerate(path) if letter == "/"):
                yield f"{path} is {'new' if was is None else 'gone'}{_count(was or now)}"
            continue
        if was.sha256 == now.sha256:
            continue
        if readable(was) and readable(now):
            yield f"{path}: {_described(_rows(was), _rows(now))}"
        elif was.rows is not None and now.rows is not None:
            counts = f"{was.rows:,} -> {now.rows:,}" if was.rows != now.rows else f"{was.rows:,}"
            yield f"{path}: {counts} rows; xpc does not compare rows of this kind of file"


def _folders(spec: Spec) -> set[str]:
    return {(each.path or "").rstrip("/") for each in spec.sources if each.parts}


def _files(spec: Spec) -> list[DataSource]:
    return [part for source in spec.sources for part in (source.parts or (source,))]


def _count(source: DataSource | None) -> str:
    if source is None:
        return ""
    rows = len(_rows(source)) if readable(source) else source.rows
    return "" if rows is None else f": {rows:,} row{'' if rows == 1 else 's'}"


def _rows(source: DataSource) -> list[str]:
    """Every row as JSON text with sorted keys, up to the first row that cannot be read."""
    assert source.content is not None
    found = read(source.content, source.path or "", source.documents or "line")
    return [json.dumps(row, sort_keys=True, ensure_ascii=False) for row in found if not isinstance(row, Broken)]


def _described(before: Sequence[str], after: Sequence[str]) -> str:
    """A sentence about the changes: `1 row added, 2 removed (64 -> 63 rows); row 17 was ..., and is ...`."""
    was, now = Counter(before), Counter(after)
    added, removed = (now - was).total(), (was - now).total()
    first = next((at for at, (x, y) in enumerate(zip_longest(before, after)) if x != y), None)
    if first is None:
        return "the same rows, written in another way"
    if not added and not removed:
        return f"the same rows in another order, from row {first:,} on"
    counts = f"{added:,} row{'' if added == 1 else 's'} added, {removed:,} removed"
    counts += f" ({len(before):,} -> {len(after):,} rows)" if len(before) != len(after) else ""
    if first >= len(before):
        return f"{counts}; row {first:,} is new: {short('', after[first])[1]}"
    if first >= len(after):
        return f"{counts}; row {first:,} is gone: {short(before[first], '')[0]}"
    texts = short(before[first], after[first])
    return f"{counts}; row {first:,} is the first that differs: {texts[0]} -> {texts[1]}"
