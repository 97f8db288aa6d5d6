"""From a source of the bundle to its stored rows, and which of their columns are meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .bundle import Bundle
from .errors import RunError

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


def load(bundle: Bundle, source: Mapping[str, Any], split: str | None = None, streaming: bool = False) -> Any:
    """The rows of one source as they are stored; ``streaming`` reads only what is asked for. Raises RunError."""
    part, read = split or source["split"], _of_hub
    if source["id"] is None and bundle.uses("local_data"):
        from ..features import local_data

        read = local_data.read
    try:
        return read(bundle, source, part, streaming)
    except RunError:
        raise
    except Exception as error:  # the datasets library wraps what its readers raise in many classes
        raise RunError(unreadable(bundle, source, split, error)) from error


def _of_hub(bundle: Bundle, source: Mapping[str, Any], split: str, streaming: bool) -> Any:
    from datasets import load_dataset

    cut = f"[:{source['slice']}]" if source["slice"] and not streaming else ""
    return load_dataset(
        source["id"], source["config"], split=split + cut, revision=source["revision"], streaming=streaming
    )


def unreadable(bundle: Bundle, source: Mapping[str, Any], split: str | None, error: BaseException) -> str:
    """A sentence on rows that cannot be read, with the first of them where the files are lines of JSON."""
    part, cause = split or source["split"], error.__cause__ or error
    lines = str(cause).strip().splitlines()
    why = lines[0] if lines else type(cause).__name__
    if bundle.uses("local_data") and source["id"] is None:
        from ..features import local_data

        why = local_data.first_wrong(bundle, source, part) or why
    return f"cannot read {name(source)} ({part}): {why}"


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
