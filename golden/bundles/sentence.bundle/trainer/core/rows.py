"""From a stored row to the row that trl's trainer of the method reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .data_sources import mapping, name
from .errors import RunError

ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "model": "assistant", "bot": "assistant", "system": "system", "tool": "tool", "function": "tool",
    "observation": "tool",
}  # fmt: skip
"""Speakers of from/value conversations (ShareGPT and its kin) as the roles of chat templates."""

ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)
ALPACA_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
"""The words around Alpaca's rows, as they stand in the column ``text`` of tatsu-lab/alpaca."""


def to_row(
    source: Mapping[str, Any],
    row: Mapping[str, Any],
    index: int,
    *,
    system: str | None = None,
    text: str = "text",
    method: str = "sft",
    chat: bool = True,
) -> dict[str, Any]:
    """One stored row as trl reads it, by the source's shape:

    - text: ``text`` (the name of the text column);
    - messages, conversations: ``messages``;
    - prompt_completion: ``prompt`` and ``completion``; in the words of Alpaca where the source says so (``wording``);
    - preference: ``prompt``, ``chosen`` and ``rejected``; for a reward model the whole ``chosen`` and ``rejected``;
    - unpaired: ``prompt``, ``completion`` and ``label``;
    - prompt: ``prompt``; a text becomes the turn of a user where the tokenizer has a chat template (``chat``), as in
      Open-R1's grpo.py, for an instruct model has no other way to be asked.

    The text of the column ``context`` follows a prompt that is a text, where the row has any.

    The system prompt goes before every conversation that has none. A turn without content (null) is an empty one: a
    chat template would write the word "None" for it. Raises RunError with the row's number (from 0) when the row does
    not have its shape.
    """
    shape, where = source["shape"], f"{name(source)}, row {index}"
    values = {role: row[column] for role, column in mapping(source, list(row)).items()}
    if source.get("context") or source.get("wording"):
        values["prompt"] = _asked_about(source, values.get("prompt"), row.get(source.get("context") or ""), where)
    if shape == "text":
        return {text: _string(values["text"], where, "text")}
    if shape == "prompt_completion":
        return _pair(values, where, system)
    if shape == "preference":
        return _preference(values, where, system, whole=method == "reward")
    if shape == "unpaired":
        return _unpaired(values, where, system)
    if shape == "prompt":
        return {"prompt": _asked(values["prompt"], where, system, chat)}
    turns = _from_value(values[shape], where) if shape == "conversations" else _messages(values[shape], where)
    return {"messages": _with_system(turns, system)}


def _asked_about(source: Mapping[str, Any], prompt: Any, context: Any, where: str) -> Any:
    """The prompt with what stands in the column beside it, in published words or after an empty line."""
    if context is not None and not isinstance(context, str):
        raise RunError(f"{where}: the {source['context']} is {type(context).__name__}, and should be text")
    if source.get("wording") == "alpaca":
        asked = _string(prompt, where, "instruction")
        return (
            ALPACA_WITH_INPUT.format(instruction=asked, input=context) if context else ALPACA.format(instruction=asked)
        )
    if context and not isinstance(prompt, str):
        raise RunError(f"{where}: a context follows a prompt that is a text, and this one is none")
    return f"{prompt}\n\n{context}" if context else prompt


def _pair(values: Mapping[str, Any], where: str, system: str | None) -> dict[str, Any]:
    prompt, completion = values["prompt"], values["completion"]
    if isinstance(prompt, str):
        return {"prompt": prompt, "completion": _string(completion, where, "completion")}
    return {"prompt": _with_system(_messages(prompt, where), system), "completion": _messages(completion, where)}


def _preference(values: Mapping[str, Any], where: str, system: str | None, whole: bool) -> dict[str, Any]:
    """With ``whole`` the prompt stands before both answers, as a reward model scores them.

    A prompt that stands beside answers which already begin with it (ultrafeedback_binarized has it as a text beside
    whole conversations) is taken from the answers, as trl does (data_utils.maybe_extract_prompt).
    """
    prompt, answers = values.get("prompt"), (values["chosen"], values["rejected"])
    if isinstance(prompt, str | None) and all(isinstance(one, str) for one in answers):
        asked, chosen, rejected = (prompt, *answers) if prompt is not None else split_prompt(*answers)
        if whole:
            return {"chosen": asked + chosen, "rejected": asked + rejected}
        return {"prompt": asked, "chosen": chosen, "rejected": rejected}
    best, worst = (_answer(one, where) for one in answers)
    turns = _prompt(prompt, where) if prompt is not None else []
    if _begins(best, turns, prompt) and _begins(worst, turns, prompt):
        turns, best, worst = split_prompt(best, worst)
    if not turns:
        raise RunError(f"{where}: the chosen and the rejected answer share no prompt, and the row has none")
    turns = _with_system(turns, system)
    if whole:
        return {"chosen": turns + best, "rejected": turns + worst}
    return {"prompt": turns, "chosen": best, "rejected": worst}


def _begins(answer: list[dict[str, Any]], prompt: list[dict[str, Any]], given: Any) -> bool:
    """True when the answer is the whole conversation, its prompt included."""
    if isinstance(given, str):
        return str(answer[0]["role"]) != "assistant"
    return answer[: len(prompt)] == prompt


def split_prompt(chosen: Any, rejected: Any) -> tuple[Any, Any, Any]:
    """The beginning that two answers share, and what is left of each: turns of conversations, or letters of texts.

    Something is left of both, and a space at the border of two texts goes with the answers (trl, extract_prompt).
    """
    most = min(len(chosen), len(rejected)) - 1
    shared = next((i for i in range(most + 1) if chosen[i] != rejected[i]), most)
    shared = max(shared, 0)
    if isinstance(chosen, str) and shared and chosen[shared - 1] == " ":
        shared -= 1
    return chosen[:shared], chosen[shared:], rejected[shared:]


def _unpaired(values: Mapping[str, Any], where: str, system: str | None) -> dict[str, Any]:
    label = values["label"]
    if label not in (True, False) or isinstance(label, float):
        raise RunError(f"{where}: the label is {label!r}, and should be true or false")
    prompt, completion = values["prompt"], values["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        return {"prompt": prompt, "completion": completion, "label": bool(label)}
    turns = _with_system(_prompt(prompt, where), system)
    return {"prompt": turns, "completion": _answer(completion, where), "label": bool(label)}


def _asked(prompt: Any, where: str, system: str | None, chat: bool) -> Any:
    if isinstance(prompt, str) and not chat and system is None:
        return prompt
    return _with_system(_prompt(prompt, where), system)


def _prompt(prompt: Any, where: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else _turns(prompt, where)


def _answer(answer: Any, where: str) -> list[dict[str, Any]]:
    """A text or a single message is one turn of the assistant."""
    if isinstance(answer, str):
        return [{"role": "assistant", "content": answer}]
    return _turns([answer] if isinstance(answer, dict) else answer, where)


def _turns(turns: Any, where: str) -> list[dict[str, Any]]:
    """Messages of either spelling: role and content, or from and value."""
    if isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]:
        return _from_value(turns, where)
    return _messages(turns, where)


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


def _with_system(messages: Sequence[dict[str, Any]], system: str | None) -> list[dict[str, Any]]:
    if system is None or messages[0]["role"] == "system":
        return list(messages)
    keys = {key: None for key in messages[0] if key not in ("role", "content")}
    return [{"role": "system", "content": system, **keys}, *messages]
