"""The first rows of a local file, as far as a check reads them: what the runtime would find wrong after the launch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache

from xpc.compiler.registry import find_dataset
from xpc.compiler.shapes import KEPT, SHAPES
from xpc.compiler.spec import DataSource
from xpc.grammar.record import record

READ = 2**20
"""Bytes of a file that a check parses: some milliseconds."""
SPEAKERS = (
    "human", "user", "gpt", "assistant", "chatgpt", "model", "bot", "system", "tool", "function", "observation",
)  # fmt: skip
"""The speakers of from/value conversations that the runtime knows (runtime/rows.py, ROLES)."""
ANSWERS = ("gpt", "assistant", "chatgpt", "model", "bot")
"""Those that become the assistant."""

Row = Mapping[str, object]


@record
class Stored:
    """Rows from the first on; `whole` says that there are no others."""

    rows: tuple[Row, ...] = ()
    whole: bool = False


@lru_cache(maxsize=32)  # the members of a sweep share their data
def stored(source: DataSource) -> Stored:
    """The rows of a JSON or JSON-lines file that is copied into the bundle; none of any other source."""
    if source.content is None or not (source.path or "").lower().endswith((".jsonl", ".json")):
        return Stored()
    return _parsed(source.content[:READ], len(source.content) <= READ)


@lru_cache(maxsize=8)
def _parsed(head: bytes, whole: bool) -> Stored:
    text = head.decode("utf-8-sig", "ignore")
    if text.lstrip().startswith("["):
        return _listed(text) if whole else Stored()
    lines = text.split("\n")
    rows: list[Row] = []
    for line in lines if whole else lines[:-1]:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return Stored(tuple(rows))
        if not isinstance(row, dict):
            return Stored(tuple(rows))
        rows.append(row)
    return Stored(tuple(rows), whole)


def _listed(text: str) -> Stored:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return Stored()
    if not all(isinstance(row, dict) for row in rows):
        return Stored()
    return Stored(tuple(rows), True)


@lru_cache(maxsize=32)
def count(source: DataSource) -> int | None:
    """How many rows a source has, or None where that is not known. A slice of a split is not counted."""
    if source.slice is not None:
        return None
    if source.rows is not None or source.content is None:
        return source.rows
    if not (source.path or "").lower().endswith(".jsonl"):
        found = stored(source)
        return len(found.rows) if found.whole else None
    return sum(1 for line in source.content.splitlines() if line.strip())


def columns(source: DataSource) -> tuple[str, ...]:
    """The dataset's own columns in the order of the shape."""
    given = source.columns or SHAPES.get(source.shape, ())
    return tuple(name for name in given if name not in KEPT)


def conversational(source: DataSource) -> bool | None:
    """Whether rows hold messages and not plain text; None where that cannot be seen."""
    if source.shape in ("messages", "conversations"):
        return True
    if source.shape == "text":
        return False
    for row in stored(source).rows[:1]:
        return any(isinstance(row.get(name), list) for name in columns(source))
    if (source.path or "").lower().endswith((".csv", ".txt")):
        return False
    known = find_dataset(source.id) if source.id is not None else None
    plain = known is not None and known.shape == source.shape == "prompt_completion"  # of the registry, all are text
    return False if plain else None


def turns(source: DataSource, row: Row) -> Iterator[Mapping[str, object]]:
    """The messages of a row, whatever columns of the shape they stand in; what is no message is left out."""
    for name in columns(source):
        value = row.get(name)
        if isinstance(value, list):
            yield from (turn for turn in value if isinstance(turn, dict))


@lru_cache(maxsize=32)
def first_wrong(source: DataSource) -> tuple[int, str] | None:
    """The number of the first row that cannot be read as its shape, and why, among those that are looked at."""
    for number, row in enumerate(stored(source).rows):
        wrong = wrong_shape(source, row)
        if wrong is not None:
            return number, wrong
    return None


def wrong_shape(source: DataSource, row: Row) -> str | None:
    """What keeps a row from being read as its shape, in the runtime's sense, or None."""
    values = [row.get(name) for name in columns(source)]
    if len(values) < len(SHAPES.get(source.shape, ())):
        return None  # too few are named, which XP124 says
    if source.shape == "conversations":
        return _wrong_turns(values[0], "from", columns(source)[0])
    if source.shape == "messages":
        return _wrong_turns(values[0], "role", columns(source)[0])
    if source.shape == "text":
        return None if isinstance(values[0], str) else f"`{columns(source)[0]}` is not text"
    names = columns(source)
    if source.shape == "unpaired" and not isinstance(values[-1], int):
        return f"`{names[-1]}` is not true or false"
    beside = row.get(source.context) if source.context is not None else None
    if beside is not None and not isinstance(beside, str):
        return f"`{source.context}` is not text"
    if source.shape == "prompt_completion":
        if isinstance(values[0], str):
            return None if isinstance(values[1], str) else f"`{names[1]}` is not text"
        return _wrong_turns(values[0], "role", names[0]) or _wrong_turns(values[1], "role", names[1])
    count = {"unpaired": len(names) - 1, "prompt": 1}.get(source.shape, len(names))
    return next(
        (wrong for name, value in zip(names[:count], values, strict=False) if (wrong := _wrong_side(value, name))), None
    )


def _wrong_side(value: object, name: str) -> str | None:
    """A prompt or an answer: a text, a message, or turns of either spelling."""
    if isinstance(value, str):
        return None
    turns = [value] if isinstance(value, dict) else value
    by_from = isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]
    return _wrong_turns(turns, "from" if by_from else "role", name)


def _wrong_turns(value: object, speaker: str, name: str) -> str | None:
    if not isinstance(value, list) or not value:
        return f"`{name}` is no list of messages" if value else f"`{name}` is empty"
    for turn in value:
        if not isinstance(turn, dict):
            return f"`{name}` holds what is no message"
        who = turn.get(speaker)
        if speaker == "from" and who not in SPEAKERS:
            return f"`{str(who)[:40]}` is no known speaker" if who is not None else "a turn says not who speaks"
        if speaker == "role" and (not isinstance(who, str) or "content" not in turn):
            return "a message needs a role and a content"
    return None
