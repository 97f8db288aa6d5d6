"""With `--partial`, take the values of a shell script's arguments (`$1`, `$2`) from a documented command that starts
the script.
"""

from __future__ import annotations

import posixpath
import re

from xpc.compiler.importing.documented import PLACEHOLDER, commands
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entry

UNSET = re.compile(r"does not set \$\{?(\d)")


def unset(draft: Draft) -> set[str]:
    """The numbers of the script's arguments for which there are errors because they are not set: "1" for `$1`."""
    return {number for one in draft.messages if one.severity == "error" for number in UNSET.findall(one.why)}


def stated(numbers: set[str], text: str, file: str, overrides: Overrides) -> dict[str, Entry]:
    """The values of the shell script's arguments (`$1` ...), from the first documented command that states all of them,
    in the script's comments, in shell scripts near it or in the README. Empty if there is no such command.
    """
    name = posixpath.basename(file)
    comments = "\n".join(line.lstrip("# ") if line.lstrip().startswith("#") else "" for line in text.split("\n"))
    for one in commands(name, [(file, comments)], overrides):
        words = one.after(name)
        given = {str(n): Entry(f"${n}", word, one.file, one.line) for n, word in enumerate(words, 1)}
        named = [words[int(number) - 1] for number in numbers if number in given]
        if len(named) == len(numbers) and not any(PLACEHOLDER.search(word) or word[:1] == "-" for word in named):
            return given
    return {}


def report(draft: Draft, taken: dict[str, Entry], numbers: set[str]) -> None:
    """Add an error for each argument whose value was taken from a documented command; `--partial` turns it into a
    decision for the user.
    """
    for number in sorted(numbers & set(taken)):
        draft.error(taken[number], "the script has no default for this argument; the spec takes its value from this "
                    "documented command", "`--set 1=VALUE` gives another")  # fmt: skip
