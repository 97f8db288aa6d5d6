"""Rules about the files of data folders (XP579 to XP581)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import data_folders
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec, folders
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Label

WHEN = data_folders


def _splits_read(spec: Spec) -> Iterator[tuple[DataSource, str, Label]]:
    """Yield a triple for each split that the spec reads from a local folder: the folder, the split, and the place in
    the spec that names the split.
    """
    split = spec.get("eval.split")
    for source in spec.sources:
        if source.parts:
            yield source, source.split, source.label
        if source.parts and isinstance(split, str) and source in spec.data:
            yield source, split, spec.location("eval.split", "a split of a folder")


@rule("XP580", "split-not-in-the-folder")
def split_not_there(spec: Spec) -> Iterator[Finding]:
    """A folder must contain the split that the run reads. A split is a file or a folder with the split's name, such as
    `train-0.jsonl`, `test/rows.jsonl` or `data/validation-00000-of-00001.parquet`. If no name in the folder mentions a
    split, all its files are training rows.

    Why it is bad: the run could read the rows of another split.

    Without this rule: if a file is called `test` but none is called `train`, the run trains on the test rows, or ends
    with `Unknown split`.

    Source: datasets 5.2 and 5.0 `data_files.py` (`_get_data_files_patterns`); confirmed by running it.
    """
    for source, split, label in _splits_read(spec):
        if source.of_split(split):
            continue
        names = tuple(part.inside(source) for part in source.parts)
        there = folders.splits(names)
        known = f"the folder has files only for {', '.join(there)}"
        other = f"{known}; write `split = {there[-1]}`, or rename a file to `{split[:40]}`"
        if split == "train":
            other = f"{known}; name the file to train on, or rename a file to `train`"
        help = other if there else known
        lost = next(
            (one for one in names if "/" not in one and split != "train" and folders.of_split((one,), split)), ""
        )
        if lost and there:
            help = (
                f"datasets ignores `{lost[:60]}`, because the folder also has folders for splits "
                f"({', '.join(there)}): move it into `{split}/`"
            )
        yield Finding(label, f"`{source.name[:80]}` has no file of the split `{split[:40]}`", help)


@rule("XP581", "files-of-two-kinds")
def two_kinds(spec: Spec) -> Iterator[Finding]:
    """The files of one split must all be of one kind: JSON (or JSON Lines), CSV, Parquet, or text. The datasets library
    uses a single reader for all files of a split.

    Why it is bad: part of the data would be missing from the run.

    Without this rule: the datasets library silently reads only the most frequent kind in the folder (for equal numbers,
    Parquet before JSON before CSV before text).

    Source: datasets 5.2 and 5.0 `load.py` (`infer_module_for_data_files_list`, and the filter after it); confirmed by
    running it.
    """
    for source, split, label in _splits_read(spec):
        kinds = sorted(folders.kinds([part.inside(source) for part in source.of_split(split)]))
        if len(kinds) > 1:
            yield Finding(
                label,
                f"`{source.name[:80]}` mixes {' and '.join(kinds)} files",
                "keep files of one kind in the folder, or name the files one by one in a `data` block",
            )


@rule("XP579", "file-with-more-columns")
def more_columns(spec: Spec) -> Iterator[Finding]:
    """The first Parquet file of a split decides the columns, and the keys inside of columns, such as the keys of
    messages. Another file of the split must not have further columns or keys. It may lack columns or keys, which are
    then null, and may have them in another order. xpc compares the first 256 files of a folder.

    Why it is bad: the run fails when it reads the later file.

    Without this rule: launch.sh stops with the message of this rule, but only after the GPUs are allocated.

    Source: datasets 5.2 and 5.0 `table.py` (`cast_table_to_schema`, `array_cast`); confirmed by running it.
    """
    for source, split, label in _splits_read(spec):
        first, *others = source.of_split(split) or (None,)
        if first is None or first.keys is None:
            continue
        for other in others:
            more = [one for one in other.keys or () if not any(_within(one, known) for known in first.keys)]
            if more:
                yield Finding(
                    label,
                    f"`{other.inside(source)[:80]}` of `{source.name[:80]}` has the column or key `{more[0][:80]}`, "
                    f"and the first file, `{first.inside(source)[:80]}`, does not",
                    "give all files the same columns and keys, with null for a missing value",
                )
                break


def _within(one: str, known: str) -> bool:
    """Whether the key `one` is the key `known`, or a column or object that contains `known`. If all values of the outer
    key are null in a file, the inner keys are unknown, so only the outer key is compared.
    """
    return one == known or (known.startswith(one) and known[len(one)] in ".[")
