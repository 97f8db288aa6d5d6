"""Apply the assignments of `yq` and `jq`, such as `.learning_rate = 1e-5`, to the text of a YAML or JSON file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

ASSIGNMENT = re.compile(r"((?:\.[A-Za-z_][\w-]*|\.?\[\"[^\"\]]*\"\])+)\s*=(?!=)(.*)", re.DOTALL)
"""Matches an assignment such as `.model.name = "org/name"`. The groups are the path and the expression of the value."""
KEY = re.compile(r"\.([A-Za-z_][\w-]*)|\[\"([^\"\]]*)\"\]")
ENVIRONMENT = re.compile(r"(?:(str)?env\(\s*(\w+)\s*\)|(?:\$ENV|env)\.(\w+))")
"""Matches an environment variable: `env(LR)` and `strenv(LR)` of yq, `$ENV.LR` and `env.LR` of jq."""
ARGUMENT = re.compile(r"\(?\s*\$(\w+)\s*(\|\s*tonumber\s*)?\)?")
"""Matches a use of an argument that jq gets by `--arg NAME VALUE`: `$lr` or `($lr | tonumber)`."""
SWITCHES = re.compile(r"-[iyrMPcSe]+|--(?:in-?place|yaml-output|raw-output|compact-output|prettyPrint)")
"""Matches options of yq and jq that do not affect what an assignment sets."""
LONGEST = 2000
"""The largest number of characters of a yq or jq program that is interpreted."""


def split(texts: Sequence[str]) -> tuple[str, str, dict[str, str]] | None:
    """Split the words of a command of yq or jq. Returns the program, the name of its file ("" for standard input), and
    jq's arguments as JSON. None if another option may change the meaning of the program.
    """
    words, arguments = list(texts[1:]), {}
    rest: list[str] = []
    while words:
        word = words.pop(0)
        if word in ("--arg", "--argjson") and len(words) > 1:
            name, value = words.pop(0), words.pop(0)
            arguments[name] = json.dumps(value) if word == "--arg" else value
        elif word == "--indent" and words:
            words.pop(0)
        elif word.startswith("-") and not SWITCHES.fullmatch(word):
            return None
        elif not word.startswith("-"):
            rest.append(word)
    if rest and rest[0] in ("eval", "e") and len(rest) > 1:
        rest.pop(0)
    return (rest[0], "".join(rest[1:]), arguments) if 0 < len(rest) < 3 else None


def assigned(program: str, text: str, arguments: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """The text of a YAML or JSON file after the assignments of `program`, such as `.lr = 1e-5 | .seed = 1`. None if the
    program contains anything else, or if a value is unknown.
    """
    if len(program) > LONGEST:
        return None
    for part in _parts(program):
        found = ASSIGNMENT.fullmatch(part.strip())
        if part.strip() == ".":
            continue
        value = None if found is None else _value(found[2].strip(), arguments, environment)
        if found is None or value is None:
            return None
        keys = [one[1] or one[2] for one in KEY.finditer(found[1])]
        made = _in_json(text, keys, value) if text.lstrip().startswith("{") else _in_yaml(text, keys, value)
        if made is None:
            return None
        text = made
    return text


def _parts(program: str) -> Iterator[str]:
    """Split a program at each `|` that is neither in a text nor in parentheses."""
    depth, quoted, start = 0, False, 0
    for n, one in enumerate(program):
        if one == '"' and program[n - 1 : n] != "\\":
            quoted = not quoted
        elif not quoted and one in "()":
            depth += 1 if one == "(" else -1
        elif one == "|" and not quoted and depth == 0:
            yield program[start:n]
            start = n + 1
    yield program[start:]


def _value(expression: str, arguments: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """The value of an expression as JSON; None if it is unknown."""
    variable, argument = ENVIRONMENT.fullmatch(expression), ARGUMENT.fullmatch(expression)
    if variable is not None:
        known = environment.get(variable[2] or variable[3])
        return known if known is None or (variable[2] and not variable[1]) else json.dumps(known)
    if argument is not None:
        given = arguments.get(argument[1])
        return given.strip('"') if given is not None and argument[2] else given
    try:
        json.loads(expression)
    except (ValueError, RecursionError):
        return None
    return expression


def _in_json(text: str, keys: Sequence[str], value: str) -> str | None:
    try:
        table, new = json.loads(text), json.loads(value)
    except (ValueError, RecursionError):
        return None
    inner = table
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            return None
    inner[keys[-1]] = new
    return json.dumps(table, indent=2) + "\n"


def _in_yaml(text: str, keys: Sequence[str], value: str) -> str | None:
    """Set a key in a YAML text and leave all other lines unchanged. None if a key above it has its value on the same
    line, as in `a: {b: 1}`.
    """
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    start, end, indent = 0, len(lines), 0
    for depth, key in enumerate(keys):
        block = [n for n in range(start, end) if _indent(lines[n]) is not None]
        indent = _indent(lines[block[0]]) or 0 if block else indent + 2 if depth else 0
        heads = (f"{key}:", f'"{key}":', f"'{key}':")
        at = next((n for n in block if _indent(lines[n]) == indent and lines[n].strip().startswith(heads)), None)
        if at is None:
            new = [" " * (indent + 2 * n) + f"{one}:" for n, one in enumerate(keys[depth:])]
            lines[block[-1] + 1 if block else end : end] = [*new[:-1], f"{new[-1]} {value}"]
            return "\n".join(lines) + "\n"
        stop = next((n for n in block if n > at and not _inside(lines[n], indent)), end)
        if depth == len(keys) - 1:
            lines[at:stop] = [" " * indent + f"{key}: {value}"]
        elif lines[at].partition(":")[2].partition("#")[0].strip():
            return None
        start, end = at + 1, stop
    return "\n".join(lines) + "\n"


def _indent(line: str) -> int | None:
    """The indentation of a YAML line; None for an empty line or a comment."""
    text = line.strip()
    return None if not text or text.startswith(("#", "---", "...")) else len(line) - len(line.lstrip())


def _inside(line: str, indent: int) -> bool:
    """Whether a line belongs to the value of a key with this indentation. The items of a list may have the same
    indentation as the key.
    """
    deep = _indent(line) or 0
    return deep > indent or (deep == indent and line.strip().startswith("- "))
