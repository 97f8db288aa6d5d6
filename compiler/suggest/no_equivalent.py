"""Names of other tools that have no equivalent, with the reason (no_equivalent.txt). Loaded only for an unknown name.

In the file, `left` lists what `xpc import` drops from files of axolotl and LLaMA-Factory.
"""

from __future__ import annotations

from functools import cache

from xpc.compiler import stacks
from xpc.compiler.suggest.likeness import parts
from xpc.grammar.package_data import read_text

NO_EQUIVALENT = "leave it out: it has no equivalent, because "


@cache
def _table(kind: str) -> dict[str, str]:
    """The names of one kind in the file, reduced to letters, each with its text."""
    out: dict[str, str] = {}
    for block in read_text(__file__, "no_equivalent.txt").split("\n\n")[1:]:
        first, *lines = block.strip().split("\n")
        found, _, text = first.partition(": ")
        for phrase in " ".join(map(str.strip, lines)).split("; ") if found == kind else ():
            out.setdefault(_letters(phrase), text)
    return out


def advice(name: str, typed: str) -> str | None:
    """What to write for a name that does not correspond to a single setting, or None."""
    help = _table("instead").get(_letters(name))
    if help is None or ("{value}" in help and typed.lower() in ("true", "false") and own_reason(name) is not None):
        return None  # switches are handled elsewhere
    value = typed.strip('"') or "..."
    try:
        share = f"{float(value) * 100:g}%" if 0 < float(value) < 1 else value
    except ValueError:
        share = value
    return help.replace("{value}", value).replace("{share}", share)


def advised() -> dict[str, str]:
    """The names that `advice` knows, reduced to letters, each with its text."""
    return _table("instead")


def _letters(name: str) -> str:
    return "".join(c for c in name[:80].lower() if c.isalnum())


@cache
def reasons() -> dict[str, str]:
    """Every name, reduced to letters, with its reason: from the table, the stack's removed arguments, and the
    importers.
    """
    out = dict(_table("none"))
    for name, known in _of_stacks().items():
        out.setdefault(_letters(name), known)
    for name, known in _table("left").items():
        out.setdefault(name, known)
    return out


def own_reason(name: str) -> str | None:
    """The reason why a name in the table has no equivalent, or None. It takes precedence over similar spellings."""
    return _table("none").get(_letters(name)) or _family(name)


def _family(name: str) -> str | None:
    """The reason for a name that begins with the words of a family: `ema *` is also `ema_momentum`; or None."""
    typed, rows = () if "." in name else parts(name[:80]), _table("family")
    ends = range(1, len(typed))
    return next((rows[head] for end in ends if (head := "".join(typed[:end])) in rows), None)


def no_such_choice(setting: str, choice: str) -> str:
    """The beginning of a help for a choice without an equivalent (`method ppo`), or ""."""
    why = own_reason(f"{setting} {choice}")
    return "" if why is None else f"{NO_EQUIVALENT.removeprefix('leave it out: ')}{why}; "


def _of_stacks() -> dict[str, str]:
    """Arguments that the newest stack has removed, and arguments that a bundle never states."""
    stack = stacks.default()
    gone = {
        name: "transformers has removed it" if why == "no equivalent" else why for name, why in stack.removed.items()
    }
    return {**gone, **stack.omitted()}


def reason(name: str) -> str | None:
    """The reason why a name has no equivalent, or None if that is not known."""
    return reasons().get(_letters(name))
