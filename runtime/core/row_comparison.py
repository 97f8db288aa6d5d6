"""Compare rows with the texts that the chat template renders. The model cannot learn parts of a row that its text
lacks.

Each part of a row gets a unique marker, and the rendered text is searched for the markers. Without markers, a content
such as "1" might be found in another turn.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ..library_internals.datasets_rows import rearranged
from .errors import RunError
from .row_names import REASONING
from .rows import FIELDS

Conversations = Callable[[Mapping[str, Any]], list[list[dict[str, Any]]]]
"""A function that gets a converted row and returns its conversations (see ``rows.RowFormat``)."""
STRUCTURE = ("tool_calls", "tools", *REASONING)
"""Keys that a template may ignore. For each role, the first row with each combination of them is compared."""
END = "end"
"""The value of `Loss.how` for the marker before a text's last word. Another marker stands after its first word."""
THOUGHTS = re.compile("(</?think(?:ing)?>)")
PYTHON = {"argument": re.compile("': ?'$"), "part": re.compile(r"""'text': ?['"]\s*\S* $""")}
"""Maps a kind of piece to a pattern for the text before it: a match means that a Python dict was written, not JSON."""
FIRST, SPREAD = 4, 200
"""Of each source, these rows are compared: the first 4, 200 at equal distances, and the first with each set of keys."""
COLUMNS = ("messages", "prompt", "completion", "chosen", "rejected")
NAMES = {"part": "content", "tool_call": "tool_calls", "argument": "tool_calls", "tool": "tools"}
"""Maps a kind of piece to the value of `data(omit=[...])` that allows its loss (for other kinds: the kind itself)."""
WORDS = {"content": "a text", "tool_calls": "tool calls", "reasoning": "reasoning", "tools": "tools"}


class Loss(NamedTuple):
    """A piece of a row that the rendered text does not contain, or contains in another form."""

    kind: str
    """The kind of piece: content, part (of a content that is a list), tool_call, argument, reasoning or tool."""
    turn: int | None
    """The number of the turn that contains the piece, from 0; None for a tool."""
    piece: str
    """The piece itself: the beginning of a text, the name of a function, or an argument."""
    how: str = "missing"
    """How the piece is lost: "missing", "twice", "encoded twice" (JSON text in a JSON string), or "as Python text"."""
    role: str = ""

    @property
    def name(self) -> str:
        """The value of the setting `omit` that allows this loss, for example "tool_calls"."""
        return NAMES.get(self.kind, self.kind)

    def __str__(self) -> str:
        """A phrase about the template: "leaves out the tool call 'weather' of turn 1 (assistant)"."""
        does = "leaves out or changes" if self.kind == "content" else "leaves out"
        of = "" if self.turn is None else f" of turn {self.turn} ({self.role})"
        does, how = (does, "") if self.how == "missing" else ("writes", f" {self.how}")
        return f"{does} the {self.kind.replace('_', ' ')} {self.piece!r}{of}{how}"


def check(
    rows: Mapping[int, Mapping[str, Any]], tokenizer: Any, name: str, conversations: Conversations,
    omit: Collection[str] = (),
) -> list[str]:  # fmt: skip
    """Compare ``rows``, a mapping from numbers to rows. Return sentences about lost pieces that ``omit`` allows; raise
    RunError for other lost pieces."""
    found: dict[str, dict[int, Loss]] = {}  # by value of `omit` that allows it, each row's first lost piece
    for number, row in rows.items():
        for loss in losses(row, tokenizer, conversations):
            found.setdefault(loss.name, {}).setdefault(number, loss)
    refused = [lost for lost in found if lost not in omit]
    if refused:
        many, (number, loss) = len(found[refused[0]]), next(iter(found[refused[0]].items()))
        also = f", and {' and '.join(WORDS[lost] for lost in refused[1:])}" if refused[1:] else ""
        raise RunError(
            f"{name}, row {number}: the chat template {loss}{also}, so the model would not learn what the row says "
            f"({many:,} of {len(rows):,} compared rows); change the data, name another chat_template, or "
            f"allow it with `data(omit=[{', '.join([*omit, *refused])}])`"
        )
    return [
        f"{name}: {len(each):,} of {len(rows):,} compared rows lose {WORDS[lost]}, as `omit` allows"
        for lost, each in found.items()
    ]


class Markers:
    """The markers in a conversation. Each has a `Loss`: what is lost if the rendered text lacks this marker."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Loss]] = []

    def mark(self, loss: Loss) -> str:
        """Make a new marker for a piece of a row. ``loss`` says what is lost if the rendered text lacks the marker."""
        mark = f"zQ{len(self.found)}qZ"
        self.found.append((mark, loss))
        return mark

    def text(self, text: str, loss: Loss) -> str:
        """Put markers after a text's first word and before its last, so that the text begins and ends as before."""
        first, last = re.match(r"\s*\S+", text), re.search(r"\s\S+\s*$", text)
        begin = f"{first[0]} {self.mark(loss)}" if first else ""
        if first and last and last.start() >= first.end():
            end = self.mark(Loss(loss.kind, loss.turn, text.strip()[-40:], END, loss.role))
            return f"{begin}{text[first.end() : last.start()]} {end}{last[0]}"
        return f"{begin}{text[first.end() :]}" if first else text


def losses(row: Mapping[str, Any], tokenizer: Any, conversations: Conversations) -> list[Loss]:
    """The pieces of a converted row that its rendered text lacks. Empty if the template refuses the row."""
    found = (one for messages in conversations(row) for one in _of_conversation(messages, tokenizer))
    return list(dict.fromkeys(found))


def _of_conversation(messages: list[dict[str, object]], tokenizer: Any) -> Iterator[Loss]:
    marks = Markers()
    render = tokenizer.apply_chat_template
    turns, options = getattr(render, "marked", marked)(messages, marks)
    try:
        text = render(turns, tokenize=False, add_generation_prompt=turns[-1]["role"] != "assistant", **options)
    except Exception:  # a template may raise any exception
        return
    written = {loss for mark, loss in marks.found if mark in text}
    # the rendered text must contain each answer, without its reasoning, unchanged: `a < b`, and not `a &lt; b`
    own, how = [THOUGHTS.split(str(turn.get("content") or ""))[-1].strip() for turn in turns], ""
    for mark, loss in marks.found:
        incomplete, place = how == "missing", text.find(mark)
        how = "missing" if place < 0 else _form(loss.kind, text[max(0, place - 200) : place])
        how = how or "twice" * (loss.kind == "content" and text.count(mark) > 1)
        ours = loss.kind == "content" and loss.role != "tool"
        how = how or "missing" * (ours and any(one not in text for one in own[loss.turn or 0].split("<image>")))
        # do not report the end of a text whose beginning is reported, or reasoning that is rendered from another key
        skipped = incomplete if loss.how == END else loss.kind == "reasoning" and loss in written
        if how and not (skipped and how == "missing"):
            yield Loss(loss.kind, loss.turn, loss.piece, how, loss.role)


def _form(kind: str, before: str) -> str:
    """A piece's wrong form, such as "encoded twice", according to the text ``before`` it; "" if the form is right."""
    if kind == "argument" and before.endswith('\\"'):
        return "encoded twice"
    return "as Python text" if kind in PYTHON and PYTHON[kind].search(before) else ""


def marked(messages: list[dict[str, Any]], marks: Markers) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Put a marker into the text of each message. Returns a pair: the marked messages, and further arguments for the
    chat template (here none).
    """
    turns = enumerate(messages)
    return [{**turn, "content": content(turn["content"], number, turn["role"], marks)} for number, turn in turns], {}


def content(text: str, number: int, role: str, marks: Markers, kind: str = "content") -> str:
    """Put markers into a turn's content. Reasoning in an answer gets its own marker, as some templates drop it."""
    segments = THOUGHTS.split(text) if role == "assistant" else [text]
    out = []
    for index, segment in enumerate(segments):
        thought = segments[index + 1 : index + 2] in (["</think>"], ["</thinking>"])
        loss = Loss("reasoning" if thought else kind, number, segment.strip()[:40], role=role)
        out.append(segment if index % 2 else marks.text(segment, loss))
    return "".join(out)


def sampled_rows(part: Any) -> list[int]:
    """The numbers of the converted rows to compare: the first rows, rows at equal distances, and the first row with
    each role and each combination of the keys in `STRUCTURE`. pyarrow finds the rows with new roles and keys in the
    columns, so rows are not read one by one.
    """
    import pyarrow
    import pyarrow.compute as compute

    found = set(range(min(FIRST, len(part)))) | set(range(0, len(part), max(1, len(part) // SPREAD)))
    for name in () if rearranged(part) else (one for one in COLUMNS if one in part.column_names):
        column = part.data.column(name)
        kind = column.type
        if not pyarrow.types.is_list(kind) or not pyarrow.types.is_struct(kind.value_type):
            continue
        rows, turns = compute.list_parent_indices(column), compute.list_flatten(column)
        kinds = compute.struct_field(turns, "role")
        if kind.value_type.get_field_index(FIELDS) >= 0:
            fields = compute.fill_null(compute.struct_field(turns, FIELDS), "")
            for key in STRUCTURE:
                there = compute.cast(compute.match_substring(fields, f'"{key}":'), "string")
                kinds = compute.binary_join_element_wise(kinds, there, " ")
        found |= {rows[compute.index(kinds, one).as_py()].as_py() for one in kinds.unique().to_pylist()}
    return sorted(found)
