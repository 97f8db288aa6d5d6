"""With `--partial`, guess the values of a shell script's arguments (`$1`, `$2`): a command in the documentation that
starts the script states them.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.python.usage import LONGEST, PAGES
from xpc.compiler.importing.text.entries import Entry, Unreadable
from xpc.compiler.importing.text.shell import calls

UNSET = re.compile(r"does not set \$\{?(\d)")
PLACEHOLDER = re.compile(r"[<>{}$\[\]]|^\.\.\.|path/to|your|^-")
STARTERS = ("bash", "sh", "zsh", "sbatch", "source", ".", "qsub")


def unset(draft: Draft) -> set[str]:
    """The numbers of the script's arguments that errors report as not set: "1" for `$1`."""
    return {number for one in draft.messages if one.severity == "error" for number in UNSET.findall(one.why)}


def stated(numbers: set[str], text: str, file: str, overrides: Overrides) -> dict[str, Entry]:
    """The values of the shell script's arguments, such as `$1`, from the first documented command that states all of
    them. Documented commands are searched in the script's comments, in shell scripts near it, and in the repository's
    README. If there is no such command, the result is empty.
    """
    name = posixpath.basename(file)
    for words, location, line in _launches(text, name, file, overrides):
        given = {str(n): Entry(f"${n}", one, location, line) for n, one in enumerate(words, 1)}
        if numbers <= set(given) and not any(PLACEHOLDER.search(words[int(one) - 1]) for one in numbers):
            return given
    return {}


def report(draft: Draft, taken: dict[str, Entry], numbers: set[str]) -> None:
    """Add an error for each argument whose value was taken from a documented command. `--partial` turns this error into
    a decision for a person.
    """
    for number in sorted(numbers & set(taken)):
        draft.error(taken[number], "this argument of the script has no default; the spec takes its value from this "
                    "documented command", "`--set 1=VALUE` gives another")  # fmt: skip


def _launches(text: str, name: str, file: str, overrides: Overrides) -> Iterator[tuple[list[str], str, int]]:
    """Find the documented commands that start the script `name`. Yields the arguments of each command, and the file and
    the line in which it stands.
    """
    comments = "\n".join(line.lstrip("# ") if line.lstrip().startswith("#") else "" for line in text.split("\n"))
    yield from ((words, file, line) for words, line in _commands(comments, name))
    for other, shell in overrides.launches():
        if name in shell and posixpath.basename(other) != name:
            with suppress(Unreadable):
                for call in calls(shell):
                    texts = ["$" if one.open else one.text for one in call.words]
                    at = next((n for n, one in enumerate(texts) if posixpath.basename(one) == name), None)
                    if at is not None and len(texts) > at + 1:
                        yield texts[at + 1 :], other, call.words[at].line
    for page in PAGES:
        data = overrides.read(page)
        if data is not None:
            yield from ((words, page, line) for words, line in _commands(data.decode("utf-8", "replace"), name))


def _commands(page: str, name: str) -> Iterator[tuple[list[str], int]]:
    """Find the lines of `page` that start the script `name`, such as `bash run.sh 8 data/`. Yields the arguments and
    the number of each line.
    """
    starts = "|".join(map(re.escape, STARTERS))
    start = re.compile(
        rf"(?:^|[\s`$])(?:(?:{starts})\s+(?:-\S+\s+)*(?:[\w./-]*/)?|\./(?:[\w./-]*/)?){re.escape(name)}\s+"
    )
    lines = page.split("\n")
    for number, line in enumerate(lines, 1):
        found = start.search(line) if len(line) < LONGEST else None
        if found is not None:
            command, at = line[found.end() :], number
            while command.rstrip().endswith("\\") and at < len(lines) and len(command) < LONGEST:
                command, at = command.rstrip()[:-1] + " " + lines[at].lstrip("# "), at + 1
            with suppress(ValueError):
                words = shlex.split(re.split("`|&|;|\\|", command)[0], comments=True)
                if words:
                    yield words, number
