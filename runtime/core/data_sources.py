"""From a source of the bundle to its stored rows, and which of their columns are meant."""

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from runpy import run_path
from typing import Any

from .bundle import Bundle
from .errors import RunError, first_line

KEPT = ("tools", "chat_template_kwargs")
"""Columns beside the shape's own that trl reads as they are."""


def name(source: Mapping[str, Any]) -> str:
    """What a person calls this source."""
    return str(source["id"] or source["path"])


def load(bundle: Bundle, source: Mapping[str, Any], split: str | None = None, first: int | None = None) -> Any:
    """The rows of one source as they are stored; a list of the ``first`` ones, read without the others. Raises
    RunError."""
    import datasets

    datasets.disable_progress_bars()
    try:
        found = bundle.changed("reader", _of_hub, source)(bundle, source, split or source["split"], first is not None)
        return found if first is None else list(islice(found, first))
    except RunError:
        raise
    except Exception as error:  # the datasets library wraps what its readers raise in many classes
        raise RunError(unreadable(bundle, source, split, error)) from error


def _of_hub(bundle: Bundle, source: Mapping[str, Any], split: str, streaming: bool) -> Any:
    from datasets import load_dataset

    if os.environ.get("XPC_STAGED"):  # what stage.py has fetched, for machines without a network
        return run_path(bundle.inside("stage.py"))["rows"](source, split, streaming)
    cut = f"[:{source['slice']}]" if source["slice"] and not streaming else ""
    return load_dataset(
        source["id"], source["config"], split=split + cut, revision=source["revision"], streaming=streaming
    )


def unreadable(bundle: Bundle, source: Mapping[str, Any], split: str | None, error: BaseException) -> str:
    """A sentence on rows that cannot be read, with the first of them where the files are lines of JSON."""
    part, cause = split or source["split"], error.__cause__ or error
    return f"cannot read {name(source)} ({part}): {bundle.changed('why_unreadable', first_line(cause), source, part)}"


def check_columns(shapes: Any, source: Mapping[str, Any], present: Sequence[str]) -> None:
    """Raises RunError where the dataset lacks a column that the shape uses (``data.shapes``), or the source names."""
    named = [source["context"]] if source.get("context") and not source.get("wording") else []
    named += [one for one in source["columns"] or () if one not in KEPT]
    wanted = dict.fromkeys([*shapes.columns(source, present).values(), *named])
    lacking = [one for one in wanted if one not in present]
    if lacking:
        has = f"it has {', '.join(map(repr, present))}"
        raise RunError(f"{name(source)} has no column {', '.join(map(repr, lacking))}; {has}")
