"""Find the kinds of a conversation: what its turns contain in addition to a role and a text, such as tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

PLAIN = {"role", "content", "from", "value"}
REASONING = ("reasoning_content", "reasoning", "thinking")
TRAINED = ("weight", "train", "train_turn", "training", "loss")
"""Keys of a turn by which tools such as OpenAI's and axolotl mark that it is not learned."""

QUESTIONS = ("conversations", "instruction", "question", "query", "problem", "messages")
"""Names by which published preference pairs call the column of the prompt."""


def structure(turns: Sequence[tuple[str, Mapping[str, object], object]]) -> set[str]:
    """The kinds of a conversation. Each element of `turns` is a role, the turn itself and its content.

    - `tool_calls`, `several_calls` in a turn, `text_with_call`: a text next to a call
    - `reasoning` in a field of a turn; `early_reasoning` before the last question
    - `inline_reasoning`, `early_inline_reasoning`: the same in the content, between <think> and </think>
    - `tool`, `developer`: turns of these roles
    - `untrained`: a turn that is marked as not learned; `turn_weight`: an answer with another weight than 0 and 1
    """
    last = max((number for number, (role, _, _) in enumerate(turns) if role == "user"), default=-1)
    found: set[str] = set()
    for number, (role, turn, content) in enumerate(turns):
        early = "early_" if number < last else ""
        if role in ("tool", "developer") and content:
            found.add(role)
        if any(_visible(turn.get(key)) for key in REASONING):
            found.add(early + "reasoning")
        thoughts = content.partition("</think>") if role == "assistant" and isinstance(content, str) else ("", "", "")
        if thoughts[1] and _visible(thoughts[0].rpartition("<think>")[2]):
            found.add(early + "inline_reasoning")
        calls = turn.get("tool_calls") or ([turn["function_call"]] if turn.get("function_call") else None)
        if calls and isinstance(calls, list):
            found.add("tool_calls")
            found |= {"several_calls"} if len(calls) > 1 else set()
            found |= {"text_with_call"} if _visible(content) or isinstance(content, list) else set()
        marks = [turn[key] for key in TRAINED if turn.get(key) is not None]
        if any(map(declined, marks)):
            found.add("untrained")
        elif role == "assistant" and any(isinstance(one, int | float) and one != 1 for one in marks):
            found.add("turn_weight")
    return found


def declined(mark: object) -> bool:
    """Whether a value of a key in `TRAINED` says that the turn is not learned, as in the runtime's `message_fields.py`.
    CSV-like exports write `"false"` and `"0"` as text.
    """
    return mark.strip().lower() in ("", "0", "false", "no") if isinstance(mark, str) else not mark


def unread(row: Mapping[str, object], shape: str, names: Sequence[str]) -> Iterator[str]:
    """The columns of a row that say how it is to be learned, and that no trainer reads; it reads `names`:

    - `history`: the turns before a prompt, in LLaMA-Factory's alpaca rows
    - `row_weight`: a weight other than 1
    - `bad_answer`: a label of false next to a prompt and its completion
    - `question`: for a preference pair without a prompt, the prompt in a column of another name
    """
    if shape == "prompt_completion" and row.get("history"):
        yield "history"
    if isinstance(weight := row.get("weight"), int | float) and weight != 1:
        yield "row_weight"
    if shape == "prompt_completion" and row.get("label") is False:
        yield "bad_answer"
    if shape == "preference" and len(names) == 2 and row.get("prompt") is None and _asked_elsewhere(row, names):
        yield "question"


def _asked_elsewhere(row: Mapping[str, object], names: Sequence[str]) -> bool:
    """Whether a column has a question that the first answer of a pair does not contain."""
    answer = row.get(names[0])
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        first = answer[0].get("role", answer[0].get("from"))
        if first not in ("assistant", "gpt"):
            return False
    for value in (row[name] for name in QUESTIONS if name in row and name not in names):
        if (isinstance(value, list) and value) or (_visible(value) and not (
            isinstance(answer, str) and str(value).strip() in answer
        )):  # fmt: skip
            return True
    return False


def _visible(value: object) -> bool:
    return isinstance(value, str) and not value.isspace() and value != ""
