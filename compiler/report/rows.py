"""Make the rows of a report's table: what the spec states, what was planned, and what happened. If two of these
differ, the row also has the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.files.bundled import with_original_names
from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.report.bundle_record import BundleRecord
from xpc.compiler.report.measured_rows import data_rows, memory_rows, time_rows
from xpc.compiler.report.row import Row, cut
from xpc.compiler.report.run_record import FINISHED, GOING, STOPPED, RunRecord, number
from xpc.compiler.review.finished_run import LAUNCH, same_argument
from xpc.compiler.review.installed import plain_version
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def rows_of(run: RunRecord | None, one: BundleRecord | None) -> list[Row]:
    """All rows about a run and its bundle. One of the two may be None, but not both."""
    return [*_outcome(run, one), *time_rows(run, one), *memory_rows(run, one), *data_rows(run, one),
            *_machine(run, one), *_settings(run, one)]  # fmt: skip


def rewarded(one: BundleRecord | None) -> bool:
    """Whether the method trains on rewards."""
    return one is not None and one.stated["method"].get("rewarded") is True


# -- outcome ----------------------------------------------------------------------------------------------------------


def _outcome(run: RunRecord | None, one: BundleRecord | None) -> Iterator[Row]:
    yield Row("Outcome", "status", actual="has not run yet" if run is None else run.status, why=_status(run))
    yield _steps(run, one)
    if run is None:
        return
    for name, found in run.results(rewarded(one)).items():
        ran = f"{found['best']:.4g} at step {found['best_step']:,}"
        if found["count"] > 1:
            ran = f"{found['first']:.4g} -> {found['last']:.4g}, best {ran}"
        yield Row("Outcome", name, actual=ran)


def _status(run: RunRecord | None) -> str:
    if run is None or run.status == FINISHED:
        return ""
    kept = f"checkpoint-{run.checkpoints[-1]} is the newest one" if run.checkpoints else "there is no checkpoint"
    if run.status == GOING:
        return f"a process is still training, with this output folder; {kept}"
    ended = "it was stopped" if run.status == STOPPED else "its processes ended"
    return f"{ended} after step {run.step:,}; {kept}, and the same command resumes the run"


def _steps(run: RunRecord | None, one: BundleRecord | None) -> Row:
    spec, planned = (None, None) if one is None else (one.spec, one.plan)
    row = Row("Outcome", "steps")
    if spec is not None:
        steps, epochs = spec.get("train.steps"), spec.get("train.epochs")
        row = evolve(row, requested=f"{steps:,} steps" if steps is not None else f"{epochs:g} epochs")
    expected = None if planned is None else planned.steps
    if planned is not None:
        row = evolve(row, planned="unknown" if expected is None else f"{expected:,}")
    if run is None:
        return row
    row = evolve(row, actual=f"{run.step:,}")
    if expected is None or run.step == expected:
        return evolve(row, why="" if planned is None or expected is not None else planned.unknown["steps"])
    left, patience = number(run.data.get("left_out")), None if one is None else one.stated["run"].get("patience")
    why = "the run had another number of rows than the plan assumes"
    if run.status != FINISHED:
        why = "the run has not ended yet" if run.status == GOING else "the run ended before its last step"
    elif patience is not None and run.step < expected:
        why = f"none of {patience} evaluations in a row was better (`patience`)"
    elif left:
        why = f"the trainer dropped {left:,.0f} rows"
    return evolve(row, why=why, differs=run.status != GOING)


# -- machine ----------------------------------------------------------------------------------------------------------


def _machine(run: RunRecord | None, one: BundleRecord | None) -> Iterator[Row]:
    spec = None if one is None else one.spec
    processes = None if one is None else number(one.stated["run"].get("world_size"))
    row = Row("Machine", "processes", planned="" if processes is None else f"{processes:.0f}")
    if run is not None and run.world is not None:
        differs = processes is not None and run.world != processes
        why = "the run was resumed with another number of processes" if differs else ""
        row = evolve(row, actual=str(run.world), why=why, differs=differs)
    yield row
    starts = [] if run is None else run.starts
    devices = dict.fromkeys(cut(start.get("device")) for start in starts)
    gpu = "" if spec is None else "cpu" if spec.hardware.gpu is None else spec.hardware.gpu.name
    yield Row("Machine", "device", "" if spec is None else spec.text("hardware"), gpu, ", ".join(devices))
    for count, start in enumerate(starts, 1):
        name = f"start {count}" if count > 1 else "started"
        yield Row("Machine", name, actual=f"{cut(start['started'])}, from step {start['step']:,}")
    installed = {} if run is None else run.versions
    for name in sorted({*installed, *(() if one is None else one.pins)}):
        pin = "" if one is None else one.pins.get(name, "")
        there = installed.get(name)
        known = name in installed
        differs = known and bool(pin) and plain_version(there if isinstance(there, str) else None) != pin
        why = "the environment has another version than the bundle pins" if differs else ""
        yield Row("Versions", name, "", pin, cut(there or "not installed") if known else "", why, differs)


# -- settings ---------------------------------------------------------------------------------------------------------


def _settings(run: RunRecord | None, one: BundleRecord | None) -> Iterator[Row]:
    """A row for each setting or, if the spec is unknown, for each trainer argument."""
    seen: Mapping[str, Any] = {} if run is None else run.arguments
    if one is None or one.spec is None:
        stated = {} if one is None else one.stated["arguments"]
        for name in sorted({*stated, *seen}):
            known = name in stated
            yield _compared(
                Row("Arguments", name, planned=cut(stated[name]) if known else ""), {name: stated.get(name)}, seen
            )
        return
    spec, arguments, same = one.spec, one.stated["arguments"], run is not None and run.digest == one.digest
    for path, value in spec.values.items():
        setting = BY_PATH[path]
        if path.startswith("launch.") and spec.text("launch") not in readers(setting):
            continue  # skip a setting of another engine, which the spec inherited from a spec that it extends
        shown = with_original_names(show(setting, value.value), one.copies_of)
        if path == "eval.data":  # its value is the names of the evaluation sets, which xpc may have chosen
            shown = ", ".join(source.name for each in spec.evaluated for source in each.sources)
        text, written = cut(shown, quoted=False), value.origin.kind in (SPEC, BASE)
        row = Row("Settings", path, text if written else "", text, why="" if written else value.origin.name)
        # a setting without trainer arguments cannot be compared, so assume that the run used the value in its bundle
        if same:
            row = evolve(row, actual=text)
        names = [name for name in setting.args if name in arguments and name not in LAUNCH]
        yield _compared(row, {name: arguments[name] for name in names}, seen)
    for library, extra in spec.extra.items():
        for name, value in extra.items():
            text = cut(value.value)
            yield _compared(Row("Settings", f"extra {library}.{name}", text, text), {name: arguments.get(name)}, seen)


def _compared(row: Row, stated: Mapping[str, Any], seen: Mapping[str, Any]) -> Row:
    """Add the actual value to a row. `stated` are the bundle's trainer arguments that belong to the row, and `seen` are
    the arguments of the run. If the run had the stated arguments, the actual value is the planned value; otherwise it
    is made from the run's arguments.
    """
    known = [name for name in stated if name in seen]
    if not known:
        return row
    wrong = [name for name in known if not name.endswith("_token") and not _same(name, stated[name], seen[name])]
    if not wrong:
        return evolve(row, actual=row.planned)
    ran = ", ".join(f"{name} = {cut(seen[name])}" for name in wrong)
    return evolve(row, actual=ran, why="the run used another value than its bundle states", differs=True)


def _same(name: str, stated: object, seen: object) -> bool:
    try:
        return same_argument(name, stated, seen)
    except (OverflowError, RecursionError):  # no run writes such a large or deeply nested value
        return False
