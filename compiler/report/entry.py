"""One run in a report: its measurements, its bundle, the rows of its table, and the differences between its spec and
the spec of the first run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from xpc.compiler.files import bundled
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.report.bundle_record import BundleRecord, bundle_of, members_of, output_of, position, read_bundle
from xpc.compiler.report.row import Row, time
from xpc.compiler.report.rows import rewarded, rows_of
from xpc.compiler.report.run_record import FINISHED, RunRecord, read_run, runs_inside
from xpc.compiler.review.changes import Comparison, compare_operands
from xpc.compiler.review.operands import DoesNotCompile
from xpc.grammar.record import field, mutable
from xpc.runtime.result import deciding
from xpc.runtime.result import winner as best_of

NO_BUNDLE = "the bundle of this run was not found: name it with --bundle DIR"
MOST = 24
"""Maximum number of runs in a report."""
NAMED = 6
"""The largest number of values that the summary of a run names."""

LEARNED = ("assistant_only_loss", "completion_only_loss")
"""Arguments that choose the tokens which a loss covers."""


@mutable
class Entry:
    """A run, or a bundle that has not been run yet. `label` is its name in the report. `diff` is the comparison of its
    spec with the first run's spec; None for the first run. `notes` are sentences about missing files.
    """

    label: str
    run: RunRecord | None
    bundle: BundleRecord | None
    rows: list[Row]
    notes: list[str] = field(factory=list)
    diff: Comparison | None = None

    @property
    def summary(self) -> str:
        """One line about the run: how far it got, and which of its values differ from the planned values. If there is
        no plan, the line does not claim that the values agree with it.
        """
        if self.run is None:
            return "has not run yet"
        seconds = self.run.seconds
        spent = "" if seconds is None else f" after {time(seconds)} of training"
        names = [row.name for row in self.rows if row.differs]
        shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        parts = [f"{self.run.status} at step {self.run.step:,}{spent}"]
        if self.bundle is not None:
            parts += [f"not as planned: {shown}"] if names else []
            if self.bundle.plan is None:
                parts.append("there is no plan, because the spec of its bundle does not compile here")
            elif not names:
                parts.append("nothing differs from the plan")
        return "; ".join(parts)


def winner(found: Sequence[Entry]) -> str:
    """One line about the best of several runs, by the same metric as a sweep's `launch.sh --all`. Empty if the runs
    cannot be compared: a bundle is missing, or method, rows or learned tokens differ.
    """
    stated = [None if one.bundle is None else one.bundle.stated for one in found]
    compared = [
        None if one is None else (one["method"], one["data"], *map(one["arguments"].get, LEARNED)) for one in stated
    ]
    if None in compared or any(one != compared[0] for one in compared):
        return ""
    all_results = {one.label: one.run.results(rewarded(one.bundle)) for one in found if one.run is not None}
    known = {label: (key, results[key]) for label, results in all_results.items() if (key := deciding(results))}
    best = best_of(known)
    if not best:
        return ""
    key, values = known[best]
    unfinished = [one.label for one in found if one.run is not None and one.run.status != FINISHED]
    return f"best {key}: {best}, {values['best']:.4g} at step {values['best_step']:,}" + (
        f" (not finished: {', '.join(unfinished)})" if unfinished else ""
    )


def entry(folder: str, bundle: str | None) -> Entry:
    """Make the entry for the output folder of a run, or for a bundle and the run in the bundle's output folder. Raises
    UsageError.
    """
    if not os.path.isdir(folder):
        raise UsageError(f"{folder} is not a folder: name the output folder of a run, or a bundle")
    own = os.path.isfile(os.path.join(folder, bundled.MANIFEST))
    run = None
    if own:
        bundle, out = folder, output_of(folder)
        run = read_run(out) if os.path.isdir(out) else None
    else:
        run = read_run(folder)
        if run is None:
            raise UsageError(
                f"{folder} contains no run: neither it nor a folder in it has metrics.jsonl, summary.json or "
                "xpc_run.json"
            )
    notes = [] if run is None else run.notes
    found = read_bundle(bundle) if bundle is not None else None if run is None else bundle_of(run)
    if found is None:
        notes.append(NO_BUNDLE)
    elif run is not None and run.digest and run.digest != found.digest:
        notes.append(f"the run used another bundle than {found.folder}: the digest that the run recorded differs")
    if found is not None and found.spec is None:
        notes.append(f"{found.folder}/spec.xp does not compile here: {found.broken}")
    label = os.path.basename(os.path.abspath(folder)).removesuffix(".bundle")
    return Entry(label, run, found, rows_of(run, found), notes)


def entries(folders: Sequence[str], bundle: str | None) -> list[Entry]:
    """Make the entries of a report. Each of the folders belongs to a run, a bundle or a sweep; a sweep's folder may
    contain bundles or runs. The members of a sweep become entries in the order of the spec. Raises UsageError.

    Runs that have the same name are labelled by their paths. The spec of each run is compared with the spec of the
    first run.
    """
    inside = {folder: members_of(folder) or runs_inside(folder) for folder in folders}
    count = sum(len(locations) or 1 for locations in inside.values())
    if count > MOST:
        raise UsageError(f"a report has at most {MOST} runs, and these are {count}")
    if bundle is not None and count > 1:
        raise UsageError(
            "--bundle names the bundle of one run; for several runs, name their bundles in place of their folders"
        )
    named: list[tuple[str, Entry]] = []
    for folder, locations in inside.items():
        own = [(location, entry(location, bundle)) for location in locations or [folder]]
        named += sorted(own, key=lambda one: position(one[1].bundle))
    found = [one for _, one in named]
    labels = [one.label for one in found]
    for folder, one in named:
        if labels.count(one.label) > 1:
            one.label = folder
    first, *others = (None if one.bundle is None else one.bundle.operand for one in found)
    for one, operand in zip(found[1:], others, strict=True):
        if first is None or operand is None:
            one.notes.append("its spec cannot be compared with the spec of the first run, because a bundle is missing")
            continue
        try:
            one.diff = compare_operands(first, operand)
        except DoesNotCompile:
            one.notes.append("its spec cannot be compared with the spec of the first run")
    return found
