"""Find the differences between two runs, and what follows from them. All functions are pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower.executes import executes
from xpc.compiler.review.consequences import follows, forecast, verdict_change
from xpc.compiler.review.differences.arguments import ABSENT as ABSENT
from xpc.compiler.review.differences.arguments import argument_changes
from xpc.compiler.review.differences.change import Change as Change
from xpc.compiler.review.differences.change import Scalar, scalar, short, without_name
from xpc.compiler.review.differences.files import (
    CONTENT,
    MANIFEST,
    FileChange,
    decides,
    differing,
    file_changes,
    repeats_list,
)
from xpc.compiler.review.differences.images import about_images, image_changes
from xpc.compiler.review.differences.models import model_changes, unused_digest, without_digests
from xpc.compiler.review.differences.packages import installs, package_changes, summary
from xpc.compiler.review.differences.renamed import (
    renamed_files,
    renaming_lines,
    with_names_of,
    with_table_names_of,
)
from xpc.compiler.review.differences.rows import row_changes
from xpc.compiler.review.meaning import plain
from xpc.compiler.review.operands import Run
from xpc.compiler.review.resuming import resumes
from xpc.compiler.review.sources import UNSET, source_changes
from xpc.compiler.review.tables import FACTS, is_table, tables
from xpc.compiler.rules.core.advisory_table import fixed_advisories
from xpc.compiler.spec import Spec
from xpc.compiler.spec.values import Value
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve, record

SAME, CODE, DIFFERS = VERDICTS = ("same run", "same settings, other code or packages", "differs")
"""The possible verdicts of a comparison, the mildest first."""
READING = {"method", "data.format", "data.columns", "data.prompt", "data.context", "data.chat"}
"""Settings that decide how the rows of a source are read."""
ABOUT_MEMORY = ("XP960", "XP961")
"""Rules about memory. Their findings are not compared, because they repeat the verdict of the plan (does not fit, fits
tightly), which the first line shows.
"""
SHOWN = 2
"""The first line of a comparison names at most this many files."""


@record
class Difference:
    """The differences between two runs. `settings` are the changed settings that at least one spec states. `follows`
    are the changed values that neither spec states: derived values and defaults.

    `arguments` are the changed keys of the emitted JSON and YAML files, and `same_arguments` is the number of unchanged
    keys. `stacks` are the names of both stacks. If the stacks differ, `renamed` are the arguments whose value is the
    same, but whose name differs between the stacks. If the stack is the same, `facts` are the changed facts that the
    trainer's code reads.

    `new` are the findings that only the new run has, and `missing` the findings that only the old run has. `runs_now`
    are the programs, besides the trainer, that only the new run starts, and `ran_before` the programs that only the old
    run starts. `contents` are lines about rows and texts that differ. `images` are lines about images that differ; rows
    name them by path. `models` are the files of local models that differ. `checkpoints` is a sentence that says whether
    the new run can resume from the old run's checkpoints. `fixed` are bugs of the old stack's libraries that the new
    stack does not have.
    """

    settings: tuple[Change, ...]
    follows: tuple[Change, ...]
    arguments: tuple[Change, ...]
    renamed: tuple[Change, ...]
    facts: tuple[Change, ...]
    same_arguments: int
    files: tuple[FileChange, ...]
    packages: tuple[Change, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]
    runs_now: tuple[str, ...]
    ran_before: tuple[str, ...]
    checkpoints: str
    fixed: tuple[str, ...]
    headline: str
    stacks: tuple[str, str]
    contents: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    models: tuple[Change, ...] = ()

    @property
    def across(self) -> bool:
        """Whether the runs use different stacks."""
        return self.stacks[0] != self.stacks[1]

    @property
    def verdict(self) -> str:
        """The verdict on the differences, one of VERDICTS. Findings do not affect it, even if only one of the two runs
        has them.
        """
        if self.settings or self.follows or self.arguments or self.renamed or self.models:
            return DIFFERS
        if any(one.name.startswith(CONTENT) for one in self.files):
            return DIFFERS
        return CODE if self.files or self.packages or self.facts else SAME

    @property
    def same(self) -> bool:
        """Whether the two runs are equal."""
        return self.verdict == SAME


def compare(one: Run, other: Run, prices: Mapping[str, float] | None = None) -> Difference:
    """Find everything that differs between two runs. `prices` maps names of GPUs to the price of a GPU-hour."""
    member = one.name or other.name
    again = with_names_of(one.spec, other.spec)
    settings, derived = (without_name(each, member) for each in changes(one.spec, again))
    before, after = (forecast(each.spec, prices) for each in (one, other))
    stacks = one.spec.stack.name, other.spec.stack.name
    moved = renamed_files(one, other, again)
    names = [name for name in differing(one.digests, other.digests) if name not in {*moved, *moved.values()}]
    files = one.read(names), other.read(names)
    tabled = [tables(each.read(_read_by_runs(each, others)), ()) for each, others in ((one, other), (other, one))]
    tabled[1] |= with_table_names_of(again, other.spec, tabled[1])
    checkpoints = resumes(*tabled)
    about_stack = [{key: each.pop(key) for key in [*each] if key.startswith(FACTS)} for each in tabled]
    renamed, arguments, same = argument_changes(one.spec, other.spec, *tabled)
    facts = argument_changes(one.spec, other.spec, *about_stack)[1] if stacks[0] == stacks[1] else ()
    packages = package_changes(*({name: each[name] for name in each if installs(name)} for each in files))
    changed_tables = {each.name.partition(" ")[0] for each in (*arguments, *renamed, *facts)}
    digests = one.digests, other.digests
    decisive = [
        name for name in names if decides(name, *files, changed_tables) and not repeats_list(name, digests, files)
    ]
    listed = list(file_changes(decisive, digests, *files))
    if unknown := without_digests(one, other):
        listed.append(FileChange(MANIFEST, f"has a digest of {unknown} in only one of the two runs"))
    if unused := unused_digest(one, other):
        listed.append(FileChange(MANIFEST, f"differs in the digest of {unused}, which is no file of a local model"))
    if not names and one.stale != other.stale:
        listed.append(
            FileChange(MANIFEST, f"states a digest that differs from its file ({(*one.stale, *other.stale)[0]})")
        )
    missing, new = _only_in_either(_findings(one.spec.problems), _findings(other.spec.problems))
    silenced = _findings(each.finding for each in other.spec.silenced)
    missing = tuple((Counter(missing) - silenced).elements())  # a silenced finding still exists
    removed, added = _only_in_either(_executes(one.spec), _executes(other.spec, moved))
    found = Difference(
        settings, (*derived, *follows(before, after)), without_name(arguments, member), renamed,
        () if arguments else facts, same,
        tuple(listed), packages, new, missing, added, removed, checkpoints, _fixes(one.spec, other.spec), "", stacks,
        (*renaming_lines(again, other.spec), *row_changes(one.spec, other.spec)), tuple(image_changes(*files)),
        model_changes(one, other),
    )  # fmt: skip
    first = before.length.headline(after.length, settings)
    return evolve(found, headline=_headline(found, first, verdict_change(before.plan, after.plan)))


def _read_by_runs(run: Run, other: Run) -> list[str]:
    """The names of the JSON and YAML files that the trainer reads. A file that a user added to a bundle counts only if
    both bundles have it.
    """
    listed = run.digests if run.tree is None else run.tree.listed
    return [name for name in run.digests if is_table(name) and (name in listed or name in other.digests)]


def _fixes(one: Spec, other: Spec) -> tuple[str, ...]:
    """The known bugs of the old stack's libraries that the new stack does not have."""
    if one.stack is other.stack:
        return ()

    return tuple(
        f"{each.effect} ({', '.join(each.threads)})" for each in fixed_advisories(other, one.stack, other.stack)
    )


def changes(one: Spec, other: Spec) -> tuple[list[Change], list[Change]]:
    """Return two lists of settings that differ: the settings that at least one spec states, and the settings that
    neither spec states.
    """
    other = with_names_of(one, other)
    settings, read = _structure(one, other)
    follows: list[Change] = []
    values = [{str(path): value for path, value in spec.values.items()} for spec in (one, other)]
    for path in BY_PATH:
        before, after = (each.get(path) for each in values)
        if _value(before) == _value(after):
            continue
        stated = any(each is not None and each.origin.kind in (SPEC, BASE) for each in (before, after))
        why = "" if after is None or after.origin.kind in (SPEC, BASE) else after.origin.name
        texts = _shown(path, before), _shown(path, after)
        change = Change(path, *texts, why, (_scalar(before, texts[0]), _scalar(after, texts[1])))
        (settings if stated else follows).append(change)
    # `read` has the changes in how data sources are read. If a setting in READING has changed, they follow from it;
    # otherwise the spec itself states them at the sources, and they count as changed settings.
    if READING.isdisjoint(each.name for each in settings):
        return [*settings, *read], follows
    return settings, [*read, *follows]


def _value(value: Value | None) -> object:
    return None if value is None else plain(value.value)


def _scalar(value: Value | None, text: str) -> Scalar:
    return None if value is None else scalar(value.value, text)


def _shown(path: str, value: Value | None) -> str:
    return UNSET if value is None else show(BY_PATH[path], value.value)


def _structure(one: Spec, other: Spec) -> tuple[list[Change], list[Change]]:
    """Return two lists of changes that no row of the table of settings covers. The first has changes of the model, the
    data sources and `extra`. The second has data sources with the same rows that are read differently, for example with
    other columns.
    """
    names = [each.model.location for each in (one, other)]
    found = [Change("model", names[0], names[1])] if names[0] != names[1] else []
    read: list[Change] = []
    sets = [{each.name: each.sources for each in spec.evaluated} for spec in (one, other)]
    titles = {name: f"eval.data {name}" for name in (*sets[0], *sets[1])}
    both = [("data", one.data, other.data)]
    both += [(title, sets[0].get(name, ()), sets[1].get(name, ())) for name, title in titles.items()]
    for title, before, after in both:
        for change, reading in source_changes(title, before, after):
            (read if reading else found).append(change)
    return [*found, *_extra(one, other)], read


def _extra(one: Spec, other: Spec) -> Iterator[Change]:
    for library in dict.fromkeys((*one.extra, *other.extra)):
        tables = [each.extra.get(library, {}) for each in (one, other)]
        for name in sorted({*tables[0], *tables[1]}):
            values = [UNSET if name not in table else json.dumps(table[name].value) for table in tables]
            if values[0] != values[1]:
                yield Change(f"extra {library}.{name}", values[0], values[1])


def _findings(found: Iterable[Diagnostic]) -> Counter[str]:
    return Counter(f"{one.severity} {one.code} {one.slug}: {one.message}" for one in found)


def _executes(spec: Spec, moved: Mapping[str, str] | None = None) -> Counter[str]:
    """The lines about code that the run executes. `moved` maps names of renamed files to their previous names."""
    found = (line[2:].partition(": ") for line in executes(spec, str) if line.startswith("- "))
    return Counter(f"{(moved or {}).get(name, name)}{colon}{rest}" for name, colon, rest in found)


def _only_in_either(before: Counter[str], after: Counter[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple((before - after).elements()), tuple((after - before).elements())


def _headline(found: Difference, settings: str, memory: str) -> str:
    """The first line of the comparison. It says what changed, and what a reviewer must know about the change. Empty
    only for equal runs.
    """
    if found.verdict == SAME:
        return ""
    if found.verdict == CODE:
        files = [each.line.replace("  ", " ") for each in found.files]
        named = [*files[:SHOWN], *([f"{len(files) - SHOWN} more files"] if len(files) > SHOWN + 1 else files[SHOWN:])]
        facts = [_moved(each) for each in found.facts[:SHOWN]] if not files else []
        return f"{CODE}: {'; '.join(filter(None, (summary(found.packages), *named, *facts)))}"
    first = settings or _others(found)
    # a warning that the old run has with other numbers, such as another number of rows, is not new
    warnings = _warnings(found.new) - _warnings(found.gone)
    for code in ABOUT_MEMORY if memory else ():
        del warnings[code]
    more = ", ".join(f"{code} ({count})" if count > 1 else code for code, count in warnings.items())
    new = f"new warning{'s' if warnings.total() > 1 else ''} {more}" if warnings else ""
    stacks = _stack_summary(found) if found.across else ""
    packages = "" if found.across else summary(found.packages)
    rows = [_rows(found.contents)] if found.contents else []
    outside = [*rows, *found.images, *map(_moved, found.models[:1])] if settings else []
    return "; ".join(filter(None, (first + stacks, *outside, packages, memory, new)))


def _warnings(found: Iterable[str]) -> Counter[str]:
    return Counter(one.split(" ")[1] for one in found if one.startswith("warning "))


def _rows(contents: Sequence[str]) -> str:
    """The first sentence about rows that differ, without the rows themselves: `rows.jsonl: 1 row added, 0 removed`."""
    more = len(contents) - 1
    return contents[0].partition("; row ")[0] + (f" and {more} more file{'s' if more > 1 else ''}" if more else "")


def _others(found: Difference) -> str:
    """The first line of a comparison in which no setting has changed: the first changed derived values and arguments
    or, if there are none, the first changed files.
    """
    changes = [*found.follows, *(each for each in found.arguments if not about_images(each.name)), *found.renamed]
    lines = [*found.images, *map(_moved, (*found.models, *changes))] or [
        each.line.replace("  ", " ") for each in found.files
    ]
    # a setting and its argument may have the same name, and give the same line twice
    lines = list({line.replace('"', ""): line for line in lines}.values())
    more = len(lines) - SHOWN
    return "; ".join(lines[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _moved(one: Change) -> str:
    before, after = short(one.before, one.after)
    return f"{one.name.removeprefix('trainer_args.json ')} {before} -> {after}"


def _stack_summary(found: Difference) -> str:
    """The end of the first line of a comparison between two stacks: how many arguments change."""
    missing = sum(one.before == ABSENT for one in found.arguments)
    new = sum(one.after == ABSENT for one in found.arguments)
    moved = len(found.arguments) - missing - new
    names = f" ({len(found.renamed)} renamed)" if found.renamed else ""
    return (
        f": {found.same_arguments} arguments unchanged{names}, {moved} change, "
        f"{new} only on {found.stacks[0]}, {missing} only on {found.stacks[1]}"
    )
