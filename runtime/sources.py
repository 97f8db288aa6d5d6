"""From a source of the bundle to a dataset with the columns that trl reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .bundle import Bundle
from .errors import RunError

BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "model": "assistant", "bot": "assistant", "system": "system", "tool": "tool", "function": "tool",
    "observation": "tool",
}  # fmt: skip
"""Speakers of from/value conversations (ShareGPT and its kin) as the roles of chat templates."""
SHAPES = {
    "messages": ("messages",), "conversations": ("conversations",), "prompt_completion": ("prompt", "completion"),
    "text": ("text",),
}  # fmt: skip
KEPT = ("tools", "chat_template_kwargs")
"""Columns beside the shape's own that trl reads as they are."""


def name(source: Mapping[str, Any]) -> str:
    """What a person calls this source."""
    return str(source["id"] or source["path"])


def files(bundle: Bundle, source: Mapping[str, Any], split: str) -> tuple[str, list[str]]:
    """The builder of the datasets library and the data files of a local source. Raises RunError."""
    place = bundle.find(source["path"], source.get("bundled"))
    if os.path.isdir(place):
        found = sorted(os.path.join(place, one) for one in os.listdir(place) if os.path.splitext(one)[1] in BUILDERS)
        of_split = [one for one in found if os.path.basename(one).startswith(split)]
        found = of_split or found
    else:
        found = [place]
        _check_digest(place, source.get("sha256"))
    kinds = {BUILDERS.get(os.path.splitext(one)[1]) for one in found}
    if len(kinds) != 1 or None in kinds:
        raise RunError(f"{place} holds no data of one kind (.jsonl, .json, .csv, .parquet or .txt)")
    return str(kinds.pop()), found


def _check_digest(path: str, expected: str | None) -> None:
    if expected is None:
        return
    digest = sha256()
    with open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected.removeprefix("sha256:"):
        raise RunError(f"{path} is not the file that this bundle was compiled with (its sha256 differs)")


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
    except (OSError, ValueError, RuntimeError) as error:
        line = str(error).strip().splitlines()
        raise RunError(f"cannot read {name(source)} ({part}): {line[0] if line else type(error).__name__}") from error


def columns(source: Mapping[str, Any]) -> tuple[str, ...]:
    """The dataset's own columns, in the order of the shape."""
    wanted = SHAPES[source["shape"]]
    given = tuple(one for one in source["columns"] or wanted if one not in KEPT)
    if len(given) != len(wanted):
        raise RunError(f"{name(source)} names {len(given)} column(s), and {source['shape']} needs {len(wanted)}")
    return given


def missing_columns(source: Mapping[str, Any], present: list[str]) -> str | None:
    """A sentence when the dataset lacks a column that the shape uses."""
    extra = [source["context"]] if source.get("context") else []
    lacking = [one for one in (*columns(source), *extra) if one not in present]
    if not lacking:
        return None
    return f"{name(source)} has no column {', '.join(map(repr, lacking))}; it has {', '.join(map(repr, present))}"


def to_row(
    source: Mapping[str, Any], row: Mapping[str, Any], index: int, system: str | None, text: str
) -> dict[str, Any]:
    """One stored row as trl reads it: messages, or prompt and completion, or ``text`` (the text column's name).

    A turn without content (null) is an empty one: a chat template would write the word "None" for it. Raises RunError
    with the row's number (from 0) when the row does not have its shape.
    """
    shape, values = source["shape"], [row[column] for column in columns(source)]
    where = f"{name(source)}, row {index}"
    if shape == "text":
        return {text: _string(values[0], where, "text")}
    if shape == "prompt_completion":
        prompt, completion = values
        context = row[source["context"]] if source.get("context") else None
        if isinstance(prompt, str):
            asked = f"{prompt}\n\n{context}" if context else prompt
            return {"prompt": asked, "completion": _string(completion, where, "completion")}
        return {"prompt": _with_system(_messages(prompt, where), system), "completion": _messages(completion, where)}
    mapped = _from_value(values[0], where) if shape == "conversations" else _messages(values[0], where)
    return {"messages": _with_system(mapped, system)}


def _from_value(turns: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(turns, list) or not turns:
        raise RunError(f"{where}: the conversation is empty or no list")
    out = []
    for turn in turns:
        speaker = turn.get("from") if isinstance(turn, dict) else None
        if speaker not in ROLES:
            raise RunError(f"{where}: {speaker!r} is no known speaker; known are {', '.join(sorted(ROLES))}")
        out.append({"role": ROLES[speaker], "content": _content(turn.get("value"))})
    return out


def _messages(turns: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(turns, list) or not turns:
        raise RunError(f"{where}: the list of messages is empty or no list")
    for turn in turns:
        if not isinstance(turn, dict) or not isinstance(turn.get("role"), str) or "content" not in turn:
            raise RunError(f"{where}: a message needs a role and a content")
    # Role first, as everywhere: sources of a mixture are joined by the order of the keys, too.
    return [{"role": turn["role"], **turn, "content": _content(turn["content"])} for turn in turns]


def _content(value: Any) -> Any:
    return "" if value is None else value


def _string(value: Any, where: str, what: str) -> str:
    if not isinstance(value, str):
        seen = "null" if value is None else type(value).__name__
        raise RunError(f"{where}: the {what} is {seen}, and should be text")
    return value


def _with_system(messages: list[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    if system is None or messages[0]["role"] == "system":
        return messages
    keys = {key: None for key in messages[0] if key not in ("role", "content")}
    return [{"role": "system", "content": system, **keys}, *messages]
