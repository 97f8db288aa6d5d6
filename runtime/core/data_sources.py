"""Load the stored rows of a source, and check their columns."""

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from ..library_internals.datasets_rows import typed
from .errors import RunError, first_line
from .feature import Bundle, Feature, Rows, Source
from .rows import KEPT, RowFormat, name


def load(bundle: Bundle, source: Source, split: str | None = None, first: int | None = None) -> Any:
    """The stored rows of a source, or with ``first`` only the first rows, as a list. Raises RunError."""
    try:
        found = reader(bundle, source, bundle.features)(bundle, source, split or source["split"], first is not None)
        return found if first is None else list(islice(found, first))
    except RunError:
        raise
    except Exception as error:  # the datasets library raises many exception classes for the errors of its readers
        raise RunError(unreadable(bundle, source, split, error)) from error


def reader(bundle: Bundle, source: Source, features: Iterable[Feature]) -> Callable[..., Rows]:
    """The function that reads a source. It comes from a feature, such as the one for local files, or reads the hub."""
    found = (one.source_reader(bundle, source) for one in features)
    read = next((one for one in found if one is not None), _of_hub)
    return lambda *given: typed(read(*given))


def _of_hub(bundle: Bundle, source: Source, split: str, streaming: bool) -> object:
    from datasets import load_dataset

    if os.environ.get("XPC_STAGED"):  # stage.py has put the rows into this folder, for machines without a network
        return bundle.staged_rows(source, split, streaming)
    split += f"[:{source['slice']}]" if source["slice"] and not streaming else ""
    return load_dataset(source["id"], source["config"], split=split, revision=source["revision"], streaming=streaming)


def unreadable(bundle: Bundle, source: Source, split: str | None, error: BaseException) -> str:
    """Explain why rows cannot be read. For JSON Lines files, the explanation names the first bad row."""
    part = split or source["split"]
    why = first_line(error if isinstance(error, FileNotFoundError) else error.__cause__ or error)  # not "404"
    for feature in bundle.features:
        why = feature.source_unreadable(bundle, why, source, part)
    return f"cannot read {name(source)} ({part}): {why}"


def check_columns(row_format: RowFormat, source: Source, present: Sequence[str]) -> None:
    """Raise RunError if the dataset lacks a column that the row format or the source names."""
    used = [source["context"]] if source.get("context") and not source.get("wording") else []
    used += [one for one in source["columns"] or () if one not in KEPT]
    expected = dict.fromkeys([*row_format.columns(source, present).values(), *used])
    if source["id"] and source["shape"] == "conversations" and not source.get("only") and "tools" in present:
        raise RunError(f"{name(source)} has tools next to its conversations: write `columns = [conversations, tools]`")
    missing = [one for one in expected if one not in present]
    if missing:
        raise RunError(f"{name(source)} has no column {str(missing)[1:-1]}; it has {str([*present])[1:-1]}")
