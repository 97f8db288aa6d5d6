"""Names of other tools that have no equivalent, with the reason (no_equivalent.txt). Loaded only for an unknown name.

In the file, `left` lists what `xpc import` drops from files of axolotl and LLaMA-Factory.
"""

from __future__ import annotations

import re
from functools import cache

from xpc.compiler import stacks
from xpc.compiler.suggest.likeness import parts, words
from xpc.compiler.suggest.tables import switch_words
from xpc.grammar.package_data import read_text

NO_EQUIVALENT = "leave it out: it has no equivalent, because "


@cache
def _table(kind: str) -> dict[str, str]:
    """The names of one kind in the file, reduced to letters, each with its text."""
    out: dict[str, str] = {}
    for phrase, text in _phrases(kind):
        out.setdefault(_letters(phrase), text)
    return out


@cache
def _phrases(kind: str) -> tuple[tuple[str, str], ...]:
    """The names of one kind in the file, each with its text."""
    out: list[tuple[str, str]] = []
    for block in read_text(__file__, "no_equivalent.txt").split("\n\n")[1:]:
        first, *lines = block.strip().split("\n")
        found, _, text = first.partition(": ")
        out += [(one, text) for one in " ".join(map(str.strip, lines)).split("; ") if found == kind]
    return tuple(out)


@cache
def _by_words(kind: str) -> dict[tuple[str, ...], str]:
    """The names of one kind in the file, reduced to their words in alphabetical order, each with its text."""
    out: dict[tuple[str, ...], str] = {}
    for phrase, text in _phrases(kind):
        out.setdefault(tuple(sorted(words(phrase))), text)
    return out


def _with_words(kind: str, name: str) -> str | None:
    """The text for a name with the words of a listed one in any order, with or without `use` and `enable`; or None."""
    typed, rows = words(name[:80]), _by_words(kind)
    return next(
        (
            rows[key]
            for one in (typed, [word for word in typed if word not in switch_words()])
            if (key := tuple(sorted(one))) in rows
        ),
        None,
    )


def advice(name: str, typed: str) -> str | None:
    """What to write for a name that does not correspond to a single setting, or None."""
    table = _table("instead")
    number = table.get(_letters(name) + "number") if re.fullmatch(r"\d[\d.]*%?", typed) else None
    help = number or table.get(_letters(name))
    if help is None or ("{value}" in help and typed.lower() in ("true", "false") and own_reason(name) is not None):
        return None  # flags are handled elsewhere
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
    return _table("none").get(_letters(name))


def loose_reason(name: str) -> str | None:
    """The same also for names with the words of one in the table, and for names of a family. Known names of settings
    take precedence over it.
    """
    return own_reason(name) or _with_words("none", name) or _family(name)


def _family(name: str) -> str | None:
    """The reason for a name that begins with the words of a family, or None: `ema *` is also `ema_momentum`, and
    `critic` in a dotted name is also `critic.optim.lr`.
    """
    rows, segments = _table("family"), name[:120].split(".")
    for number, segment in enumerate(segments):
        typed = parts(segment)
        ends = range(1, len(typed) + (number < len(segments) - 1))
        found = next((rows[head] for end in ends if (head := "".join(typed[:end])) in rows), None)
        if found is not None:
            return found
    return None


def no_such_choice(setting: str, choice: str) -> str:
    """The beginning of a help for a choice without an equivalent (`method ppo`), or ""."""
    why = loose_reason(f"{setting} {choice}")
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
