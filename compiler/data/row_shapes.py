"""Check whether the rows of a file fit the format that the spec states for them. The runtime makes the same checks
(runtime/core/rows.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from xpc.compiler.data.shapes import IMAGE_PAIRS, IMAGES, TOKEN_MASKS, token_columns
from xpc.runtime.core.row_names import ROLES
from xpc.runtime.features.messages import turn_names
from xpc.runtime.features.messages.stored_columns import QUESTIONS
from xpc.runtime.features.messages.turn_names import CALLERS

Row = Mapping[str, object]

LABEL = 40
"""A message shows at most this many characters of a wrong label."""
IDS = 2**31
"""Token ids and labels are below this number, because the trainer stores ids as 32-bit integers."""
UNLEARNED = -100
"""The label of a token that the loss ignores (torch's cross_entropy)."""


def with_roles(row: Row, roles: Mapping[str, str]) -> Row:
    """The row, with the names of speakers replaced by roles: `roles` maps `bot` to `assistant`, for example."""
    return {key: turn_names.with_roles(value, roles) for key, value in row.items()}


def checker(shape: str, names: tuple[str, ...], context: str = "") -> Callable[[Row], str | None]:
    """Return a function that checks a row: it returns None if the row fits the format, otherwise the reason why not.

    `names` are the columns of the row, in the order in which the format lists them. `context` is a column whose text is
    appended to the prompt.
    """
    check = _checker(shape, names)

    def wrong(row: Row) -> str | None:
        text = row.get(context) if context else None
        why = (None if text is None else _wrong_text(text, context)) or check(row)
        # a row of CSV or Parquet has every column, so only a row of JSON can lack the key
        missing = why and next((one for one in names if one not in row and why == f"`{one}` is empty"), "")
        return f"the row has no `{missing}`; its keys are {_keys(row)}" if missing else why

    return wrong


def _checker(shape: str, names: tuple[str, ...]) -> Callable[[Row], str | None]:
    if shape == "conversations":
        return lambda row: wrong_turns(row.get(names[0]), "from", names[0])
    if shape == "messages":
        return lambda row: wrong_turns(row.get(names[0]), "role", names[0])
    if shape == IMAGES:
        return lambda row: _wrong_pictured(row.get(names[0]), row.get(names[1]), names[0])
    if shape == IMAGE_PAIRS:
        return lambda row: _wrong_pictured_pair(row, names)
    if shape == "text":
        return lambda row: _wrong_text(row.get(names[0]), names[0])
    if shape == "tokens":
        return _token_checker(names)
    if shape == "prompt_completion":
        return lambda row: _wrong_pair(row.get(names[0]), row.get(names[1]), names)
    parts = names[: {"unpaired": len(names) - 1, "prompt": 1}.get(shape, len(names))]

    def wrong(row: Row) -> str | None:
        label = row.get(names[-1])
        if shape == "unpaired" and (not isinstance(label, int) or label not in (0, 1)):
            value = json.dumps(label, ensure_ascii=False, default=str)[:LABEL]
            return f"`{names[-1]}` is {value}, and a label is true or false, or 1 or 0"
        # without a prompt column, both answers of a preference pair must begin with the prompt
        there = parts[1:] if shape == "preference" and parts[0] == "prompt" and row.get("prompt") is None else parts
        why = next((why for name in there if (why := _wrong_part(row.get(name), name))), None)
        if why is None and shape == "preference" and (len(there) > 2 or not any(map(row.get, QUESTIONS))):
            prompt = row.get(parts[0]) if len(parts) > 2 else None
            return _without_prompt(prompt, row.get(parts[-2]), row.get(parts[-1]))
        return why

    return wrong


def _without_prompt(prompt: object, *answers: object) -> str | None:
    """The reason why the two answers of a preference pair share no prompt although they are complete conversations, or
    None. The runtime (`prompts.py`) takes the prompt of such answers from their common beginning. Answers are complete
    if they begin with the prompt; next to a text prompt, or without one, if they do not begin with the assistant.
    """
    if all(isinstance(one, str) for one in answers):
        return None
    turns = [one if isinstance(one, list) else [one] for one in answers]
    if isinstance(prompt, dict | list):
        begin = prompt if isinstance(prompt, list) else [prompt]
        complete = all(one[: len(begin)] == begin for one in turns)
    else:
        complete = prompt is None or not any(_answers(one[0]) for one in turns)
    if not complete or (turns[0][0] == turns[1][0] and min(map(len, turns)) > 1):
        return None
    missing = ", and it has no `prompt`" if prompt is None else ", or have no turn after it"
    return f"its answers do not begin with the same turn{missing}"


def _answers(turn: object) -> bool:
    """Whether a turn is the assistant's: a text, or a message with this role."""
    role = turn.get("role", turn.get("from")) if isinstance(turn, dict) else "assistant"
    return ROLES.get(str(role)) == "assistant"


def _token_checker(names: tuple[str, ...]) -> Callable[[Row], str | None]:
    """Return a function that checks rows of token ids. Labels and masks must have the same length as the ids (as in
    runtime/features/method/tokens.py).
    """
    parts = token_columns(names)

    def wrong(row: Row) -> str | None:
        ids = row.get(names[0])
        if not _integers(ids):
            return f"`{names[0]}` is not a list of token ids"
        assert isinstance(ids, list)
        unexpected = next((one for one in ids if not 0 <= one < IDS), None)
        if unexpected is not None:
            return f"`{names[0]}` has the id {unexpected}, and ids are from 0 to {IDS - 1}"
        for part, name in parts.items():
            if part != "input_ids" and (why := _wrong_part_of_tokens(row.get(name), part, name, len(ids))):
                return why
        return None

    return wrong


def _wrong_part_of_tokens(value: object, part: str, name: str, tokens: int) -> str | None:
    """The reason why a column of labels or masks does not fit a row that has `tokens` tokens, or None."""
    if not isinstance(value, list) or not (_integers(value) or (part != "labels" and {*map(type, value)} <= {bool})):
        return f"`{name}` is not a list of integers"
    if len(value) != tokens:
        return f"`{name}` has {len(value):,} entries for {tokens:,} tokens"
    if part == "labels":
        unexpected = next((one for one in value if not 0 <= one < IDS and one != UNLEARNED), None)
        if unexpected is None:
            return None
        return f"`{name}` has the label {unexpected}, which is neither a token id nor {UNLEARNED}"
    unexpected = next((one for one in value if one not in (0, 1)), None)
    if unexpected is not None:
        return f"`{name}` has the entry {unexpected}, and a mask has 0 and 1"
    inside = part == "attention_mask" and 1 in value and 0 in value[value.index(1) : tokens - value[::-1].index(1)]
    return f"`{name}` has a 0 between two tokens; a 0 is for padding, at the beginning or end" if inside else None


def _integers(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value)


def learned(parts: Mapping[str, object], tokens: int) -> list[bool]:
    """For each token of a correct row, whether it counts in the loss. The labels decide this or, if the row has no
    labels, the masks. Padding never counts.
    """
    labels, unmasked = parts.get("labels"), [1] * tokens
    masks = [parts.get(name, unmasked) for name in TOKEN_MASKS]
    if isinstance(labels, list):
        masks = [[one != UNLEARNED for one in labels], parts.get("attention_mask", unmasked)]
    return [all(each) for each in zip(*masks, strict=True)]


def _wrong_text(value: object, name: str) -> str | None:
    """The reason why a value is not a text, or None. A missing value, such as an empty cell of a CSV file, counts as an
    empty text.
    """
    return None if isinstance(value, str) else f"`{name}` is {'empty' if value is None else 'not text'}"


def _wrong_pair(prompt: object, completion: object, names: tuple[str, ...]) -> str | None:
    if isinstance(prompt, str):
        return _wrong_text(completion, names[1])
    return wrong_turns(prompt, "role", names[0]) or wrong_turns(completion, "role", names[1])


PLACE = "<image>"
"""The text that stands in a turn at the position of an image (runtime/features/rows/images.py)."""


def _wrong_pictured_pair(row: Row, names: tuple[str, ...]) -> str | None:
    """The reason why a row is not a preference pair that has images in its prompt, or None."""
    prompt, *answers, images = names
    turns = row.get(prompt)
    question = [{"role": "user", "content": turns}] if isinstance(turns, str) else turns
    if (why := _wrong_pictured(question, row.get(images), prompt)) is not None:
        return why
    for name in answers:
        answer = row.get(name)
        if (why := _wrong_part(answer, name)) is not None:
            return why
        if PLACE in json.dumps(answer):
            return f"`{name}` contains {PLACE}, and images are read in the prompt only"
    return None


def _wrong_pictured(turns: object, images: object, name: str) -> str | None:
    """The reason why a row is not a conversation with images, or None. Only the run checks the image
    files themselves.
    """
    by_from = isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]
    speaker, key = ("from", "value") if by_from else ("role", "content")
    if isinstance(turns, list):
        turns = [_without_places(turn, key) for turn in turns]
    if (why := wrong_turns(turns, speaker, name)) is not None:
        return why
    assert isinstance(turns, list)
    texts = [str(turn.get(key) or "") for turn in turns]
    locations = sum(text.count(PLACE) for text in texts)
    many = len(images) if isinstance(images, list) else 0 if images is None else 1
    question = any(turn.get(speaker) in ("user", "human") for turn in turns)
    if locations == many or (not locations and question):
        return None
    return f"it has {many} image{'' if many == 1 else 's'}, and {locations} places for them ({PLACE}) in its texts"


def _without_places(turn: object, key: str) -> object:
    """If the content of a turn is a list of texts and images, join it to one text, in which `<image>` stands for each
    image. Any other turn is returned unchanged.
    """
    content = turn.get(key) if isinstance(turn, dict) else None
    if not isinstance(turn, dict) or not isinstance(content, list):
        return turn
    parts = [part if not _is_place(part) else {"type": "text", "text": PLACE} for part in content]
    if _wrong_part_of(parts) is not None:
        return {**turn, key: parts}
    return {**turn, key: "".join(part if isinstance(part, str) else part["text"] for part in parts)}


def _is_place(part: object) -> bool:
    """Whether an element of a message's content is a placeholder. Each placeholder stands for the next image in the
    column of images.
    """
    keys = ("image", "url", "path", "base64")
    return isinstance(part, dict) and part.get("type") == "image" and not any(map(part.get, keys))


def _wrong_part(value: object, name: str) -> str | None:
    """The reason why a value can be neither a prompt nor an answer, or None. A prompt or an answer is a text, a
    message, or a list of turns with `role` or `from`.
    """
    if isinstance(value, str):
        return None
    turns = [value] if isinstance(value, dict) else value
    by_from = isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]
    return wrong_turns(turns, "from" if by_from else "role", name)


def from_caller(turn: Row) -> Row:
    """If a turn's speaker is in `CALLERS` (such as `function_call`) and its text is a tool call, convert it to a turn
    of the assistant with this call. Any other turn is returned unchanged.
    """
    if turn.get("from") not in CALLERS:
        return turn
    # imported only here, because few rows have such turns
    from xpc.runtime.core.errors import RunError
    from xpc.runtime.features.messages import call_forms

    try:
        return call_forms.from_caller(turn, "")
    except RunError:
        return turn


def _wrong_part_of(content: list[object]) -> str | None:
    """The type of the first element of a message's content that is not text, such as `image`. None if all elements are
    text.
    """
    for part in content:
        if isinstance(part, str):
            continue
        if not isinstance(part, dict):
            return type(part).__name__
        if part.get("type") not in (None, "text") or not isinstance(part.get("text"), str):
            return str(part.get("type"))[:40]
    return None


def _keys(one: Row) -> str:
    """The keys of a row or a turn, for a message: "`role`, `text`"."""
    return ", ".join(f"`{str(key)[:40]}`" for key in [*one][:4]) or "no keys"


def wrong_turns(value: object, speaker: str, name: str) -> str | None:
    """The reason why the value of a column is not a list of messages, or None. `speaker` is the key of a turn's
    speaker, `role` or `from`. `name` is the name of the column.
    """
    if not isinstance(value, list) or not value:
        return f"`{name}` is not a list of messages" if value else f"`{name}` is empty"
    for turn in value:
        if not isinstance(turn, dict):
            return f"`{name}` contains something that is not a message"
        who = turn.get(speaker)
        other = {"role": ("from", "conversations"), "from": ("role", "messages")}[speaker]
        if who is None and other[0] in turn:
            return f"its turns have the key `{other[0]}`, which belongs to `format = {other[1]}`"
        if speaker == "from" and who in CALLERS:
            turn = from_caller(turn)
            who = turn["from"]
            if who in CALLERS:
                return f'the value of a turn from `{who}` must be a call in JSON, such as {{"name": "add"}}'
        if speaker == "from" and (not isinstance(who, str) or who not in ROLES):
            return f"`{str(who)[:40]}` is no known speaker" if who is not None else "a turn does not name its speaker"
        calls = turn.get("tool_calls") or turn.get("function_call")
        if speaker == "role" and (not isinstance(who, str) or ("content" not in turn and not calls)):
            return f"a message needs a role and a content, and this one has {_keys(turn)}"
        if not isinstance(turn.get("tool_calls"), list | None):
            return "the `tool_calls` of a message are not a list"
        content = turn.get("content" if speaker == "role" else "value")
        if not isinstance(content, str | list | None):
            return f"the content of a message is not a text: {json.dumps(content)[:40]}"
        if isinstance(content, list) and (part := _wrong_part_of(content)) is not None:
            return f"a message has a part of the type `{part}`, and only text is trained on"
    return None
