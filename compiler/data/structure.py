"""Find the kinds of a conversation: what its turns contain in addition to a role and a text, such as tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

PLAIN = {"role", "content", "from", "value"}
REASONING = ("reasoning_content", "reasoning", "thinking")
TRAINED = ("weight", "train", "train_turn", "training", "loss")
"""Keys of a turn by which tools such as OpenAI's and axolotl mark that it is not learned."""


def structure(turns: Sequence[tuple[str, Mapping[str, object], object]]) -> set[str]:
    """The kinds of a conversation. Each element of `turns` is a role, the turn itself and its content.

    - `tool_calls`, `several_calls` in a turn, `text_with_call`: a text next to a call
    - `reasoning` in a field of a turn; `early_reasoning` before the last question
    - `inline_reasoning`, `early_inline_reasoning`: the same in the content, between <think> and </think>
    - `tool`, `developer`: turns of these roles
    - `untrained`: a turn that is marked as not learned
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
        if any(key in turn and turn[key] is not None and not turn[key] for key in TRAINED):
            found.add("untrained")
    return found


def unread(row: Mapping[str, object], shape: str) -> Iterator[str]:
    """The columns of a row that say how it is to be learned, and that no trainer reads:

    - `history`: the turns before a prompt, in LLaMA-Factory's alpaca rows
    - `row_weight`: a weight other than 1
    - `bad_answer`: a label of false next to a prompt and its completion
    """
    if shape == "prompt_completion" and row.get("history"):
        yield "history"
    if isinstance(weight := row.get("weight"), int | float) and weight != 1:
        yield "row_weight"
    if shape == "prompt_completion" and row.get("label") is False:
        yield "bad_answer"


def _visible(value: object) -> bool:
    return isinstance(value, str) and not value.isspace() and value != ""
