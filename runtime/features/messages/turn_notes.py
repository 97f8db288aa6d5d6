"""What rows say of their turns and no trainer does: keys that are not read, other turns than answers that are learned,
and reasoning that would be learned twice. Rows of a local file were checked before; those of the hub and of Parquet are
compared here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.errors import RunError, rank, say
from ...core.feature import Bundle
from ...core.row_comparison import REASONING, sampled_rows
from ...core.rows import FIELDS, name

MARKS = re.compile(r"train|learn|loss|mask|weight|supervis|ignore", re.IGNORECASE)
"""Matches the name of a key that is likely to say whether a turn is learned."""
TRAINED = ("weight", "train", "train_turn", "training", "loss")
"""Keys with which OpenAI, axolotl and other tools mark a turn that is not learned."""
MASKED = ("mask", "masked")
"""Keys with which torchtune and other tools mark with true that a turn is not learned."""
READ = (*TRAINED, *MASKED)
"""The keys that are read; a weight is read as 0 or another number."""
ANSWERS = ("completion", "chosen", "rejected")
PHRASES = {
    "weight": "an answer with a weight other than 0 and 1, which counts as 1",
    "key": "a key of a turn that is not read, although it seems to say whether the turn is learned",
    "turn": "turns in an answer that are not the assistant's, which are learned with it; "
    "`method sft(assistant_only)` does not learn them, and the other methods need one answer to each prompt",
}


def notes(row: Mapping[str, Any], answers_only: bool = False) -> Iterator[tuple[str, str]]:
    """The notes on a converted row: the kind, and what the row has. ``answers_only``: the template's marks decide what
    is learned.
    """
    for column, turns in row.items():
        if not isinstance(turns, list) or not all(isinstance(turn, dict) and "role" in turn for turn in turns):
            continue
        for number, turn in enumerate(turns):
            place = f"turn {number} ({turn['role']}) of {column}"
            fields = json.loads(turn.get(FIELDS) or "{}")
            if turn["role"] == "assistant" and any(_is_weight(fields.get(key)) for key in READ):
                yield "weight", f"{place} has a weight other than 0 and 1"
            for key in fields:
                if MARKS.search(key) and key not in (*READ, *REASONING):
                    yield "key", f"{place} has the key {key[:40]!r}"
            if column in ANSWERS and turn["role"] != "assistant" and not answers_only:
                yield "turn", f"{place} is learned"


def _is_weight(value: Any) -> bool:
    return isinstance(value, int | float) and value not in (0, 1)


def doubled(row: Mapping[str, Any]) -> tuple[int, str] | None:
    """The first turn with reasoning both in a field and in its content: its number, and the beginning of the
    reasoning.
    """
    for turns in row.values():
        for number, turn in enumerate(turns if isinstance(turns, list) else ()):
            fields = json.loads(turn.get(FIELDS) or "{}") if isinstance(turn, dict) else {}
            thoughts = [str(fields[key]).strip() for key in REASONING if fields.get(key)]
            inline = str(turn["content"]).partition("</think>")[0].rpartition("<think>")[2] if thoughts else ""
            if inline.strip() and "</think>" in turn["content"]:
                return number, thoughts[0][:40]
    return None


def check(bundle: Bundle, source: Mapping[str, Any], rows: Any, doubles: bool) -> None:
    """Print the notes on a sample of the rows. ``doubles``: the template writes reasoning of both places. Raises
    RunError for reasoning that would be learned twice, unless the spec's `omit` allows it.
    """
    if rank() != 0 or not len(rows):
        return
    counts, first = dict[str, int](), dict[str, str]()
    answers_only, sampled = bool(bundle.arguments.get("assistant_only_loss")), sampled_rows(rows)
    for number in sampled:
        row = rows[number]
        if doubles and (twice := doubled(row)) and "reasoning" not in bundle.data.get("omit", ()):
            raise RunError(f"{name(source)}, row {number}: {written_twice(*twice)}")
        for kind, what in dict(notes(row, answers_only)).items():
            counts[kind] = counts.get(kind, 0) + 1
            first.setdefault(kind, f"row {number}: {what}")
    for kind, count in counts.items():
        say(f"{name(source)}: {count:,} of {len(sampled):,} compared rows have {PHRASES[kind]} ({first[kind]})")


def written_twice(turn: int, piece: str) -> str:
    """The sentence on reasoning that a template writes twice."""
    return (
        f"turn {turn} has reasoning in a field ({piece!r}) and between <think> and </think>, and the chat template "
        "writes both; leave one out of the row, or allow it with `data(omit=[reasoning])`"
    )
