"""Find the lines of specs and bases that explain why a run changes, to group the specs that change for the same
reason.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from xpc.compiler.lower.specfile import ref
from xpc.compiler.review.compare import changes
from xpc.compiler.review.differences.allowed import newly_allowed
from xpc.compiler.review.differences.change import Change, short, without_name
from xpc.compiler.review.differences.models import model_changes
from xpc.compiler.review.differences.packages import installs, package_changes
from xpc.compiler.review.operands import Operand, Run
from xpc.compiler.review.sources import described
from xpc.compiler.spec import Spec
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.grammar.diagnostic import Label


@record
class Cause:
    """The changed lines that explain a change: `base/house.xp:16 optimizer.weight_decay 0 -> 0.1`.

    `lines` is empty if something else has changed, too. `members` is the number of members of a sweep that change; 0
    for a single run.
    """

    lines: tuple[str, ...] = ()
    members: int = 0


UNKNOWN = Cause()


def cause(path: str, was: Operand, now: Operand) -> Cause:
    """The lines that explain why the spec `path` has changed.

    Members of a sweep that do not change are not counted, for example because the sweep overrides the changed setting.
    If the other members change for different reasons, the cause is unknown.
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
    """Each changed setting of a run, with the file and the line that states it. Empty if nothing has changed, and None
    if files, packages, or values that no line states have changed.
    """
    one, other = was.spec, now.spec
    files, lists = zip(*(_bundled(spec) for spec in (one, other)), strict=True)
    if files[0] != files[1] or model_changes(was, now) or (lists[0] != lists[1] and package_changes(*lists)):
        return None
    settings, follows = (without_name(each, now.name) for each in changes(one, other))
    moved = [each for each in follows if each.before != each.after]
    if moved and not settings:
        return None
    out = []
    for change in settings:
        if change.before == change.after:
            continue
        labels = (_label(change, spec) for spec in (other, one))
        location = next((_location(path, label, other) for label in labels if label is not None), None)
        if location is None:
            return None
        before, after = short(change.before, change.after)
        out.append(f"{location} {change.name} {before} -> {after}")
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


def _label(change: Change, spec: Spec) -> Label | None:
    """The place in a spec or a base that states a changed value. None if the value is a default or is derived."""
    found = {str(name): value for name, value in spec.values.items()}.get(change.name)
    if found is not None:
        return found.origin.label
    if change.name == "model":
        return spec.model.label
    library, _, name = change.name.removeprefix("extra ").partition(".")
    if change.name.startswith("extra "):
        value = spec.extra.get(library, {}).get(name)
        return None if value is None else value.origin.label
    return next(_labels_of_data(change, spec), None)


def _labels_of_data(change: Change, spec: Spec) -> Iterator[Label]:
    """The places of the sources that a change of the data is about. If only their order has changed, all of them."""
    sets = [("data", spec.data), *((f"eval.data {one.name}", one.sources) for one in spec.evaluated)]
    for title, sources in sets:
        for source in sources:
            listed = change.name == title and described(source) in (change.before, change.after)
            if listed or change.name == f"{title} {ref(source)}":
                yield source.label
    yield from (source.label for title, sources in sets if title == change.name for source in sources)


def _location(path: str, label: Label, spec: Spec) -> str:
    """The file and the line of a place: `base/house.xp:16`."""
    source = label.source
    if source.name != spec.source.name:
        path = os.path.normpath(os.path.join(os.path.dirname(path), source.name)).replace(os.sep, "/")
    return f"{path}:{source.position(label.span.start)[0]}"
