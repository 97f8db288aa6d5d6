"""With `--partial`, take the values of required arguments from documented commands, such as the usage line of the
script.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entry, Unreadable
from xpc.compiler.importing.text.shell import calls

REQUIRED = re.compile(r"`--set (\w+)=VALUE` gives it")
"""Matches the part of an error message that names a required argument: "`--set lr=VALUE` gives it"."""
PAGES = ("README.md", "readme.md", "README.rst", "Makefile", "docs/README.md")
LAUNCHER = r"(?:python3?|torchrun|accelerate|deepspeed|uv run|CUDA_VISIBLE_DEVICES)"
LONGEST = 2_000
"""The maximum length, in characters, of a command in the documentation that is read."""


def required(draft: Draft) -> list[str]:
    """The names of required arguments that errors of the draft report as missing."""
    found: dict[str, None] = {}
    for one in draft.messages:
        if one.severity == "error":
            found.update(dict.fromkeys(REQUIRED.findall(one.why)))
    return list(found)


def stated(names: list[str], text: str, file: str, overrides: Overrides) -> dict[str, Entry]:
    """Values for the arguments `names`, from the first documented command that states them. The command may be in the
    script itself (`Usage: python train.py --model org/name`), in a shell script near it, or in the repository's README.
    """
    out: dict[str, Entry] = {}
    for words, name, line in _launches(text, file, overrides):
        values = _values(words)
        if values:
            for one in names:
                value = values.get(one)
                if one not in out and value is not None and not re.search(r"[<>{}$\[\]]|^\.\.\.|path/to|your", value):
                    out[one] = Entry(one, value, name, line)
    return out


def report(draft: Draft, taken: dict[str, Entry]) -> None:
    """Add an error for each argument whose value was taken from a documented command, such as a line of README.md. With
    `--partial`, these errors become decisions that a person confirms.
    """
    for name, one in taken.items():
        draft.error(
            one,
            "this argument of the command line has no default; the spec takes its value from this usage line",
            "`--set NAME=VALUE` gives another" if len(taken) > 1 else f"`--set {name}=VALUE` gives another",
        )


def _launches(text: str, file: str, overrides: Overrides) -> Iterator[tuple[list[str], str, int]]:
    """The arguments in each documented command that starts the script, with the file and line of the command."""
    script = posixpath.basename(file)
    for words, line in _commands(text, script):
        yield words, file, line
    for name, shell in overrides.launches():
        if script not in shell:
            continue
        with suppress(Unreadable):
            for call in calls(shell):
                at = next((n for n, one in enumerate(call.words) if posixpath.basename(one.text) == script), None)
                if at is not None:
                    yield ["$" if one.open else one.text for one in call.words[at + 1 :]], name, call.words[at].line
    for name, page in _pages(overrides):
        for words, line in _commands(page, script):
            yield words, name, line


def _pages(overrides: Overrides) -> Iterator[tuple[str, str]]:
    """The names and contents of files in the repository that may document commands, such as README.md."""
    for name in PAGES:
        data = overrides.read(name)
        if data is not None:
            yield name, data.decode("utf-8-sig", "replace")


def _commands(page: str, script: str) -> Iterator[tuple[list[str], int]]:
    """Find the commands on a page that start the script. Yields the arguments of each command and the number of its
    line.
    """
    lines = page.split("\n")
    stem = script.removesuffix(".py")
    start = re.compile(rf"{LAUNCHER}\b.*[\s/.]{re.escape(stem)}(?:\.py)?(?=\s|$|`)")
    for number, line in enumerate(lines, 1):
        found = start.search(line)
        if found is None or len(line) > LONGEST:
            continue
        command, at = line[found.end() :], number
        while command.rstrip().endswith("\\") and at < len(lines) and len(command) < LONGEST:
            command = command.rstrip().rstrip("\\") + " " + lines[at].lstrip("# ")
            at += 1
        try:
            yield shlex.split(re.split("`|\"\"\"|'''", command)[0], comments=True), number
        except ValueError:
            continue


def _values(words: list[str]) -> dict[str, str]:
    """Maps each option in `--name value` or `--name=value` to its value. Words before the first option have no name;
    their names are "1", "2" and so on.
    """
    out: dict[str, str] = {}
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not name.startswith("-"):
            if not any(one.startswith("-") for one in words[: n + 1]):
                out[str(n + 1)] = word
            continue
        following = words[n + 1] if n + 1 < len(words) else ""
        if not equals and (not following or following.startswith("--")):
            continue
        out[name.lstrip("-").replace("-", "_")] = value if equals else following
    return out
