"""Flatten the emitted JSON and YAML files of a bundle into keys such as `trainer_args.json arguments.learning_rate`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from xpc.compiler.engines.pin import LIST, NOT_RUN
from xpc.compiler.files.inputs import UsageError

TABLES = (".json", "accelerate.yaml")
LONGEST_KEYS = 2**25
"""The keys of a file may together have at most this many characters. A key contains the names of all tables around it.
"""
FACTS = (
    "trainer_args.json target", "trainer_args.json stack.", "trainer_args.json trainer.", "trainer_args.json run.flops",
)  # fmt: skip
"""Beginnings of keys that are not trainer arguments but facts, such as properties of the stack. Changes of these keys
are shown in a section of their own, and not among the changed arguments.
"""
QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*')\s*(?:#.*)?$""")
COMMENT = re.compile(r"(?<!\S)#")
BREAKS = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Matches the line breaks of YAML 1.1. If a comment contains one, YAML reads the text after it as a new line."""
ENTRY = re.compile(r" *[\w-]+:(?: .*)?")
WORD = re.compile("[A-Za-z_][A-Za-z0-9_]*")
FLAGS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML 1.1 reads as booleans or as null, in lower, upper or mixed case."""
PROSE = (*NOT_RUN, LIST, "bundle.toml")
"""Files that only repeat the contents of other files, as text or as digests. They change whenever any file of the
bundle changes.
"""


def tables(files: Mapping[str, bytes], without: tuple[str, ...] = FACTS) -> dict[str, object]:
    """Map each key of accelerate.yaml and the JSON files to its value: `trainer_args.json arguments.learning_rate` to
    2e-05.

    `files` maps names of files to their contents. Keys that begin with one of `without` are dropped.

    Raises UsageError for a file that is not YAML or JSON.
    """
    out: dict[str, object] = {}
    for name in sorted(files):
        if not is_table(name):
            continue
        try:
            text = files[name].decode()
            for key, value in _json(text) if name.endswith(".json") else _yaml(text).items():
                path = f"{name} {key}"
                if not (without and path.startswith(without)):
                    out[path] = value
        except (ValueError, RecursionError) as error:  # somebody has edited the file in the bundle
            raise UsageError(f"{name} of the bundle is damaged: not valid {name.rpartition('.')[2].upper()}") from error
    return out


def is_table(name: str) -> bool:
    """Whether a file of a bundle consists of keys and values, and not of code or text."""
    return "/" not in name and name.endswith(TABLES)


def _json(text: str) -> Iterator[tuple[str, object]]:
    left = LONGEST_KEYS
    for key, value in _flat(json.loads(text), ""):
        left -= len(key)
        if left < 0:
            raise ValueError("its keys are too long")
        yield key, value


def _flat(table: object, prefix: str) -> Iterator[tuple[str, object]]:
    if isinstance(table, dict) and table:
        for key, value in table.items():
            # a dot separates a table's name and its key, so a key that contains a dot is quoted
            name = json.dumps(key) if not key or "." in key or '"' in key else key
            yield from _flat(value, f"{prefix}.{name}" if prefix else name)
    else:
        yield prefix, table


def _yaml(text: str) -> dict[str, object]:
    """Read accelerate.yaml, which is nested one level deep. Its numbers, flags and quoted strings are parsed as JSON.

    Lines that this function cannot read become entries such as `line 12`. There are three kinds: a line of another
    form, such as the second line of a value; a line whose indentation differs from the lines above it; and the second
    occurrence of a key.
    """
    out: dict[str, object] = {}
    block, indent, blocks = "", "", set[str]()
    for number, line in enumerate(BREAKS.split(text)):
        key, _, value = line.strip().partition(":")
        if not key or key.startswith("#"):
            continue
        spaces = line[: len(line) - len(line.lstrip(" "))]
        if not spaces:
            block = ""
        elif block and out.get(block[:-1], 0) is None:
            # the first line of a block decides the indentation of the block
            del out[block[:-1]]
            indent = spaces
        name = f"{block}{key}"
        inside = spaces == (indent if block else "")
        if not inside or not ENTRY.fullmatch(line) or name in out or name in blocks:
            out[f"line {number}"] = line
        elif value:
            out[name] = _scalar(without_comment(value.strip()))
        else:
            block, out[name] = f"{name}.", None
            blocks.add(name)
    return out


def _scalar(text: str) -> object:
    """Parse a value of YAML: a number, a flag or a text. A text without quotes, which YAML may read as another type
    (`no` as a boolean), is returned as `{"without quotes": text}`, so that it is not equal to the same text in quotes.
    """
    try:
        return json.loads(text)
    except ValueError:
        return text if WORD.fullmatch(text) and text.lower() not in FLAGS else {"without quotes": text}


def without_comment(value: str) -> str:
    """A value of YAML without the comment that follows it. `#` begins a comment only at the start of the value, or
    after a space.
    """
    quoted = QUOTED.match(value)
    if quoted is not None:
        return quoted[1]
    comment = None if value.startswith(('"', "'")) else COMMENT.search(value)
    return value if comment is None else value[: comment.start()].rstrip()
