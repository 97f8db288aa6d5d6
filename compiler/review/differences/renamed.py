"""Find files of rows and chat templates that were renamed between two runs, but have the same content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import splitext

from xpc.compiler.language.kinds import Template
from xpc.compiler.review.resuming import HEAD
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.values import Value
from xpc.grammar.record import evolve
from xpc.runtime.features.launch import renamed_files as same_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.review.operands import Run

SETTING = "model.chat_template"
SOURCES, TEMPLATE = (f"{HEAD}{name}" for name in (same_files.SOURCES, same_files.TEMPLATE))


def with_names_of(one: Spec, other: Spec) -> Spec:
    """Return the second spec with its renamed files: each has the name that it has in the first spec. The trainer
    compares the files of two runs in the same way (runtime/features/launch/renamed_files.py).
    """
    out = evolve(other, data=with_paths_of(one.data, other.data)) if one.data != other.data else other
    before, after = one.template, other.template
    if before is None or after is None or before.file == after.file:
        return out
    texts = one.bundled.get(before.file), other.bundled.get(after.file)
    if texts[0] != texts[1] or splitext(before.file)[1] != splitext(after.file)[1]:
        return out
    template = evolve(after, file=before.file)
    return evolve(out, values={
        path: Value(template, value.origin) if path == SETTING else value for path, value in other.values.items()
    })  # fmt: skip


def with_paths_of(before: Sequence[DataSource], after: Sequence[DataSource]) -> tuple[DataSource, ...]:
    """Return the second run's sources. A source whose file was renamed gets the path that the file has in the first
    run.
    """
    if len(before) != len(after):
        return tuple(after)
    return tuple(
        evolve(new, path=old.path, bundled=old.bundled, parts=old.parts)
        if old.path != new.path and same_files.same_rows(_facts(old), _facts(new)) else new
        for old, new in zip(before, after, strict=True)
    )  # fmt: skip


def _facts(source: DataSource) -> dict[str, object]:
    files = [{"path": part.inside(source), "sha256": part.sha256} for part in source.parts]
    return {"path": source.path, "shape": source.shape, "sha256": source.sha256, "files": files}


def with_table_names_of(again: Spec, other: Spec, table: Mapping[str, object]) -> dict[str, object]:
    """Return those values of the second run's trainer_args.json that name renamed files, with the files' names in the
    first run. A value that was edited, so that it differs from the second spec, stays. `again` is the result of
    `with_names_of`: the second spec with the first spec's names.
    """
    sources, out = table.get(SOURCES), dict[str, object]()
    if isinstance(sources, list) and len(sources) == len(other.data):
        names = [[(each.path, each.bundled) for each in spec.data] for spec in (other, again)]
        out[SOURCES] = [
            {**source, "path": old[0], "bundled": old[1]}
            if isinstance(source, dict) and (source.get("path"), source.get("bundled")) == new else source
            for source, new, old in zip(sources, *names, strict=True)
        ]  # fmt: skip
    for new, old in _templates(other, again):
        if table.get(TEMPLATE) == new.file:
            out[TEMPLATE] = old.file
    return out


def renamed_files(one: Run, other: Run, again: Spec) -> dict[str, str]:
    """Map the names of renamed files in the second run's bundle to their names in the first run's bundle. `again` is
    the result of `with_names_of`: the second spec with the first spec's names.
    """
    pairs = [(new.bundled, old.bundled) for new, old in zip(other.spec.data, again.data, strict=True)]
    pairs += [(each.file, renamed.file) for each, renamed in _templates(other.spec, again)]
    found = {new: old for new, old in pairs if new is not None and old is not None and new != old}
    digests = one.digests, other.digests
    return {new: old for new, old in found.items() if digests[0].get(old) == digests[1].get(new) is not None}


def renaming_lines(again: Spec, other: Spec) -> list[str]:
    """A line for each renamed file or folder: `rows.jsonl -> train.jsonl: renamed, with the same content`. `again` is
    the result of `with_names_of`: the second spec with the first spec's names.
    """
    pairs = [(old.path, new.path) for old, new in zip(again.data, other.data, strict=True)]
    pairs += [(renamed.file, each.file) for each, renamed in _templates(other, again)]
    return [f"{old} -> {new}: renamed, with the same content" for old, new in dict(pairs).items() if old != new]


def _templates(one: Spec, other: Spec) -> list[tuple[Template, Template]]:
    return [] if one.template is None or other.template is None else [(one.template, other.template)]
