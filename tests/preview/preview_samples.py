"""Answers of the preview's worker, written by hand for the tests."""

from __future__ import annotations

from typing import Any

from xpc.compiler.stacks import DEFAULT

ROWS = 8
"""A run whose batches are compared with a preview has this many rows of data."""


def sequence(
    name: str, *parts: tuple[str, int, int], cut: str = "", roles: tuple[str, ...] = ("user", "assistant")
) -> Any:
    """A tokenized sequence, with one token for each part. A part is a triple: its text, whether it has a loss, and the
    number of its turn.
    """
    tokens = [[100 + at, text, learned, turn] for at, (text, learned, turn) in enumerate(parts)]
    turns = [
        {
            "role": role, "cut": 0, "tokens": sum(one[3] == at for one in tokens),
            "learned": sum(one[2] for one in tokens if one[3] == at),
        }
        for at, role in enumerate(roles)
    ]  # fmt: skip
    ends = [[900 + at, word] for at, word in enumerate(cut.split())]
    return {"name": name, "tokens": tokens, "cut": {"start": [], "end": ends}, "roles": list(roles), "turns": turns}


QUESTION = (("<user>", 0, 0), ("What \n", 0, 0), (" is it?", 0, 0), ("<end>", 0, 0))
ANSWER = (("<assistant>", 0, 1), ("An apple.  ", 1, 1), ("<end>", 1, 1))


def found(*rows: Any, **others: Any) -> dict[str, Any]:
    """An answer as the preview worker sends it, with these rows."""
    return {
        "spec": "run.xp", "method": "sft", "target": DEFAULT, "bears_loss": True, "counts": None, "order": None,
        "group": None, "messages": [],
        "tokenizer": {"model": "tiny", "begin": [None, None], "end": [2, "<end>"], "padding": [0, "<pad>"]},
        "rows": list(rows), **others,
    }  # fmt: skip


def row(*sequences: Any, number: int = 0, verdicts: Any = (), excluded: str | None = None) -> dict[str, Any]:
    """A row as the worker reports it, from the file train.jsonl."""
    return {
        "source": "train.jsonl", "row": number, "excluded": excluded, "sequences": list(sequences),
        "verdicts": list(verdicts),
    }  # fmt: skip


TALK = row(sequence("text", *QUESTION, *ANSWER))
WRONG = {
    "code": "XP592", "slug": "end-not-learned", "severity": "warning", "message": "no end token follows the answer",
    "help": "name a chat_template",
}  # fmt: skip
