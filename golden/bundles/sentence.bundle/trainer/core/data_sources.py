"""From a source of the bundle to its stored rows, and which of their columns are meant."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..features import data_folders
from . import bundle_integrity
from .bundle import Bundle
from .errors import RunError

BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
SHAPES = {
    "messages": ("messages",), "conversations": ("conversations",), "prompt_completion": ("prompt", "completion"),
    "text": ("text",), "preference": ("chosen", "rejected"), "unpaired": ("prompt", "completion", "label"),
    "prompt": ("prompt",),
}  # fmt: skip
"""The columns that rows of each shape have, in the order in which a source names them."""
KEPT = ("tools", "chat_template_kwargs")
"""Columns beside the shape's own that trl reads as they are."""
RESERVED = ("messages", "chosen", "rejected", "completion")
"""Columns by which trl tells what kind of row it has."""


def name(source: Mapping[str, Any]) -> str:
    """What a person calls this source."""
    return str(source["id"] or source["path"])


def every(bundle: Bundle) -> list[dict[str, Any]]:
    """Every source of the bundle: what is trained on, and the sets that are evaluated on."""
    sets = (bundle.data.get("evaluation") or {}).get("sets", [])
    return [*bundle.data["sources"], *(source for one in sets for source in one["sources"])]


def files(bundle: Bundle, source: Mapping[str, Any], split: str) -> tuple[str, list[str]]:
    """The builder of the datasets library and the data files of a local source. Raises RunError."""
    if source.get("files"):
        found = _stated(bundle, source, split)
    else:
        place = bundle.find(source["path"], source.get("bundled"))
        found = [place]
        if os.path.isdir(place):
            there = data_folders.listed(place, tuple(BUILDERS))
            found = [os.path.join(place, one) for one in _of_split(place, there, split)]
        else:
            _check_digest(place, source.get("sha256"), name(source))
    place = source["path"]
    kinds = {BUILDERS.get(os.path.splitext(one)[1].lower()) for one in found}
    if len(kinds) != 1 or None in kinds:
        raise RunError(f"{place} holds no data of one kind (.jsonl, .json, .csv, .parquet or .txt)")
    return str(kinds.pop()), found


def _of_split(place: str, names: list[str], split: str) -> list[str]:
    found = data_folders.of_split(names, split)
    if names and not found:
        raise RunError(f"{place} has no file of the split {split!r}: no file or folder in it is called so")
    return found


def _stated(bundle: Bundle, source: Mapping[str, Any], split: str) -> list[str]:
    """The files of a folder that the bundle states, each compared with its digest; what came later is not read."""
    stated = {one["path"]: one for one in source["files"]}
    found = []
    for name in _of_split(source["path"], list(stated), split):
        one = stated[name]
        path = bundle.find(os.path.join(source["path"], name), one["bundled"])
        _check_digest(path, one["sha256"], f"{source['path']}/{name}")
        found.append(path)
    return found


def _check_digest(path: str, expected: str | None, named: str) -> None:
    if expected is None:
        return
    try:
        found = bundle_integrity.digest(path)
    except OSError as error:  # it went away since it was looked for
        raise RunError(f"cannot read {named}: {path}: {error.strerror}") from error
    if found.removeprefix("sha256:") != expected.removeprefix("sha256:"):
        raise bundle_integrity.changed(path)


def load(bundle: Bundle, source: Mapping[str, Any], split: str | None = None, streaming: bool = False) -> Any:
    """The rows of one source as they are stored; ``streaming`` reads only what is asked for. Raises RunError."""
    from datasets import load_dataset

    part = split or source["split"]
    try:
        if source["id"] is not None:
            cut = f"[:{source['slice']}]" if source["slice"] and not streaming else ""
            return load_dataset(
                source["id"], source["config"], split=part + cut, revision=source["revision"], streaming=streaming
            )
        builder, found = files(bundle, source, part)
        cut = f"[:{source['slice']}]" if source["slice"] and not streaming else ""
        return load_dataset(builder, data_files=found, split="train" + cut, streaming=streaming)
    except RunError:
        raise
    except Exception as error:  # the datasets library wraps what its readers raise in many classes
        raise RunError(unreadable(bundle, source, split, error)) from error


def unreadable(bundle: Bundle, source: Mapping[str, Any], split: str | None, error: BaseException) -> str:
    """A sentence on rows that cannot be read, with the first of them where the files are lines of JSON."""
    part, cause = split or source["split"], error.__cause__ or error
    lines = str(cause).strip().splitlines()
    why = lines[0] if lines else type(cause).__name__
    if source["id"] is None:
        try:
            for path in files(bundle, source, part)[1]:
                why = _first_wrong(path) or why
        except (OSError, RunError) as gone:  # lost, or changed, while it was read
            why = str(gone)
    return f"cannot read {name(source)} ({part}): {why}"


def _first_wrong(path: str) -> str | None:
    """The first line of a .jsonl file that is no UTF-8 or no object of JSON."""
    if not path.endswith(".jsonl"):
        return None
    with open(path, "rb") as handle:
        row = 0
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            try:
                if not isinstance(json.loads(line.decode("utf-8-sig")), dict):
                    return f"row {row} (line {number}) is no object"
            except UnicodeDecodeError as error:
                return f"row {row} (line {number}) holds the byte 0x{error.object[error.start]:02X}, which is no UTF-8"
            except (ValueError, RecursionError):
                return f"row {row} (line {number}) is no JSON"
            row += 1
    return None


def mapping(source: Mapping[str, Any], present: Sequence[str]) -> dict[str, str]:
    """The dataset's own column for each part of the shape; ``present`` is what the dataset has.

    A preference may have a prompt of its own: named first of three, or found when no columns are named. Of ``prompt``
    the first name is the prompt, and the others are columns that the reward functions read (all, when none is named).
    Raises RunError when the names do not fit the shape.
    """
    shape, wanted = source["shape"], SHAPES[source["shape"]]
    given = [one for one in source["columns"] or () if one not in KEPT]
    if not given:
        prompt = ("prompt",) if shape == "preference" and "prompt" in present else ()
        return {one: one for one in (*prompt, *wanted)}
    if shape == "preference" and len(given) == 3:
        wanted = ("prompt", *wanted)
    if shape == "prompt":
        given = given[:1]
    if len(given) != len(wanted):
        raise RunError(f"{name(source)} names {len(given)} column(s), and {shape} needs {len(wanted)}")
    return dict(zip(wanted, given, strict=True))


def dropped(source: Mapping[str, Any], present: Sequence[str], method: str) -> list[str]:
    """The columns that the trainer does not get as they are stored.

    Reward functions get every column of their source, or those that it names. trl takes a row for a conversation by
    any one of the reserved columns (data_utils.is_conversational picks by the order of a set, which differs from
    process to process), so beside a prompt none of these stays. A source that names its columns (``only``) has no
    others, as with the handbook's ``select_columns``.
    """
    if source["shape"] != "prompt":
        kept: tuple[str, ...] = (*KEPT, "margin") if method == "reward" else KEPT
        if source.get("only"):
            kept = tuple(one for one in kept if one in source["columns"])
        return [one for one in present if one not in kept]
    named = [*((source["columns"] or ())[1:] or present), *KEPT]  # the first is the prompt
    prompt = mapping(source, present)["prompt"]
    return [one for one in present if one not in named or one == prompt or one in ("prompt", *RESERVED)]


def missing_columns(source: Mapping[str, Any], present: Sequence[str]) -> str | None:
    """A sentence when the dataset lacks a column that the shape uses, or that the source names."""
    named = [source["context"]] if source.get("context") and not source.get("wording") else []
    named += [one for one in source["columns"] or () if one not in KEPT]
    wanted = dict.fromkeys([*mapping(source, present).values(), *named])
    lacking = [one for one in wanted if one not in present]
    if not lacking:
        return None
    return f"{name(source)} has no column {', '.join(map(repr, lacking))}; it has {', '.join(map(repr, present))}"
