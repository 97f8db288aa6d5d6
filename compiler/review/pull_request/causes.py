"""Find the lines of specs and bases that explain why a run changes, to group the specs that change for the same
reason.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from xpc.compiler.lower.specfile import ref
from xpc.compiler.review.compare import changes
from xpc.compiler.review.differences.allowed import newly_allowed
from xpc.compiler.review.differences.change import Change, short, without_name
from xpc.compiler.review.differences.models import model_changes
from xpc.compiler.review.differences.packages import installs, package_changes
from xpc.compiler.review.operands import Operand, Run
from xpc.compiler.review.sources import described
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import record


@record
class Cause:
    """The changed lines that explain a change: `base/house.xp:16 optimizer.weight_decay 0 -> 0.1`.

    `lines` is empty if the change has another cause, too, such as an edited template. `members` is the number of a
    sweep's members that change; 0 for a single run.
    """

    lines: tuple[str, ...] = ()
    members: int = 0


UNKNOWN = Cause()


def cause(path: str, was: Operand, now: Operand) -> Cause:
    """The lines that explain why the spec `path` has changed.

    Members of a sweep that do not change are not counted, such as members that override the changed setting. If the
    other members change for different reasons, the cause is unknown.
    """
    before = {run.name: run for run in was.runs}
    if was.axes != now.axes or before.keys() != {run.name for run in now.runs}:
        return UNKNOWN
    found: Counter[tuple[str, ...]] = Counter()
    for run in now.runs:
        lines = _lines(path, before[run.name], run)
        if lines is None:
            return UNKNOWN
        found[lines] += bool(lines)
    found = +found
    if len(found) != 1:
        return UNKNOWN
    ((lines, count),) = found.items()
    return Cause(lines, count if now.sweep else 0)


def _lines(path: str, was: Run, now: Run) -> tuple[str, ...] | None:
    """A text for each changed setting of a run (the file and the line that states the setting, and both values) and for
    each new permission. Empty if nothing has changed. None if a file or a package has changed, or only derived values,
    because no line of a spec states these.
    """
    one, other = was.spec, now.spec
    files, lists = zip(*(_bundled(spec) for spec in (one, other)), strict=True)
    if files[0] != files[1] or model_changes(was, now) or (lists[0] != lists[1] and package_changes(*lists)):
        return None
    settings, follows = (without_name(each, now.name) for each in changes(one, other))
    moved = [each for each in follows if each.before != each.after]
    if moved and not settings:
        return None
    places = [_labels(spec) if settings else {} for spec in (one, other)]
    out = []
    for change in settings:
        if change.before == change.after:
            continue
        label = _label(change, places[1], change.after) or _label(change, places[0], change.before)
        if label is None:
            return None
        before, after = short(change.before, change.after)
        out.append(f"{_location(path, label, other)} {change.name} {before} -> {after}")
    for allowed in newly_allowed([one], [other]):
        if allowed.label is not None and allowed.name:
            out.append(f"{_location(path, allowed.label, other)} allows {allowed.name}")
    return tuple(out)


def _bundled(spec: Spec) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return two mappings from file names to contents. The first has the files to which the spec refers, such as
    templates; the second has the requirements files, which list packages.
    """
    lists = {name: data for name, data in spec.bundled.items() if installs(name)}
    return {name: data for name, data in spec.bundled.items() if name not in lists}, lists


def _labels(spec: Spec) -> dict[str, Label]:
    """Map the name of each value to the place in the spec that states it. The names are the names in a `Change`.
    Defaults and derived values have no entry. A data source has several entries: the name of its set (`data`), and this
    name followed by the source's reference or by its description (`data rows.jsonl`).
    """
    found = {str(path): value.origin.label for path, value in spec.values.items()}
    for library, table in spec.extra.items():
        found |= {f"extra {library}.{name}": value.origin.label for name, value in table.items()}
    for title, sources in (("data", spec.data), *((f"eval.data {one.name}", one.sources) for one in spec.evaluated)):
        for source in sources:
            for name in (title, f"{title} {ref(source)}", f"{title} {described(source)}"):
                found.setdefault(name, source.label)
    found["model"] = spec.model.label
    return {name: label for name, label in found.items() if label is not None}


def _label(change: Change, labels: Mapping[str, Label], text: str) -> Label | None:
    """The place where a spec states the value of a changed setting; None if no line of the spec states it. `text` is
    the setting's value in that spec, and `labels` are the places of all values of that spec.
    """
    return labels.get(f"{change.name} {text}") or labels.get(change.name)


def _location(path: str, label: Label, spec: Spec) -> str:
    """The file and the line of a place, as text: `base/house.xp:16`."""
    source = label.source
    if source.name != spec.source.name:
        path = os.path.normpath(os.path.join(os.path.dirname(path), source.name)).replace(os.sep, "/")
    return f"{path}:{source.position(label.span.start)[0]}"
