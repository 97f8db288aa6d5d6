"""For a sample of the rows, report turns that are learned in another way than the row suggests.

Three examples: a key `loss_weight`, which the run does not read; a user's turn inside an answer, which is learned with
the answer; reasoning that the chat template would write twice. The compiler has already checked rows of local JSON
Lines files.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...core.errors import RunError, rank, say
from ...core.feature import Bundle, Rows, Source, Tokenizer
from ...core.row_comparison import sampled_rows
from ...core.row_names import REASONING
from ...core.rows import FIELDS, KEPT, name
from .stored_columns import number_of
from .turn_names import MARKS, MASKED, TRAINED

READ = frozenset((*TRAINED, *MASKED))
"""Keys that decide whether a turn is learned. With the value 0, it is not; other numbers do not weight the loss."""
ANSWERS = ("completion", "chosen", "rejected")
PASSED = ("id", "index", "type", "tool_call_id", "content", "tool_calls", "function_call", *KEPT)
"""Keys of a turn that are never reported as unread: the run reads them, or their values are not text to learn."""
PHRASES = {
    "weight": "an answer with a weight other than 0 and 1, which counts as 1",
    "key": "a key of a turn that is not read, although it seems to say whether the turn is learned",
    "unread": "a key or a column that the chat template does not read, so that its value is not learned",
    "system": "a system prompt of the conversation, in place of the row's column 'system'",
    "special": "a text that contains a special token; the model reads it as this token",
    "turn": "an answer that contains turns of other roles than the assistant, and these turns are learned, too; "
    "`method sft(assistant_only)` does not learn them, and the other methods need one answer to each prompt",
}


def learned_columns(method: str, assistant_only: bool) -> Collection[str]:
    """The columns with answers in which the trainer learns every turn, even a user's turn.

    In two cases, there is no such column. With ``assistant_only``, the chat template masks the turns of other roles.
    And the answers of a reward model contain the prompt, so other roles belong there.
    """
    return () if assistant_only or method == "reward" else ANSWERS


def notes(
    row: Mapping[str, object], tokenizer: Any = None, learned: Collection[str] = ANSWERS
) -> Iterator[tuple[str, str]]:
    """The notes on a converted row. A note is a pair: a key of `PHRASES`, and a text such as the number of the turn.

    In the columns ``learned``, the trainer learns every turn.
    """
    special = [one for one in getattr(tokenizer, "all_special_tokens", ()) if len(one) > 2]
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
            if unread := list(_unread(turns, number, fields, tokenizer)):
                yield "unread", f"{place} has {' and '.join(unread)}"
            # `message_fields` stores the row's column in the first turn if the conversation has its own system prompt
            if turn["role"] == "system" and fields.get("system"):
                yield "system", f"{place} has a system prompt, in place of the row's column 'system'"
            if written := [one for one in special if one in turn["content"]]:
                yield "special", f"{place} contains {written[0]!r}"
            if column in learned and turn["role"] != "assistant":
                yield "turn", f"{place} is learned"


def _unread(turns: list[dict[str, Any]], number: int, fields: Mapping[str, Any], tokenizer: Tokenizer) -> Iterator[str]:
    """The keys of a turn whose values the chat template does not write: without them, the rendered text is the same."""
    template = getattr(tokenizer, "chat_template", None)
    known = (*READ, *REASONING, *PASSED, {"tool": "name", "system": "system"}.get(turns[number]["role"]))
    for key, value in fields.items() if template else ():
        if not value or key in known or MARKS.search(key):
            continue
        # the template contains this name, but perhaps only as a key of a tool or of a tool call
        if re.search(rf"\b{re.escape(key)}\b", str(template)):
            less = {**turns[number], FIELDS: json.dumps({one: fields[one] for one in fields if one != key})}
            texts = [_rendered(tokenizer, rows) for rows in (turns, [*turns[:number], less, *turns[number + 1 :]])]
            if texts[0] != texts[1]:
                continue
        yield repr(key[:40])


def _rendered(tokenizer: Tokenizer, turns: list[dict[str, Any]]) -> str:
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False))
    except Exception:  # a template may raise any exception
        return ""


def _is_weight(value: object) -> bool:
    return isinstance(value := number_of(value), int | float) and value not in (0, 1)


def doubled(row: Mapping[str, Any]) -> tuple[int, str] | None:
    """The first turn with reasoning both in a key and in its content: its number, and how the reasoning begins."""
    for turns in row.values():
        for number, turn in enumerate(turns if isinstance(turns, list) else ()):
            fields = json.loads(turn.get(FIELDS) or "{}") if isinstance(turn, dict) else {}
            thoughts = [str(fields[key]).strip() for key in REASONING if fields.get(key)]
            inline = str(turn["content"]).partition("</think>")[0].rpartition("<think>")[2] if thoughts else ""
            if inline.strip() and "</think>" in turn["content"]:
                return number, thoughts[0][:40]
    return None


def check(bundle: Bundle, source: Source, rows: Rows, doubles: bool, tokenizer: Any = None) -> None:
    """Print the notes on a sample of the rows. Raises RunError for a turn whose reasoning would be learned twice.

    It is learned twice if the turn has it both in a key and in its content, the chat template writes both
    (``doubles``), and the spec's `omit` does not allow it.
    """
    if rank() != 0 or not len(rows):
        return
    counts, first = dict[str, int](), dict[str, str]()
    learned = learned_columns(bundle.method, bool(bundle.arguments.get("assistant_only_loss")))
    sampled = sampled_rows(rows)
    for number in sampled:
        row = rows[number]
        if doubles and (twice := doubled(row)) and "reasoning" not in bundle.data.get("omit", ()):
            raise RunError(f"{name(source)}, row {number}: {written_twice(*twice)}")
        for kind, what in dict(notes(row, tokenizer, learned)).items():
            counts[kind] = counts.get(kind, 0) + 1
            first.setdefault(kind, f"row {number}: {what}")
    for kind, count in counts.items():
        say(f"{name(source)}: {count:,} of {len(sampled):,} compared rows have {PHRASES[kind]} ({first[kind]})")


def written_twice(turn: int, piece: str) -> str:
    """The message about a turn whose reasoning the chat template writes twice. The reasoning begins with ``piece``."""
    return (
        f"turn {turn} has reasoning in a field ({piece!r}) and between <think> and </think>, and the chat template "
        "writes both; leave one out of the row, or allow it with `data(omit=[reasoning])`"
    )
