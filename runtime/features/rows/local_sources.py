"""Local data: find the files of a source, check their digests, and explain rows that cannot be read."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from ...core import bundle_integrity
from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Rows, Source
from ...library_internals.json_texts import keep_dates
from ..launch import csv_texts, local_files
from ..launch.verified_files import changed
from . import split_files

BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}


class LocalSources(Feature):
    """Hooks for a run with local data."""

    def source_reader(self, bundle: Bundle, source: Source) -> Callable[..., Rows] | None:
        """The function that reads a local source; None for a source on the hub."""
        return _read if source["id"] is None else None

    def source_unreadable(self, bundle: Bundle, reason: str, source: Source, split: str) -> str:
        """The reason why a local source cannot be read: the first bad row of its JSON Lines files, or the first Parquet
        file with other types of columns. Without such a row or file, the library's ``reason``.
        """
        if source["id"] is not None:
            return reason
        try:
            found = files(bundle, source, split)[1]
            for path in found:
                reason = _first_wrong(path) or reason
            reason = _other_type(found) or reason
        except (OSError, RunError) as error:  # a file was deleted or changed during reading
            reason = str(error)
        return reason


def _read(bundle: Bundle, source: Source, split: str, streaming: bool) -> Any:
    """The stored rows of a local source. Raises RunError and errors of the datasets library."""
    from datasets import Features, Value, load_dataset

    builder, found = files(bundle, source, split)
    if builder == "json":
        keep_dates()
    cut = f"[:{source['slice']}]" if source["slice"] and not streaming else ""
    options: dict[str, Any] = {"encoding": "utf-8-sig"} if builder == "text" else {}  # skips a byte order mark
    if builder == "csv":
        options["converters"] = csv_texts.converters(source)
    documents = source.get("documents")
    if documents is not None:
        options["features"] = Features({"text": Value("string")})
        options["sample_by"] = "document" if documents == "file" else documents
    rows = load_dataset(builder, data_files=found, split="train" + cut, streaming=streaming, **options)
    if documents == "paragraph":  # the library keeps empty paragraphs and final line breaks
        rows = rows.map(_stripped, features=options["features"]).filter(_has_text)
    return rows


def _stripped(row: Mapping[str, str]) -> dict[str, str]:
    return {"text": row["text"].strip("\n")}


def _has_text(row: Mapping[str, str]) -> bool:
    return bool(row["text"].strip())


def files(bundle: Bundle, source: Source, split: str) -> tuple[str, list[str]]:
    """Return a pair: the builder of the datasets library for a local source, and its data files. Raises RunError."""
    if source.get("files"):
        found = _stated(bundle, source, split)
    else:
        place = path_of(bundle, str(source["path"]), source.get("bundled"))
        found = [place]
        if os.path.isdir(place):
            listed = split_files.listed(place, tuple(BUILDERS))
            found = [os.path.join(place, one) for one in _of_split(place, listed, split)]
        else:
            _check_digest(place, source.get("sha256"), str(source["path"]))
    place = str(source["path"])
    kinds = {BUILDERS.get(os.path.splitext(one)[1].lower()) for one in found}
    if len(kinds) != 1 or None in kinds:
        raise RunError(f"the data files of {place} must be of one kind: .jsonl, .json, .csv, .parquet or .txt")
    return str(kinds.pop()), found


def path_of(bundle: Bundle, path: str, bundled: str | None = None) -> str:
    """The path of a file or folder of the spec: the bundle's copy or, without a copy, the original. Raises RunError."""
    return local_files.find(bundle.folder, path) if bundled is None else bundle.inside(bundled)


def _of_split(place: str, names: list[str], split: str) -> list[str]:
    found = split_files.of_split(names, split)
    if names and not found:
        raise RunError(f"{place} has no file of the split {split!r}: no name of a file or folder contains this word")
    return found


def _stated(bundle: Bundle, source: Source, split: str) -> list[str]:
    """The files of a folder that the bundle lists, after a check of their digests. Files that were added later are not
    read.
    """
    stated = {one["path"]: one for one in source["files"] or ()}
    found = []
    for inside in _of_split(str(source["path"]), list(stated), split):
        one = stated[inside]
        path = path_of(bundle, os.path.join(str(source["path"]), inside), one["bundled"])
        _check_digest(path, one["sha256"], f"{source['path']}/{inside}")
        found.append(path)
    return found


def _check_digest(path: str, expected: str | None, label: str) -> None:
    if expected is None:
        return
    try:
        found = bundle_integrity.digest(path)
    except OSError as error:  # a file that the bundle lists was deleted
        raise RunError(f"cannot read {label}: {path}: {error.strerror}") from error
    if found.removeprefix("sha256:") != expected.removeprefix("sha256:"):
        raise changed(path)


def _first_wrong(path: str) -> str | None:
    """The first line of a .jsonl file that is no JSON object or has invalid UTF-8; None if there is no such line."""
    if not path.endswith(".jsonl"):
        return None
    with open(path, "rb") as handle:
        row = 0
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            try:
                if not isinstance(json.loads(line.decode("utf-8-sig")), dict):
                    return f"row {row} (line {number}) is not an object"
            except UnicodeDecodeError as error:
                return f"row {row} (line {number}) has the byte 0x{error.object[error.start]:02X}, which is not UTF-8"
            except (ValueError, RecursionError):
                return f"row {row} (line {number}) is not JSON"
            row += 1
    return None


def _other_type(paths: list[str]) -> str | None:
    """Describe the first Parquet column with another type than in the first file: all files must have equal types."""
    if not paths[1:] or not all(path.endswith(".parquet") for path in paths):
        return None
    from pyarrow.parquet import read_schema

    first = read_schema(paths[0])
    for path in paths[1:]:
        for column in read_schema(path):
            here, there = os.path.basename(path), os.path.basename(paths[0])
            if column.name not in first.names:
                return (
                    f"{here} has a column {column.name!r}, and {there} lacks it; write the files with the same columns"
                )
            expected = first.field(column.name).type
            if column.type != expected:
                return (
                    f"the column {column.name!r} of {here} is {_shortened(column.type)}, and that of {there} is "
                    f"{_shortened(expected)}; write the files with the same types"
                )
    return None


def _shortened(kind: object) -> str:
    return text if len(text := str(kind)) <= 160 else text[:160] + "..."
