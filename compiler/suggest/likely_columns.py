"""Find columns on which a method could be trained, by their usual names. This module is imported only
for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from xpc.compiler import registry
from xpc.compiler.data.rows import first_row, turn_columns
from xpc.compiler.data.shapes import SHAPES, of_text
from xpc.compiler.language.methods import METHODS
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.suggest.tables import usual_columns

SEPARATORS = {";": "`;`", "\t": "tabs", "|": "`|`"}
"""Signs that some programs write between the columns of a CSV file instead of commas, and the name of each sign in
messages.
"""

TURN_KEYS = ({"role", "content"}, {"from", "value"})
"""The keys of a turn in the two notations of turns that xpc reads."""
SPEAKERS = ("user", "human", "assistant", "model", "bot", "gpt", "system")
"""Usual names of speakers. A JSON object with one of these values is a turn of a chat."""
LIST_OF_OBJECTS = re.compile(r'"([^"\\]{1,80})"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*\{')
"""Matches a JSON key whose value is a list of objects: `"data": [{`."""


def form(method: str, columns: Iterable[str], turns: Mapping[str, str] | None = None) -> str | None:
    """The `data` clause with which a method can read these columns: `data(format=preference, columns=[a, b])`. None if
    the columns fit no format.

    If a column contains the turns of a chat, `turns` maps the column to the format of these turns.
    """
    known_turns = [(name, shape) for name, shape in (turns or {}).items() if shape in METHODS[method].shapes]
    if len(known_turns) == 1 and known_turns[0][0].isidentifier():
        return f"data(format={known_turns[0][1]}, columns=[{known_turns[0][0]}])"
    lower = {name.lower(): name for name in columns if name.isascii() and name.isidentifier()}
    part = {part: next((lower[one] for one in names if one in lower), None) for part, names in usual_columns().items()}
    prompt, answer, chosen, rejected = (part[one] for one in ("prompt", "completion", "chosen", "rejected"))
    for shape in METHODS[method].shapes:
        if shape == "prompt" and (begins := prompt or part["messages"]):
            return f"data(prompt={begins})"
        named = {
            "messages": [part["messages"]],
            "prompt_completion": [prompt, answer],
            "preference": [*([prompt] if prompt else []), chosen, rejected],
            "unpaired": [prompt, answer, part["label"]],
            "text": [part["text"]],
        }.get(shape, [None])
        # the last message of the conversation is the answer to which the label applies
        if shape == "unpaired" and prompt is None and part["messages"] and part["label"]:
            named = [part["messages"], part["label"]]
        known = [one for one in named if one is not None]
        if len(known) == len(named):
            return f"data(format={shape}, columns=[{', '.join(known)}])"
    return None


def _for_source(ref: str, written: str | None) -> str | None:
    """Rewrite `data(format=...)` as a block of the source `ref`: `alpaca { format = ... }`. Without `ref`, `written` is
    returned unchanged.
    """
    if written is None or not ref or not written.startswith("data(format="):
        return written
    return f"{ref} {{ {written[len('data(') : -1].replace('=', ' = ')} }}"


def advice(method: str, source: DataSource, ref: str) -> str:
    """The help if a method cannot be trained on the rows of a source. `ref` is the name of the source if there are
    several; otherwise "".
    """
    found = _for_source(ref, form(method, source.found or source.columns or ()))
    if METHODS[method].shapes[0] == "prompt":
        others = ": the other columns go to the reward functions" if METHODS[method].grouped else ""
        if found:
            turns = found[len("data(prompt=") : -1].lower() in usual_columns()["messages"]
            moved = ", and move an answer at the end of a conversation into another column" if turns else ""
            return f"write `{found}`{moved}{others}"
        such = f"train on other data, such as `{_registered_example(method)}`"
        return f"{such}, or write `data(prompt=NAME)` with the column that has the prompt"
    if found:
        return f"write `{found}`"
    holds = " or ".join(", ".join(f"`{one}`" for one in SHAPES[shape]) for shape in of_text(METHODS[method].shapes)[:2])
    other = next(name for name, one in METHODS.items() if source.shape in one.shapes)
    needed = f"for {method}, name data whose rows have {holds}, or write a `format` and the `columns` that it reads"
    return f"`method {other}` trains on such rows; {needed}"


def _registered_example(method: str) -> str:
    """The name of a registered dataset that fits the method, as an example. Datasets whose number of rows is known are
    preferred.
    """
    known = [one for one in map(registry.find_dataset, registry.dataset_names()) if one is not None]
    fits = {shape: at for at, shape in enumerate(METHODS[method].shapes)}
    fitting = [(fits[one.shape], one.rows is None, one.alias) for one in known if one.shape in fits]
    return min(fitting)[2]


def unknown_columns(source: DataSource, columns: Sequence[str], method: str, several: bool, head: bytes) -> str:
    """The help for a source whose columns fit no format. It says which columns the source has, and which columns a row
    for the method needs. `head` is the beginning of a local file.
    """
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "the file is UTF-16, and data files are UTF-8"
    separator = next((one for one in SEPARATORS if one in columns[0]), "") if len(columns) == 1 else ""
    if separator and source.name.lower().endswith(".csv"):
        return f"its columns are separated by {SEPARATORS[separator]}: separate them by commas"
    listed = f"its columns are {', '.join(columns[:8])}" if columns else "no column can be read from it"
    turns = turn_columns(head) if head else None
    row, _ = first_row(head.decode("utf-8", "replace"))
    if "messages" in METHODS[method].shapes and (others := _other_turns(row)):
        return others
    if within := rows_within(source.name, columns, head):
        return within
    return f"{listed}; {_expected(method, columns, source.label.typed * several, turns)}"


def rows_within(path: str, columns: Sequence[str], head: bytes) -> str:
    """The help for a JSON file that is one object with the rows in a list: `{"data": [...]}`. "" for any other file.
    `columns` are the names in the object, and `head` is the beginning of the file.
    """
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    row, end = first_row(text)
    if not path.lower().endswith(".json") or not text.startswith("{") or (row and text[end:].strip()):
        return ""
    names = [one for one in LIST_OF_OBJECTS.findall(text) if one in columns]
    if not names:
        return ""
    return f"the file is a single object, which is read as one row: write its list `{names[0]}` alone into the file"


def _other_turns(row: Mapping[str, object]) -> str:
    """The help for a row in which the turns of a chat have keys that xpc does not read. "" if no column has
    such turns.
    """
    for name, value in row.items():
        turn = value[0] if isinstance(value, list) and value else None
        speaks = isinstance(turn, dict) and any(
            isinstance(one, str) and one.lower() in SPEAKERS for one in turn.values()
        )
        if isinstance(turn, dict) and speaks and not any(keys <= turn.keys() for keys in TURN_KEYS):
            keys = " and ".join(f"`{str(key)[:40]}`" for key in [*turn][:3])
            read = "rows have turns with `role` and `content`, or `from` and `value`"
            return f"the turns of `{name[:40]}` have {keys}, and {read}"
    return ""


def _expected(method: str, columns: Iterable[str], ref: str, turns: Mapping[str, str] | None) -> str:
    """The help for rows whose format is unknown: the likely columns, or what rows for this method must contain. `ref`
    is the name of the source if there are several; otherwise "".
    """
    found = _for_source(ref, form(method, columns, turns))
    if found is not None:
        return f"write `{found}`"
    usual = of_text(METHODS[method].shapes)
    if method == "sft":
        holds = "rows have messages, conversations, prompt and completion, instruction and output, text, or input_ids"
    else:
        holds = f"rows for {method} have {', or '.join(' and '.join(SHAPES[one]) for one in usual)}"
    if METHODS[method].shapes[0] == "prompt":
        return f"{holds}; `data(prompt=NAME)` names the column of prompts"
    shape = "prompt_completion" if method == "sft" else usual[0]
    return f"{holds}; list other columns in this order: `data(format={shape}, columns=[NAME, ...])`"
