"""Names of other tools that the language has no word for, and why (no_equivalent.txt). Loaded only for a misspelt spec.

`left` in the file is what `xpc import` leaves out of axolotl's and LLaMA-Factory's files.
"""

from __future__ import annotations

import os
from functools import cache

from xpc.compiler import stacks

NO_EQUIVALENT = "leave it out: it has no equivalent, because "


@cache
def _table(kind: str) -> dict[str, str]:
    """The names of a kind in the file, as letters, with what is said of each."""
    out: dict[str, str] = {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "no_equivalent.txt"), encoding="utf-8") as file:
        blocks = file.read().split("\n\n")[1:]
    for block in blocks:
        first, *lines = block.strip().split("\n")
        found, _, said = first.partition(": ")
        for phrase in " ".join(map(str.strip, lines)).split("; ") if found == kind else ():
            out.setdefault(_letters(phrase), said)
    return out


def advice(name: str, typed: str) -> str | None:
    """What to write for a name that no setting means by itself, or None."""
    help = _table("instead").get(_letters(name))
    if help is None or ("{value}" in help and typed.lower() in ("true", "false") and own_reason(name) is not None):
        return None  # of a switch there is a reason of its own
    value = typed.strip('"') or "..."
    try:
        share = f"{float(value) * 100:g}%" if 0 < float(value) < 1 else value
    except ValueError:
        share = value
    return help.replace("{value}", value).replace("{share}", share)


def _letters(name: str) -> str:
    return "".join(c for c in name[:80].lower() if c.isalnum())


@cache
def reasons() -> dict[str, str]:
    """Every name with its reason, spelt as letters: the table's, what the targets removed, what importers leave out."""
    out = dict(_table("none"))
    for name, known in _of_targets().items():
        out.setdefault(_letters(name), known)
    for name, known in _table("left").items():
        out.setdefault(name, known)
    return out


def own_reason(name: str) -> str | None:
    """Why the language has no equivalent of a name of the table above, which goes before what a name is spelt like."""
    return _table("none").get(_letters(name))


def nothing_like(setting: str, choice: str) -> str:
    """The beginning of a help for a choice that the language has no equivalent of, `method ppo`; else an empty text."""
    why = own_reason(f"{setting} {choice}")
    return "" if why is None else f"{NO_EQUIVALENT.removeprefix('leave it out: ')}{why}; "


def _of_targets() -> dict[str, str]:
    """What the newest target's trainers lost, and what a bundle does not state of their arguments."""
    stack = stacks.default()
    gone = {
        name: "transformers has removed it" if why == "no equivalent" else why for name, why in stack.removed.items()
    }
    return {**gone, **stack.omitted()}


def reason(name: str) -> str | None:
    """Why the language has no equivalent of a name, where it is known; None for any other name."""
    return reasons().get(_letters(name))
