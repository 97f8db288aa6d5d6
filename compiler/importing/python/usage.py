"""With `--partial`, take the values of required arguments from documented commands, such as the usage line of the
script.
"""

from __future__ import annotations

import posixpath
import re

from xpc.compiler.importing.documented import PLACEHOLDER, commands
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entry

REQUIRED = re.compile(r"`--set (\w+)=VALUE` gives it")
"""Matches the name of a required argument in an error: "`--set lr=VALUE` gives it"."""


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
    script = posixpath.basename(file)
    for command in commands(script, [(file, text)], overrides):
        values = _values(command.after(script))
        for one in names:
            value = values.get(one)
            if one not in out and value is not None and not PLACEHOLDER.search(value):
                out[one] = Entry(one, value, command.file, command.line)
    return out


def report(draft: Draft, taken: dict[str, Entry]) -> None:
    """Add an error for each argument whose value was taken from a documented command, such as a line of README.md.
    `--partial` turns these errors into decisions that the user confirms.
    """
    for name, one in taken.items():
        draft.error(
            one,
            "the script has no default for this argument; the spec takes its value from this documented command",
            "`--set NAME=VALUE` gives another" if len(taken) > 1 else f"`--set {name}=VALUE` gives another",
        )


def _values(words: tuple[str, ...]) -> dict[str, str]:
    """Maps each option in `--name value` or `--name=value` to its value. Words before the first option have the names
    "1", "2" and so on.
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
