"""Find commands in a repository that start a given script or name a given file: in the file's own comments, in shell
scripts near it, and in pages such as the README.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress

from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.shell import calls
from xpc.grammar.record import record

PAGES = ("README.md", "readme.md", "README.rst", "Makefile", "docs/README.md")
START = re.compile(
    r"(?:^|(?<=[\s`$]))(?:(?:bash|sh|zsh|sbatch|source|\.|qsub|python3?|torchrun|accelerate|deepspeed|uv run|trl)\s"
    r"|\./|CUDA_VISIBLE_DEVICES=)"
)
"""Matches the beginning of a command on a page, before which there are only spaces, a backquote or a `$`."""
END = re.compile("[`;|]|\"\"\"|'''|&(?!\\w)|^```")
PLACEHOLDER = re.compile(r"[<>{}$\[\]]|^\.\.\.|path/to|your")
"""Matches a placeholder for a value that the user chooses: `<model>`, `path/to/rows`."""
LONGEST = 2_000
"""The largest number of characters of a command on a page that the import reads."""


@record
class Documented:
    """A command, and where a page documents it. A word with an unknown variable has the text "$"."""

    words: tuple[str, ...]
    file: str
    line: int

    def after(self, name: str) -> tuple[str, ...]:
        """The command's words after the file `name` or its module name."""
        return self.words[_position(self.words, name) + 1 :]


def commands(name: str, pages: Iterable[tuple[str, str]], overrides: Overrides) -> Iterator[Documented]:
    """Find the commands that contain the file `name`. `pages` are further files that may contain commands, such as the
    file itself, each with its path and text.
    """
    for file, text in pages:
        yield from _on_page(name, text, file)
    for other, shell in overrides.launches():
        if name.removesuffix(".py") in shell and posixpath.basename(other) != name:
            with suppress(Unreadable):
                for call in calls(shell):
                    words = tuple("$" if one.open else one.text for one in call.words)
                    at = _position(words, name)
                    if at >= 0:
                        yield Documented(words, other, call.words[at].line)
    for page in PAGES:
        data = overrides.read(page)
        if data is not None:
            yield from _on_page(name, data.decode("utf-8-sig", "replace"), page)


def _on_page(name: str, page: str, file: str) -> Iterator[Documented]:
    """Find the commands on a page. A backslash at the end of a line joins it with the next line."""
    lines = page.split("\n") if name.removesuffix(".py") in page else []
    command, first = "", 1
    for number, line in enumerate(lines, 1):
        command, first = (command + " " + line.lstrip("# "), first) if command else (line, number)
        if line.rstrip().endswith("\\") and len(command) < LONGEST and number < len(lines):
            command = command.rstrip()[:-1]
            continue
        found = START.search(command) if name.removesuffix(".py") in command and len(command) < LONGEST else None
        if found is not None:
            with suppress(ValueError):
                words = tuple(shlex.split(END.split(command[found.start() :])[0], comments=True))
                if _position(words, name) >= 0:
                    yield Documented(words, file, first)
        command = ""


def _position(words: tuple[str, ...], name: str) -> int:
    """The index of the word that is the file `name` or its module name; -1 if there is none."""
    module = name.removesuffix(".py") if name.endswith(".py") else "\0"
    for n, one in enumerate(words):
        if posixpath.basename(one) == name or (n and words[n - 1] == "-m" and one.rpartition(".")[2] == module):
            return n
    return -1
