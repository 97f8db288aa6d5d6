"""Survey all rows of a local file in one pass. The result has counts, and for each property that rules report, the
first row that has it.

A `Survey` is small, so it can be stored for later commands, which then do not read the file (`survey_cache.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import nsmallest

from xpc.compiler.data import row_shapes
from xpc.compiler.data.damage import damage
from xpc.compiler.data.export_marks import export_marks, token_marks
from xpc.compiler.data.file_counts import FileCounts
from xpc.compiler.data.reader import Row, read
from xpc.compiler.data.shapes import token_columns
from xpc.compiler.data.structure import PLAIN, calls_unknown_tool, read_tools, structure
from xpc.compiler.data.turn_order import of_pair, of_preference, order, roles_of
from xpc.compiler.spec.survey import SKETCH, Broken, Survey, Tally
from xpc.grammar.record import field, mutable
from xpc.runtime.core.row_names import REASONING, ROLES
from xpc.runtime.features.messages.stored_columns import unread

PLACES = ("<image>", "<video>", "<audio>")
"""Texts that mark the place of an image, a video or a sound in a turn (LLaVA's and LLaMA-Factory's rows)."""
SPOKEN = ("user", "assistant")
"""Roles that a digest leaves out: those of a prompt and its answer, which other formats do not name."""
END = 256
"""Characters at each end of a row that are digested to compare it with the rows of other files."""
MANY = 256
"""Maximum number of columns, roles or properties that a survey lists. A file with more is not training data."""


@mutable
class _Counts:
    found: dict[str, list[int]] = field(factory=dict)

    def add(self, kind: str, row: int) -> None:
        one = self.found.get(kind)
        if one is None:
            if len(self.found) < MANY:
                self.found[kind] = [1, row]
        else:
            one[0] += 1

    def tallies(self) -> dict[str, Tally]:
        return {name: Tally(*one) for name, one in self.found.items()}


def survey(
    data: bytes,
    path: str,
    shape: str,
    columns: Sequence[str],
    context: str = "",
    roles: Mapping[str, str] | None = None,
    documents: str = "line",
) -> Survey:
    """Survey all rows of a file. `columns` are the dataset's own names for the columns of the format, in the format's
    order. `context` is a column whose text is appended to the prompt. `roles` maps names of speakers to roles.
    `documents` says what makes a row of a text file.
    """
    rows: Iterable[Row | Broken] = read(data, path, documents)
    if roles:
        rows = (row if isinstance(row, Broken) else row_shapes.with_roles(row, roles) for row in rows)
    return _survey(rows, shape, tuple(columns), context, path.lower().endswith(".csv"))


def _survey(rows: Iterable[Row | Broken], shape: str, names: tuple[str, ...], context: str, cells: bool) -> Survey:
    kinds, roles, keys, words = _Counts(), _Counts(), dict[str, None](), dict[int, int]()
    seen: set[int] = set()
    digests: set[int] = set()
    labels, largest = [0, 0], (-1, -1)
    broken, wrong, talks, texts = None, None, None, {*names, *filter(None, [context])} if cells else set()
    filled, counts = False, FileCounts(shape, names)
    number, judged = -1, names[-1] if cells and shape == "unpaired" else ""
    inspect, check, many = INSPECTORS[shape], row_shapes.checker(shape, names, context), False
    in_prompt = context and (shape != "preference" or len(names) > 2)
    for number, row in enumerate(rows):
        if isinstance(row, Broken):
            broken = row
            break
        if not (many or row.keys() <= keys.keys()):
            keys.update(dict.fromkeys(row))
            many = len(keys) >= MANY
        if judged:
            row = {**row, judged: _label(row.get(judged))}
        values = [row.get(name) for name in names]
        if in_prompt and isinstance(values[0], str):
            values[0] += f"\n{row.get(context) or ''}"
        if number == 0:
            talks = any(isinstance(value, list | dict) for value in values)  # a dict stands for a single turn
        if texts:
            texts -= {name for name in texts if _is_text(row.get(name))}
            filled = filled or row.get(context) is not None
        if wrong is None:
            why = check(row)
            wrong = None if why is None else (number, why)
        if shape == "tokens":
            values, highest = ([], largest[0]) if wrong is not None else _tokens(values, names)
            largest = (highest, number) if highest > largest[0] else largest
        found, same = inspect(values, number, roles)
        marks = export_marks(values, row, shape, names, context) if shape != "tokens" else ()
        for kind in (*found, *unread(row, shape, names), *damage(values), *marks, *_next_to(values, row)):
            kinds.add(kind, number)
        counts.add(row, values)
        if row.get("tools") or row.get("system"):  # tools and system prompts are a part of the rendered text
            same = (same, str((row.get("tools"), row.get("system"))))
        key = hash(same)
        if key in seen:
            kinds.add("repeated", number)
        else:
            seen.add(key)
            digests.add(_digest(same))
        if shape == "unpaired" and isinstance(values[-1], int):
            labels[0 if values[-1] else 1] += 1
        elif shape == "prompt_completion" and isinstance(values[0], str):
            long = len(values[0].split())
            words[long] = words.get(long, 0) + 1
    read = number + (broken is None)
    if not filled:  # an empty cell in the context column counts as missing
        texts.discard(context)
    if wrong is None and broken is None and texts and read and shape != "unpaired":
        wrong = 0, f"every cell of `{sorted(texts)[0]}` is a number, so the column is not read as text"
    return Survey(
        read, tuple(keys), broken, wrong, talks, kinds.tallies() | counts.tallies(), roles.tallies(),
        (labels[0], labels[1]), words, largest if largest[0] >= 0 else None,
        tuple(nsmallest(SKETCH, digests)), counts.characters,
    )  # fmt: skip


def _digest(same: object) -> int:
    """A digest of a row's texts that is the same in every process, without the roles and however the words are divided
    by white space. Of a long row, the two ends and the number of letters are digested.
    """
    text = same if isinstance(same, str) else " ".join(_texts(same))
    letters = len(text) - text.count(" ") - text.count("\n") - text.count("\t") - text.count("\r")
    begin = " ".join(text[:END].split()).lower()[: END // 2]
    end = " ".join(text[-END:].split()).lower()[-END // 2 :]
    text = f"{letters}\n{begin}\n{end}"
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _texts(same: object) -> Iterator[str]:
    for one in same if isinstance(same, tuple | list) else (same,):
        if isinstance(one, str):
            if one not in SPOKEN:
                yield one
        elif isinstance(one, tuple | list):
            yield from _texts(one)
        else:
            yield str(one)


def _next_to(values: list[object], row: Row) -> Iterator[str]:
    """What a row has in addition to the columns of its format: tools and a system prompt."""
    if tools := row.get("tools") or row.get("functions"):
        known = read_tools(tools)
        yield "odd_tools" if known is None else "tools"
        if known is not None and calls_unknown_tool(values[0], known):
            yield "unknown_tool"
    if isinstance(row.get("system"), str) and row["system"]:
        yield "system_column"
        if (first := _first_system(values[0])) is not None and first != row["system"]:
            yield "two_systems"


def _first_system(turns: object) -> object:
    """The content of the first turn of a conversation if it is a system prompt, otherwise None."""
    first = turns[0] if isinstance(turns, list) and turns else None
    if not isinstance(first, dict) or "system" not in (first.get("role"), first.get("from")):
        return None
    return first.get("content", first.get("value"))


def _label(cell: object) -> object:
    """Convert the label in a cell of CSV to a bool or an int, in the same way as pandas."""
    if cell in ("True", "TRUE", "true", "False", "FALSE", "false"):
        return str(cell).lower() == "true"
    return int(cell) if isinstance(cell, str) and cell.strip().isdecimal() else cell


def _is_text(cell: object) -> bool:
    """Whether a cell of CSV is a text. If no cell of a column is, pandas reads the column as numbers or bools."""
    if not isinstance(cell, str):
        return False
    try:
        float(cell)
    except ValueError:
        return cell.strip().lower() not in ("true", "false")
    return False


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


def _turns(value: object, number: int, roles: _Counts, whole: bool = True) -> tuple[set[str], list[object]]:
    """Return a pair: the properties of a conversation that rules report, such as `unanswered`; and a key. Equal
    conversations have equal keys. If `whole` is false, the turns are only a part of a conversation, which may begin
    with an answer.
    """
    if not isinstance(value, list):
        return set(), [str(value)]
    found: set[str] = set()
    same: list[object] = []
    answered = special = False
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
        if isinstance(content, str) and any(mark in content for mark in PLACES):
            found.add("place")
        if role == "assistant":
            answered = True
            if empty(content) and not (turn.get("tool_calls") or turn.get("function_call")):
                found.add("empty_answer")
        elif role == "user" and empty(content):
            found.add("empty_prompt")
        elif role == "system":
            found.add("system")
        if isinstance(content, list) and any(
            isinstance(one, dict) and "image" in str(one.get("type")) for one in content
        ):
            found.add("images")
    for one in speakers:
        roles.add(one[:40], number)
    if not answered:
        found.add("unanswered")
    if whole:
        found |= order(tuple(role for role, _, _ in roled))
    return (found | structure(roled) if special else found), same


Inspector = Callable[[list[object], int, _Counts], tuple[Iterable[str], object]]


def _inspect_conversation(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    found, same = _turns(values[0], number, roles)
    return found, tuple(same)


def _inspect_images(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    found, same = _inspect_conversation(values[:1], number, roles)
    return set(found) - {"images", "place"}, (same, str(values[1]))


def _inspect_image_pair(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    found, same = _inspect_preference(values[:3], number, roles)
    return set(found) - {"images", "place"}, (same, str(values[3]))


def _inspect_text(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    return ("empty_answer",) if empty(values[0]) else (), str(values[0])


def _tokens(values: list[object], names: tuple[str, ...]) -> tuple[list[object], int]:
    """Return a pair for a valid row of tokens: a list of its ids, its labels, whether each token counts in the loss,
    and its `attention_mask`; and the largest id.
    """
    parts = {part: values[names.index(name)] for part, name in token_columns(names).items()}
    ids, labels = parts["input_ids"], parts.get("labels", parts["input_ids"])
    assert isinstance(ids, list)
    assert isinstance(labels, list)
    learned = row_shapes.learned(parts, len(ids))
    return [ids, labels, learned, parts.get("attention_mask")], max((*ids, *labels), default=-1)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _inspect_tokens(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    if not values:  # this row does not fit the format, so there is nothing to count
        return (), None
    ids, labels, learned = map(_list, values[:3])
    # the first token is never predicted, so it is left out
    found = set[str]() if any(learned[1:]) else {"empty_answer"}
    if any(mine and label != token for token, label, mine in zip(ids, labels, learned, strict=True)):
        found.add("other_labels")
    if not all(learned):
        found.add("unlearned")
    return found | token_marks(ids, learned, values[3]), str(values[:3])


def _part(value: object, kind: str, number: int, roles: _Counts, found: set[str]) -> object:
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
    found |= more - {"unanswered"}
    return tuple(same)


def _inspect_pair(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    prompt, answer = values[0], values[1]
    if isinstance(prompt, str) and isinstance(answer, str) and prompt.strip() and answer.strip():
        return (), (prompt, answer)
    found = of_pair(prompt, answer)
    first = _part(prompt, "empty_prompt", number, roles, found)
    return found, (first, _part(answer, "empty_answer", number, roles, found))


def _inspect_unpaired(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    """Inspect a prompt with its answer, or a conversation that ends with the answer. The last one of `values` is the
    label.
    """
    return (_inspect_pair if len(values) > 2 else _inspect_conversation)(values, number, roles)


def _inspect_prompt(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    found = set(order(spoken := roles_of(values[0])))
    found |= {"answered_prompt"} if spoken[-1:] == ("assistant",) else set()
    return found, _part(values[0], "empty_prompt", number, roles, found)


def _inspect_preference(values: list[object], number: int, roles: _Counts) -> tuple[Iterable[str], object]:
    found = of_preference(values[0] if len(values) > 2 else None, values[-2], values[-1])
    if len(values) > 2 and values[0] is None:  # both answers begin with the prompt, so it is inspected once
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
