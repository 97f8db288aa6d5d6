"""Compute the output of the filters in a pipeline such as `echo $NAME | cut -d/ -f2`, if their input is known. No
command is executed.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping

from xpc.compiler.importing.text.arithmetic import WHOLE, computed
from xpc.compiler.importing.text.entries import MAX_SIZE

FIELD = re.compile(r"\{\s*print\s+(?:\$(\d|NF)|(NF))\s*(?:\+\s*(\d+)\s*)?;?\s*\}")
"""Matches an awk program that prints one field or the number of fields, with or without an added number: `{print $2}`,
`{print NF}`, `{print $1 + 1}`.
"""
LONGEST = 500
"""The largest number of characters of a filter that the import interprets."""
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def filtered(text: str, commands: str) -> str | None:
    """The output of the filters `commands`, such as `cut -d/ -f2 | tr a b`, for the input `text`. None if the output of
    one of them cannot be computed.
    """
    out: str | None = text + "\n"
    if len(commands) > LONGEST:
        return None
    try:
        lexer = shlex.shlex(commands, posix=True, punctuation_chars="|")
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:
        return None
    while words and out is not None:
        end = words.index("|") if "|" in words else len(words)
        out, words = _one(out, words[:end]), words[end + 1 :]
    return None if out is None else out.rstrip("\n")


def _one(text: str, words: list[str]) -> str | None:
    """The output of one filter: cut, tr, sed, grep, awk, wc or head."""
    lines = text.removesuffix("\n").split("\n")
    match words:
        case ["sed", *rest] if len([one for one in rest if one != "-e"]) == 1:
            return replaced(rest[-1], text)
        case ["tr", "-cd" | "-dc", kept]:
            return "".join(one for one in text if one in ESCAPES.get(kept, kept))
        case ["tr", before, after] if not before.startswith("-"):
            before, after = ESCAPES.get(before, before), ESCAPES.get(after, after)
            return text.replace(before, after) if len(before) == len(after) == 1 else None
        case ["grep", "-o", one] if len(one) == 1 and one not in "^$.":
            return f"{one}\n" * text.count(one)
        case ["wc", "-l" | "-w" | "-c" as counted]:
            return str({"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text)}[counted]) + "\n"
        case ["head", "-1" | "-n1"] | ["head", "-n", "1"]:
            return lines[0]
        case ["cut", *rest] if options := re.fullmatch(r"-d(.)-f(\d)", "".join(rest)):
            return "\n".join(
                _field(one.split(options[1]), int(options[2])) if options[1] in one else one for one in lines
            )
        case ["awk", *rest] if len(rest) in (1, 2, 3):
            return _awk(lines, rest)
    return None


def _awk(lines: list[str], words: list[str]) -> str | None:
    """The output of awk with these options and a program that prints one field, such as `-F: '{print $2}'`."""
    cut = words[0][2:] or words[1] if len(words) > 1 and words[0].startswith("-F") else None
    program = FIELD.fullmatch(words[-1].strip())
    if program is None or (cut is None and len(words) > 1) or (cut is not None and len(cut) != 1):
        return None
    lists = [one.split(cut) for one in lines]
    found = [str(len(one)) if program[2] else _field(one, len(one) if program[1] == "NF" else int(program[1]))
             for one in lists]  # fmt: skip
    if program[3] and not all(one.isdecimal() and len(one) < 10 for one in found):
        return None
    return "\n".join(str(int(one) + int(program[3])) if program[3] else one for one in found)


def _field(fields: list[str], number: int) -> str:
    return fields[number - 1] if 0 < number <= len(fields) else ""


OLD = re.compile(
    r"(?P<begin>\^?)(?P<open>\(?)(?P<space>(?:\\s|\[\[:space:\]\]| )\*)?(?P<text>(?:[^][*^$+?(){}|\\]|\\[-./\"'$*])*)"
    r"(?:(?P<close>\))(?P<next>[^][*^$+?(){}|\\.]*))?(?:(?P<kind>\.|\\S|\[[^][]{1,40}\])(?P<many>[*+])(?P<tail>[^][*^$+?(){}|\\.]*))?(?P<end>\$?)"
)
"""Matches the patterns of sed that the import understands, such as `^\\(lr:\\).*`. Such a pattern has a plain text,
which may be in a group, and optionally a repeated character class such as `.*` and a second plain text.
"""


def replaced(command: str, text: str, extended: bool = False) -> str | None:
    """Apply sed's command `s/PATTERN/NEW/g` or `/PATTERN/d` (delete lines) to a text. None for any other command, or
    for a PATTERN that the import does not understand (`OLD`). `extended` is the option -E.
    """
    deletes = command.startswith("/") and command.endswith("/d") and len(command) > 3
    mark = "/" if deletes else command[1:2]
    if not deletes and (len(command) < 4 or command[0] != "s" or mark.isalnum() or mark in "\\ "):
        return None
    parts = [one.replace(f"\\{mark}", mark) for one in re.split(rf"(?<!\\){re.escape(mark)}", command[2 - deletes :])]
    if len(parts) != 3 - deletes or parts[-1].strip(";") not in (("d",) if deletes else ("", "g")):
        return None
    find, new, every = _finder(parts[0], extended), "" if deletes else parts[1], "g" in parts[-1]
    if find is None or "&" in new or re.search(r"\\(?!1)", new) or len(new) * text.count("\n") > MAX_SIZE:
        return None
    try:
        return _edited(text, find, new, every, deletes)
    except Untried:
        return None


def _edited(text: str, find: Callable[[str, int], Found | None], new: str, every: bool, deletes: bool) -> str:
    """Replace what `find` finds in each line by `new`; with `deletes`, delete each line in which it finds something.
    Raises Untried.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        at, out, found = 0, [], find(line, 0)
        if deletes and found is not None:
            continue
        while found is not None:
            start, end, group = found
            out += [line[at:start], new.replace("\\1", group)]
            at = end
            found = find(line, at) if every and end > start else None
        lines.append("".join(out) + line[at:])
    return "\n".join(lines)


class Untried(Exception):
    """Raised for a line in which the beginning of a pattern occurs more than TRIES times, but never its end."""


TRIES = 50
Found = tuple[int, int, str]


def _finder(pattern: str, extended: bool) -> Callable[[str, int], Found | None] | None:
    """Return a function that searches a line for a pattern of sed, from a given position on, and returns the beginning
    and end of the match and the text of the pattern's group. None if the importer does not understand the pattern.
    """
    if len(pattern) > LONGEST or (not extended and re.search(r"(?<!\\)[(+?{|]", pattern)):
        return None
    found = OLD.fullmatch(pattern if extended else re.sub(r"\\([()+])", r"\1", pattern))
    if found is None or bool(found["open"]) != bool(found["close"]):
        return None
    head = re.sub(r"\\(.)", r"\1", found["text"])
    start, tail, stays = head + (found["next"] or ""), found["tail"] or "", found["kind"] == "."
    kind, end = "[^\n]" if stays else found["kind"] or "", r"\Z" if found["end"] else ""
    try:
        whole = re.compile(f"{re.escape(start)}{kind}{found['many'] or ''}{re.escape(tail)}{end}")
        if not start or (tail and kind and not stays and re.match(kind, tail)):
            return None
    except re.error:  # the pattern is malformed, such as `[z-a]`
        return None

    def find(line: str, after: int) -> Found | None:
        at = line.find(start, after)
        for _ in range(TRIES):
            if at < 0:
                return None
            first = at
            while found["space"] and first > after and line[first - 1] in " \t":
                first -= 1
            match = None if found["begin"] and first else whole.match(line, at)
            if match is not None:
                return first, match.end(), line[first : at + len(head)] if found["open"] else ""
            if found["begin"] or stays:
                return None
            at = line.find(start, at + 1)
        raise Untried

    return find


def _name(words: list[str]) -> str:
    return posixpath.basename(words[0].rstrip("/")).removesuffix(words[1] if len(words) > 1 else "")


def _result(words: list[str]) -> str | None:
    value = computed(" ".join(words).replace("\\", ""))
    return None if value is None else str(value)


def _numbers(words: list[str]) -> str | None:
    ends = [int(one) for one in words if WHOLE.fullmatch(one)]
    first, last = (1, ends[0]) if len(ends) == 1 else (ends[0], ends[-1]) if ends else (1, 0)
    step = ends[1] if len(ends) == 3 else 1
    return " ".join(map(str, range(first, min(last, first + 99) + 1, step))) if step else None


PRINTED: Mapping[str, Callable[[list[str]], str | None]] = {
    "basename": _name, "dirname": lambda words: posixpath.dirname(words[0].rstrip("/")) or ".", "expr": _result,
    "seq": _numbers, "echo": " ".join, "realpath": " ".join, "which": lambda words: words[-1],
    "command": lambda words: words[1] if words[0] == "-v" and len(words) == 2 else None,
}  # fmt: skip
"""Maps a command to a function that computes its output from its arguments. The function returns None if the output is
unknown.
"""
