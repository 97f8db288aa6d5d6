"""Inspect a row according to its format. The result is a pair: the row's properties that rules report, and a key that
is the same for equal rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from xpc.compiler.data import row_shapes
from xpc.compiler.data.export_marks import token_marks
from xpc.compiler.data.shapes import token_columns
from xpc.compiler.data.structure import PLAIN, structure
from xpc.compiler.data.turn_order import of_pair, of_preference, order, roles_of
from xpc.compiler.spec.survey import Tally
from xpc.grammar.record import entity, field
from xpc.runtime.core.row_names import REASONING, ROLES

PLACES = ("<image>", "<video>", "<audio>")
"""Texts in a turn that stand for an image, a video or a sound in rows of LLaVA and LLaMA-Factory."""
MANY = 256
"""Maximum number of columns, roles or properties that a survey lists. A file with more is not training data."""


@entity
class Counts:
    """For each property of rows, such as `unanswered`, the number of rows that have it, and the first of these rows."""

    found: dict[str, list[int]] = field(factory=dict)

    def add(self, kind: str, row: int) -> None:
        """Count a row (its index) that has the property `kind`."""
        one = self.found.get(kind)
        if one is None:
            if len(self.found) < MANY:
                self.found[kind] = [1, row]
        else:
            one[0] += 1

    def tallies(self) -> dict[str, Tally]:
        """For each property of rows, such as `unanswered`, the number of rows that have it, and the first of them."""
        return {name: Tally(*one) for name, one in self.found.items()}


def empty(value: object) -> bool:
    """Whether a content has no visible character. The content may be a text, a list of parts, or None."""
    if isinstance(value, str):
        return not value or value.isspace()
    if isinstance(value, list):
        return not any(
            not empty(part)
            if isinstance(part, str)
            else isinstance(part, dict) and (part.get("type") not in (None, "text") or not empty(part.get("text")))
            for part in value
        )
    return value is None


def _turns(value: object, number: int, roles: Counts, whole: bool = True) -> tuple[set[str], list[object]]:
    """Return a pair: the properties of a conversation that rules report, such as `unanswered`; and a key, which is the
    same for equal conversations. If `whole` is false, the turns are only a part of a conversation, and this part may
    begin with an answer.
    """
    if not isinstance(value, list):
        return set(), [str(value)]
    found: set[str] = set()
    same: list[object] = []
    special = False
    roled: list[tuple[str, Mapping[str, object], object]] = []
    speakers: set[str] = set()
    for turn in value:
        if not isinstance(turn, dict):
            continue
        by_from = "from" in turn
        turn = row_shapes.from_caller(turn) if by_from else turn
        who, content = (turn["from"], turn.get("value")) if by_from else (turn.get("role"), turn.get("content"))
        who = who if isinstance(who, str) else str(who)
        role = ROLES.get(who, "") if by_from else "tool" if who == "function" else who
        same += (role, content if isinstance(content, str) else str(content))
        roled.append((role, turn, content))
        if turn.keys() - PLAIN:
            special = True
            same.append(str([turn.get(key) for key in ("tool_calls", "function_call", *REASONING)]))
        elif role in ("tool", "developer") or (isinstance(content, str) and "</think>" in content):
            special = True
        if not by_from:
            speakers.add(role)
        found.update(_of_turn(role, turn, content))
    for one in speakers:
        roles.add(one[:40], number)
    spoken = tuple(role for role, _, _ in roled)
    if "empty_answer" in found and any(
        role == "assistant" and not _says_nothing(turn, content) for role, turn, content in roled
    ):
        found.add("partly_empty")
    if "assistant" not in spoken:
        found.add("unanswered")
    if whole:
        found |= order(spoken)
    return (found | structure(roled) if special else found), same


def _of_turn(role: str, turn: Mapping[str, object], content: object) -> Iterator[str]:
    if role == "system":
        yield "system"
    elif role == "user" and empty(content):
        yield "empty_prompt"
    elif role == "assistant" and _says_nothing(turn, content):
        yield "empty_answer"
    if isinstance(content, str):
        if any(mark in content for mark in PLACES):
            yield "place"
    elif isinstance(content, list) and any(
        isinstance(one, dict) and "image" in str(one.get("type")) for one in content
    ):
        yield "images"


def _says_nothing(turn: Mapping[str, object], content: object) -> bool:
    """Whether a turn has neither a content nor a tool call."""
    return empty(content) and not (turn.get("tool_calls") or turn.get("function_call"))


Inspector = Callable[[list[object], int, Counts], tuple[Iterable[str], object]]


def _inspect_conversation(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    found, same = _turns(values[0], number, roles)
    return found, tuple(same)


def _inspect_images(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    found, same = _inspect_conversation(values[:1], number, roles)
    return set(found) - {"images", "place"}, (same, str(values[1]))


def _inspect_image_pair(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    found, same = _inspect_preference(values[:3], number, roles)
    return set(found) - {"images", "place"}, (same, str(values[3]))


def _inspect_text(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    return ("empty_answer",) if empty(values[0]) else (), str(values[0])


def tokens(values: list[object], names: tuple[str, ...]) -> tuple[list[object], int]:
    """For a valid row of tokens, return a pair: the list `[ids, labels, learned, attention_mask]`, and the largest
    number among ids and labels. `learned` says for each token whether it counts in the loss.
    """
    parts = {part: values[names.index(name)] for part, name in token_columns(names).items()}
    ids, labels = parts["input_ids"], parts.get("labels", parts["input_ids"])
    assert isinstance(ids, list)
    assert isinstance(labels, list)
    learned = row_shapes.learned(parts, len(ids))
    return [ids, labels, learned, parts.get("attention_mask")], max((*ids, *labels), default=-1)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _inspect_tokens(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    if not values:  # the row does not fit the format, so there is nothing to count
        return (), None
    ids, labels, learned = map(_list, values[:3])
    # no token predicts the first one, so it never counts in the loss
    found = set[str]() if any(learned[1:]) else {"empty_answer"}
    if any(mine and label != token for token, label, mine in zip(ids, labels, learned, strict=True)):
        found.add("other_labels")
    if not all(learned):
        found.add("unlearned")
    return found | token_marks(ids, learned, values[3]), str(values[:3])


def _part(value: object, kind: str, number: int, roles: Counts, found: set[str]) -> object:
    """Return a key of a prompt or an answer (a text, or a list of turns). Equal contents have equal keys. The
    properties that rules report are added to `found`.
    """
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        if empty(value):
            found.add(kind)
        return str(value)
    more, same = _turns(value, number, roles, whole=False)
    # these properties are not reported here, because the other part of the row may contain the answer, the trained turn
    # or the tool call that seems to be missing
    found |= more - {"partly_empty", "unanswered", "nothing_trained", "unknown_call_id"}
    return tuple(same)


def _inspect_pair(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    prompt, answer = values[0], values[1]
    if isinstance(prompt, str) and isinstance(answer, str) and prompt.strip() and answer.strip():
        return (), (prompt, answer)
    found = of_pair(prompt, answer)
    first = _part(prompt, "empty_prompt", number, roles, found)
    return found, (first, _part(answer, "empty_answer", number, roles, found))


def _inspect_unpaired(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    """Inspect a prompt with its answer, or a conversation that ends with the answer. The label is the last member of
    `values`.
    """
    return (_inspect_pair if len(values) > 2 else _inspect_conversation)(values, number, roles)


def _inspect_prompt(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    found = set(order(spoken := roles_of(values[0])))
    found |= {"answered_prompt"} if spoken[-1:] == ("assistant",) else set()
    return found, _part(values[0], "empty_prompt", number, roles, found)


def _inspect_preference(values: list[object], number: int, roles: Counts) -> tuple[Iterable[str], object]:
    found = of_preference(values[0] if len(values) > 2 else None, values[-2], values[-1])
    # without a prompt column, both answers begin with the same prompt, so the prompt is inspected only once
    if len(values) > 2 and values[0] is None:
        values = values[1:]
    ends = ("empty_prompt", "empty_answer", "empty_answer")[3 - len(values) :]
    same = tuple(_part(value, kind, number, roles, found) for value, kind in zip(values, ends, strict=False))
    if same[-1] == same[-2]:
        found.add("same")
    return found, same


INSPECTORS: Mapping[str, Inspector] = {
    "images": _inspect_images,
    "image_preference": _inspect_image_pair,
    "messages": _inspect_conversation,
    "conversations": _inspect_conversation,
    "text": _inspect_text,
    "tokens": _inspect_tokens,
    "prompt_completion": _inspect_pair,
    "preference": _inspect_preference,
    "unpaired": _inspect_unpaired,
    "prompt": _inspect_prompt,
}
