"""Write the rows for a rehearsal: the first rows of the user's files. For a source that this machine lacks, write
made-up rows in the source's format.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
from itertools import islice

from xpc.compiler.data.rows import conversational
from xpc.compiler.data.shapes import KEPT, SHAPES
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.rules.data.prompts import COLUMN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from xpc.compiler.spec import Spec
    from xpc.compiler.spec.resources import DataSource

MADE = 64
"""Number of rows that are made up for a source that this machine lacks."""
TAKEN = 256
"""Only this many rows at the beginning of a local file are used."""
BY_LINE = (".jsonl", ".csv", ".txt")
"""Endings of files that have one row per line, so that only their first lines are copied."""
MOST_BYTES = 64 * 2**20
"""At most this many bytes are copied from a file that has one row per line. A file in another format is copied
completely, and may have at most this many bytes.
"""
THINGS = ("apple", "river", "house", "stone", "cloud", "horse", "chair", "lamp")
COLOURS = ("red", "green", "blue", "black", "white", "brown", "yellow", "grey")


def copy_head(source: str, target: str) -> None:
    """Copy the first rows of a local file with one row per line. Any other file, or a folder, is copied completely.
    Raises UsageError.
    """
    os.makedirs(os.path.dirname(target), exist_ok=True)
    files = [source] if not os.path.isdir(source) else [
        os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names
    ]  # fmt: skip
    for name in files:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise UsageError(f"{name} is not a file")
    if os.path.isdir(source):
        total = sum(map(os.path.getsize, files))
        if total > MOST_BYTES:
            raise UsageError(f"{source} is too large for a rehearsal ({total:,} bytes): name rows with --rows FILE")
        shutil.copytree(source, target)
    elif source.endswith(BY_LINE):
        with open(source, "rb") as rows, open(target, "wb") as out:
            left = MOST_BYTES
            for line in islice(iter(lambda: rows.readline(MOST_BYTES), b""), TAKEN + 1):
                left -= len(line)
                if left < 0:
                    break
                out.write(line)
    elif os.path.getsize(source) > MOST_BYTES:
        raise UsageError(f"{source} is too large for a rehearsal: name a few of its rows with --rows FILE")
    else:
        shutil.copyfile(source, target)


def write_made(source: DataSource, target: str, more: Mapping[str, object]) -> list[str]:
    """Write made-up rows with the columns of a source and the columns in `more`. Returns all texts of these rows."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    texts: list[str] = []
    with open(target, "w", encoding="utf-8") as out:
        for number in range(MADE):
            row = {**more, **_row(source, number)}
            out.write(json.dumps(row) + "\n")
            texts += _texts(row.values())
    return texts


def _texts(values: Iterable[Any]) -> list[str]:
    found: list[str] = []
    for value in values:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            found += _texts(value)
        elif isinstance(value, dict):
            found += _texts(value.values())
    return found


def _row(source: DataSource, number: int) -> dict[str, Any]:
    thing, colour = THINGS[number % len(THINGS)], COLOURS[number // len(THINGS) % len(COLOURS)]
    question, answer = f"What colour is the {colour} {thing}, number {number}?", f"The {thing} is {colour}."
    user = {"role": "user", "content": question}
    good, bad = ({"role": "assistant", "content": one} for one in (answer, "I cannot see it."))
    conversations = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    shape, turns = source.shape, source.chat
    parts: dict[str, list[Any]] = {
        "images": [[user, good], []],
        "messages": [[user, good]],
        "conversations": [conversations],
        "prompt_completion": [question, answer],
        "tokens": [[3 + number % 5, 4, 5, 6, 7, 8, 9, 10]] * 5,
        "text": [f"{question} {answer}"],
        "unpaired": [question, answer, number % 2 == 0],
        "prompt": [question],
        "preference": [[user, good], [user, bad]],
        "image_preference": [[user], [good], [bad], []],
    }
    values = parts[shape]
    columns = tuple(name for name in source.columns or SHAPES[shape] if name not in KEPT)
    if shape == "preference":
        texts = turns or conversational(source) is False
        answers = [good["content"], bad["content"]] if texts else [[good], [bad]]
        if turns and len(columns) == 2:
            columns = ("prompt", *columns)
        if len(columns) == 3:
            values = [question, *answers]
        elif texts:
            values = [f"{question} {one}" for one in answers]
    row = dict(zip(columns, values, strict=False))
    if source.context is not None:
        row[source.context] = f"There is a {colour} {thing}."
    return row


def other_columns(spec: Spec) -> dict[str, object]:
    """Map columns of the data to made-up values: all columns that the reward functions, or the environment's `reset`,
    read, and those of system prompts and prompt templates. Built-in reward functions read the column `solution`.
    """
    system, template = spec.get("data.system_column"), spec.get("data.prompt_template")
    found: dict[str, object] = {} if system is None else {str(system): "You answer in a sentence."}
    found |= dict.fromkeys(COLUMN.findall(template) if isinstance(template, str) else (), "Look at the picture.")
    for one in spec.get("method.rewards") or ():  # type: ignore[attr-defined]
        if one.function is None:
            found["solution"] = "The answer is $4$."
            continue
        content = spec.bundled.get(one.file or "", b"")
        for name in _parameters(content, one.function):
            found.setdefault(name, "4")
    for one in spec.weighted("method.environment"):
        for name in _parameters(spec.bundled.get(one.file or "", b""), "reset", one.function):
            found.setdefault(name, "4")
    return found


def _parameters(content: bytes, function: str, environment: str | None = None) -> list[str]:
    """The parameters of a function that get columns of the data. The parameters that every trainer passes are left out.
    If the function is a method, `environment` is the name of its class; otherwise it is None.
    """
    given = {"prompt", "prompts", "completions", "completion_ids", "prompt_ids", "trainer_state", "kwargs", "self"}
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == environment]
    for node in tree.body if environment is None else [each for one in classes for each in one.body]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            return [one.arg for one in arguments if one.arg not in given]
    return []
