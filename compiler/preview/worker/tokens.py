"""The text of tokens, and the turn of the conversation to which each token belongs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

BROKEN = "\ufffd"
LONGEST_CHARACTER = 8
"""The largest number of tokens that together form a single character."""
SPACE = "\u2581"
"""The character that stands for a space in SentencePiece tokens. Their decoder would drop a leading space."""
RENDERED = 500
"""The number of turns up to which a conversation is rendered once for each turn."""
OPENING = -1
"""The turn index of tokens before the first turn: a BOS token, tools, or a system prompt that the template adds."""
ANSWER = "zQanswerqZ"
"""The content of a made-up answer. The text after it in a rendered conversation is what the template writes after an
answer.
"""


def pieces(tokenizer: Any, ids: Sequence[int], image: int | None = None) -> list[str]:
    """The text of each token. If several tokens together form one character, the text of the first token is this
    character, and the texts of the other tokens are "".

    `image` is the id of the token that stands for a part of an image. If several image tokens follow each other, only
    the first gets a text.
    """
    out: list[str] = []
    names = tokenizer.convert_ids_to_tokens(list(ids))
    decoded: dict[tuple[int, ...], str] = {}
    at = 0
    while at < len(ids):
        if image is not None and at and ids[at] == ids[at - 1] == image:
            out.append("")
            at += 1
            continue
        text, used = _decoded(tokenizer, ids, names, at, decoded)
        out += [text, *[""] * (used - 1)]
        at += used
    return out


def _decoded(
    tokenizer: Any, ids: Sequence[int], names: Sequence[str], at: int, decoded: dict[tuple[int, ...], str]
) -> tuple[str, int]:
    """Return a pair: the text of the character or word at the index `at`, and the number of its tokens. `decoded` keeps
    the texts of tokens that were decoded before.
    """
    name = names[at]
    if name is not None and SPACE in name:
        return name.replace(SPACE, " "), 1
    for used in range(1, LONGEST_CHARACTER + 1):
        some = tuple(ids[at : at + used])
        if some not in decoded:
            decoded[some] = str(
                tokenizer.decode(list(some), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            )
        if BROKEN not in decoded[some]:
            return decoded[some], used
        if at + used >= len(ids):
            break
    return str(name), 1


def turns_of(
    texts: Sequence[str], contents: Sequence[str], starts: Iterable[str | None], before: str = ""
) -> list[int]:
    """The index of the turn to which each token belongs, or `OPENING`.

    `texts` are the texts of the tokens, and `contents` the contents of the turns. `starts` has, for each turn, the
    conversation rendered up to the end of the turn. `before` is the text that the template writes before the first turn
    (see `opening`).

    An entry of `starts` is None if the template cannot render this part of the conversation alone; then the turn is
    found by its content. A template may also write a turn differently if it is the last one. For example, Qwen3's
    template drops the reasoning of earlier answers, but not of the last one. Such a turn is found by its end.
    """
    joined, ends, location = "".join(texts), list[int](), 0
    for content, start in zip(contents, starts, strict=True):
        found = None if start is None else _end_of(joined, start, location)
        if found is None:
            found = _end_of_changed(joined, start or "", content.strip(), location)
        location = location if found is None else max(location, found)
        ends.append(location)
    if ends:
        ends[-1] = len(joined)
    first = (_end_of(joined, before, 0) or 0) if before else 0
    out, at, turn = list[int](), 0, 0
    for text in texts:
        while turn < len(ends) - 1 and at >= ends[turn]:
            turn += 1
        out.append(turn if ends and at >= first else OPENING)
        at += len(text)
    return out


def _end_of(joined: str, start: str, location: int) -> int | None:
    """The offset at which the rendered part `start` ends in `joined`, the text of all tokens. None if `joined` does not
    begin with `start`. A BOS token before `start` is allowed.
    """
    if joined.startswith(start):
        return len(start)
    first = start[:200]
    at = joined.find(first, 0, 63 + len(first))
    return (
        at + len(start) if at >= 0 and joined[at : at + len(start)] == start and at + len(start) >= location else None
    )


def _end_of_changed(joined: str, start: str, content: str, location: int) -> int | None:
    """Find the offset at which a turn ends, if the template writes the turn differently as soon as another turn
    follows.

    `start` is the conversation rendered up to the end of this turn, and `joined` does not begin with `start`. `joined`
    is searched from `location` on, for the longest suffix of `start` that it contains: the turn ends after this suffix.
    If the suffix does not include `content`, the turn ends after `content`. None if `joined` contains neither the
    suffix nor `content`.
    """
    shared, longest = 0, len(start)
    while shared < longest:  # binary search: if `joined` contains a suffix, it contains all shorter suffixes
        middle = (shared + longest + 1) // 2
        if joined.find(start[-middle:], location) < 0:
            longest = middle - 1
        else:
            shared = middle
    ending = start[len(start) - shared :]
    at, own = joined.find(ending, location), joined.find(content, location)
    if content and own >= 0 and not at <= own <= at + shared - len(content):
        return own + len(content)
    return at + shared if ending.strip() else None


def content_of(turn: Mapping[str, Any]) -> str:
    """The text of a turn's content; text parts are joined."""
    content = turn.get("content")
    if isinstance(content, list):
        return "".join(str(one.get("text") or "") for one in content if isinstance(one, dict))
    return "" if content is None else str(content)


def beginnings(
    tokenizer: Any, template: str | None, turns: Sequence[Mapping[str, Any]], row: Mapping[str, Any]
) -> Iterator[str | None]:
    """For each turn, render the conversation up to the end of the turn. The result for a turn is None if the template
    refuses such an incomplete conversation.

    After `RENDERED` turns, the result is only the turn's content and what the template wrote after an earlier turn of
    the same role, because the time to render all beginnings is quadratic in the number of turns.
    """
    ends: dict[Any, str] = {}
    for many, turn in enumerate(turns, 1):
        content = content_of(turn).strip()
        if many > RENDERED:
            yield content + ends.get(turn.get("role"), "") if content else None
            continue
        start = _rendered(tokenizer, template, turns[:many], row)
        if start and content in start:
            ends[turn.get("role")] = start.rpartition(content)[2] if content else ""
        yield start


def opening(tokenizer: Any, template: str | None, turns: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> str:
    """The text that the template writes before a user's first turn, such as Qwen2.5's own system prompt, or tools. ""
    if the conversation begins with another role, or if the template writes the first turn's content differently.

    To find this text, the turn is rendered a second time, after a made-up answer, where the template writes no text
    before it. The end that both renderings have in common is the turn itself. If a template writes tools inside the
    first turn, as Llama 3.1's does, only the end of the turn is common to both: its content, and what follows.
    """
    first = _rendered(tokenizer, template, turns[:1], row) if turns and turns[0].get("role") == "user" else None
    if not first:
        return ""
    answered = [turns[0], {"role": "assistant", "content": ANSWER}]
    texts = (_rendered(tokenizer, template, one, row) for one in (answered, [*answered, turns[0]]))
    once, twice = ((text or "").partition(ANSWER)[2] for text in texts)
    turn, content = twice.removeprefix(once), content_of(turns[0]).strip()
    at = turn.find(content)
    ending = turn if first.endswith(turn) else turn[at:] if content and at >= 0 else ""
    return first.removesuffix(ending) if ending and first.endswith(ending) else ""


def _rendered(
    tokenizer: Any, template: str | None, turns: Sequence[Mapping[str, Any]], row: Mapping[str, Any]
) -> str | None:
    """The turns as the template writes them; None if the template refuses the turns."""
    tools = row.get("tools")
    tools = json.loads(tools) if isinstance(tools, str) and tools else tools
    options = {**({"chat_template": template} if template else {}), **(row.get("chat_template_kwargs") or {})}
    try:
        return str(tokenizer.apply_chat_template(list(turns), tools=tools or None, tokenize=False, **options))
    except Exception:  # a template may raise any exception for an incomplete conversation
        return None
