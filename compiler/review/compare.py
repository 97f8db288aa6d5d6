"""The differences between two runs and their consequences. Pure functions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower.drift import same_value
from xpc.compiler.lower.executes import executes
from xpc.compiler.review.meaning import plain
from xpc.compiler.review.operands import Run
from xpc.compiler.review.planned import planned, verdicts
from xpc.compiler.review.run_length import Change as Change
from xpc.compiler.review.run_length import run_length
from xpc.compiler.review.sources import UNSET, source_changes
from xpc.compiler.review.tables import PROSE, tables
from xpc.compiler.spec import CheckedSpec, Spec, Value
from xpc.grammar.record import evolve, record

ABSENT = "absent"
READING = {"method", "data.format", "data.columns", "data.prompt", "data.context", "data.chat"}
"""Settings that decide how the rows of a source are read."""


@record
class FileChange:
    """A file of the bundle. `kind` is added, removed or changed; `added` and `removed` count its lines."""

    name: str
    kind: str
    added: int = 0
    removed: int = 0


@record
class Difference:
    """Two runs compared. `settings` are written by the author, `follows` are derived values and defaults.

    `arguments` are keys of the emitted tables; `same_arguments` counts the unchanged ones. Between two `stacks`,
    `renamed` arguments have another name and the same value. `new` and `gone` are findings. `runs_now` and
    `ran_before` are the programs executed next to the trainer in one run only.
    """

    settings: tuple[Change, ...]
    follows: tuple[Change, ...]
    arguments: tuple[Change, ...]
    renamed: tuple[Change, ...]
    same_arguments: int
    files: tuple[FileChange, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]
    runs_now: tuple[str, ...]
    ran_before: tuple[str, ...]
    headline: str
    stacks: tuple[str, str]

    @property
    def across(self) -> bool:
        """Whether the runs use different stacks."""
        return self.stacks[0] != self.stacks[1]

    @property
    def same(self) -> bool:
        """Whether both are the same run; findings are not compared."""
        return not (self.settings or self.follows or self.arguments or self.renamed)


def compare(one: Run, other: Run) -> Difference:
    """Everything that differs between two runs."""
    settings, follows = changes(one.spec, other.spec)
    before, after = run_length(one.spec), run_length(other.spec)
    moved = planned(one.spec, other.spec)
    follows += [*(Change(*each) for each in before.changes(after)), *moved]
    files = one.files(), other.files()
    renamed, arguments, same = _arguments(one.spec, other.spec, *map(tables, files))
    gone, new = _only_in_either(_findings(one.spec), _findings(other.spec))
    removed, added = _only_in_either(_executes(one.spec), _executes(other.spec))
    headline = "; ".join(filter(None, (before.headline(after, settings), verdicts(moved))))
    found = Difference(
        tuple(settings), tuple(follows), arguments, renamed, same, tuple(_files(*files)), new, gone, added, removed,
        headline, (one.spec.stack.name, other.spec.stack.name),
    )  # fmt: skip
    return evolve(found, headline=f"{found.headline}{_stack_summary(found)}") if found.across else found


def changes(one: Spec, other: Spec) -> tuple[list[Change], list[Change]]:
    """The settings that differ: first those that either spec states, then those that are derived in both."""
    settings, read = _structure(one, other)
    follows: list[Change] = []
    values = [{str(path): value for path, value in spec.values.items()} for spec in (one, other)]
    for path in BY_PATH:
        before, after = (each.get(path) for each in values)
        if _value(before) == _value(after):
            continue
        stated = any(each is not None and each.origin.kind in (SPEC, BASE) for each in (before, after))
        why = "" if after is None or after.origin.kind in (SPEC, BASE) else after.origin.name
        change = Change(path, _shown(path, before), _shown(path, after), why)
        (settings if stated else follows).append(change)
    if READING.isdisjoint(each.name for each in settings):  # the source's own settings changed
        return [*settings, *read], follows
    return settings, [*read, *follows]


def _value(value: Value | None) -> object:
    return None if value is None else plain(value.value)


def _shown(path: str, value: Value | None) -> str:
    return UNSET if value is None else show(BY_PATH[path], value.value)


def _structure(one: Spec, other: Spec) -> tuple[list[Change], list[Change]]:
    """Changes outside the table of settings: the model, data sources and `extra`. The second list has the sources whose
    rows are the same but read in another way."""
    names = [each.model.location for each in (one, other)]
    found = [Change("model", *names)] if names[0] != names[1] else []
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
    for escape in dict.fromkeys((*one.extra, *other.extra)):
        tables = [each.extra.get(escape, {}) for each in (one, other)]
        for name in sorted({*tables[0], *tables[1]}):
            values = [UNSET if name not in table else json.dumps(table[name].value) for table in tables]
            if values[0] != values[1]:
                yield Change(f"extra {escape}.{name}", *values)


def _findings(spec: CheckedSpec) -> Counter[str]:
    return Counter(f"{one.severity} {one.code} {one.slug}: {one.message}" for one in spec.problems)


def _executes(spec: Spec) -> Counter[str]:
    return Counter(line[2:] for line in executes(spec, str) if line.startswith("- "))


def _only_in_either(before: Counter[str], after: Counter[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple((before - after).elements()), tuple((after - before).elements())


# -- emitted files ---------------------------------------------------------------------------------------------------


def _arguments(
    one: Spec, other: Spec, before: dict[str, object], after: dict[str, object]
) -> tuple[tuple[Change, ...], tuple[Change, ...], int]:
    """Renamed arguments, arguments whose value differs, and the number of unchanged ones."""
    head = "trainer_args.json arguments."
    renamed: list[Change] = []
    why: dict[str, str] = {}
    for key in [key for key in before if key.startswith(head) and key not in after and one.stack is not other.stack]:
        name, dot, inner = key.removeprefix(head).partition(".")
        new = other.stack.rename(name) or next((o for o in other.stack.renamed if one.stack.rename(o) == name), None)
        moved = f"{head}{new}{dot}{inner}"
        if new is not None and moved in after and after[moved] == before[key]:
            renamed.append(Change(name + dot + inner, name + dot + inner, new + dot + inner, _as_text(before.pop(key))))
            del after[moved]
        else:
            gone = other.stack.removed.get(name) or other.stack.omitted(other.config).get(name)
            why[key] = gone or (f"now {new}" if new is not None else "")
    found: list[Change] = []
    same = 0
    for key in (*before, *(key for key in after if key not in before)):
        was, now = (_as_text(table[key]) if key in table else ABSENT for table in (before, after))
        alike = one.stack is not other.stack and key in before and key in after and same_value(before[key], after[key])
        same += was == now or alike
        if was != now and not alike:
            found += _entries(key, before.get(key), after.get(key)) or [Change(key, was, now, why.get(key, ""))]
    return tuple(renamed), tuple(found), same + len(renamed)


def _entries(key: str, before: object, after: object) -> list[Change]:
    """The differences between two lists of records, key by key: a data source has seventeen keys."""
    lists = [each for each in (before, after) if isinstance(each, list) and all(isinstance(one, dict) for one in each)]
    if len(lists) < 2:
        return []
    if len(lists[0]) != len(lists[1]):
        return [Change(key, *(f"{len(each)} entr{'y' if len(each) == 1 else 'ies'}" for each in lists))]
    return [
        Change(f"{key}[{at}].{name}", *(_as_text(of[name]) if name in of else ABSENT for of in (one, other)))
        for at, (one, other) in enumerate(zip(*lists, strict=True))
        for name in dict.fromkeys((*one, *other))
        if one.get(name, ABSENT) != other.get(name, ABSENT)
    ]


def _stack_summary(found: Difference) -> str:
    """The end of the first line if the run moves to another stack."""
    gone, new = (
        sum(one.before == ABSENT for one in found.arguments),
        sum(one.after == ABSENT for one in found.arguments),
    )
    moved = len(found.arguments) - gone - new
    names = f" ({len(found.renamed)} renamed)" if found.renamed else ""
    return (
        f": {found.same_arguments} arguments unchanged{names}, {moved} change, "
        f"{new} only on {found.stacks[0]}, {gone} only on {found.stacks[1]}"
    )


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "unset" if value is None else json.dumps(value)


def _files(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Iterator[FileChange]:
    for name in sorted({*before, *after} - {*PROSE}):
        if name not in before or name not in after:
            yield FileChange(name, "removed" if name in before else "added")
        elif before[name] != after[name]:
            lines = [files[name].split(b"\n") for files in (before, after)]
            was, now = Counter(lines[0]), Counter(lines[1])
            yield FileChange(name, "changed", (now - was).total(), (was - now).total())
