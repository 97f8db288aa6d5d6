"""Names of other tools that have no equivalent in xpc, and the reason for each (no_equivalent.txt). Imported only for
an unknown name.

The file lists names of four kinds. A name of the kind `none` has no equivalent. For a name of the kind `instead`, the
file says what to write instead. A name of the kind `left` is dropped by `xpc import`. An entry of the kind `family` is
the beginning of names that have no equivalent.
"""

from __future__ import annotations

import re
from functools import cache

from xpc.compiler import stacks
from xpc.compiler.language.advisor import Suggestion
from xpc.compiler.suggest.likeness import parts, words
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.package_data import read_text

NO_EQUIVALENT = "leave it out: it has no equivalent, because "


@cache
def _table(kind: str) -> dict[str, str]:
    """The names of one kind in no_equivalent.txt, each with its text. A name is written as lower-case letters without
    separators.
    """
    out: dict[str, str] = {}
    for phrase, text in phrases(kind):
        out.setdefault(_letters(phrase), text)
    return out


@cache
def phrases(kind: str) -> tuple[tuple[str, str], ...]:
    """The lines of no_equivalent.txt under the headings of one kind, such as `none`, as pairs: a name, and the text
    that answers it.
    """
    out: list[tuple[str, str]] = []
    for block in read_text(__file__, "no_equivalent.txt").split("\n\n")[1:]:
        first, *lines = block.strip().split("\n")
        found, _, text = first.partition(": ")
        out += [(one, text) for one in " ".join(map(str.strip, lines)).split("; ") if found == kind]
    return tuple(out)


@cache
def _by_words(kind: str) -> dict[tuple[str, ...], str]:
    """The names of one kind in no_equivalent.txt, each with its text. A name is written as a tuple of its words in
    alphabetical order.
    """
    out: dict[tuple[str, ...], str] = {}
    for phrase, text in phrases(kind):
        out.setdefault(tuple(sorted(words(phrase))), text)
    return out


def _with_words(kind: str, name: str) -> str | None:
    """Find the line of no_equivalent.txt that has the same words as a name, in any order, and return its text. The line
    may lack words such as `use` and `enable`. None if there is no such line.
    """
    typed, rows = words(name[:80]), _by_words(kind)
    return next(
        (
            rows[key]
            for one in (typed, [word for word in typed if word not in words_of("switches")])
            if (key := tuple(sorted(one))) in rows
        ),
        None,
    )


def advice(name: str, typed: str) -> str | None:
    """The help for a name that does not correspond to a single setting: what to write instead. None for any other name.
    `typed` is the value that the user wrote.
    """
    table = _table("instead")
    number = table.get(_letters(name) + "number") if re.fullmatch(r"\d[\d.]*%?|\[[\d., %]*\]", typed) else None
    help = pair_advice(name, typed) or number or table.get(_letters(name))
    switch = help is not None and "{value}" in help and typed.lower() in ("true", "false")
    if help is None or (switch and (own_reason(name) is not None or "for {value}" in help)):
        # the help would repeat `true` or `false` as a value, so the caller prints `own_reason` instead
        return None
    if "`extra deepspeed(" in help and typed.strip('"') == "auto":
        return "leave it out: a bundle states a value for `auto`"
    value = re.sub(r"^(\w+)\[:(\d+%?)\]$", r"\1:\2", typed.strip('"')) or "..."  # `train[:5000]` is a part of a split
    value = value.strip("[]").partition(",")[0].strip("\"'") if "[{value}]" in help else value  # several splits
    if value.lower() in ("false", "0") and help.startswith("write ") and not re.search(r"\{\w+\}|=false|=none", help):
        return "leave it out: it is off"
    try:
        share = f"{float(value) * 100:g}%" if 0 < float(value) < 1 else value
    except ValueError:
        share = value
    return help.replace("{value}", value).replace("{share}", share)


def pair_advice(name: str, typed: str) -> str:
    """The help for two numbers that xpc writes as two settings: `epsilon = [0.2, 0.28]`. "" for any other value."""
    two = re.fullmatch(r"[\[(]?\s*([\d.]+)[\s,/;:|-]+([\d.]+)\s*[\])]?", typed)
    both = "" if two is None else _table("instead").get(_letters(name) + "pair", "")
    return both if two is None else both.replace("{first}", two[1]).replace("{second}", two[2])


def advised() -> dict[str, str]:
    """Map each name for which `advice` has a text to this text. The names are reduced to lower-case letters without
    separators.
    """
    return _table("instead")


@cache
def listed() -> dict[str, str]:
    """Map each name of no_equivalent.txt, reduced to lower-case letters, to the name with `_` between its words."""
    out: dict[str, str] = {}
    for kind in ("none", "instead", "left"):
        for phrase, _ in phrases(kind):
            out.setdefault(_letters(phrase), "_".join(phrase.split()))
    return out


def families() -> tuple[str, ...]:
    """The beginnings of names without an equivalent."""
    return tuple(phrase for phrase, _ in phrases("family"))


def _letters(name: str) -> str:
    return "".join(c for c in name[:80].lower() if c.isalnum())


@cache
def reasons() -> dict[str, str]:
    """The names without an equivalent, each with the reason. A name is written as lower-case letters without
    separators. The names come from no_equivalent.txt, from the arguments that the newest stack has removed, and from
    the importers.
    """
    out = dict(_table("none"))
    for name, known in _of_stacks().items():
        out.setdefault(_letters(name), known)
    for name, known in _table("left").items():
        out.setdefault(name, known)
    return out


def own_reason(name: str) -> str | None:
    """The reason why exactly this name has no equivalent, or None. This reason counts even if the name resembles the
    name of a setting.
    """
    return _table("none").get(_letters(name))


def loose_reason(name: str) -> str | None:
    """The reason why a name has no equivalent. The name may also have the words of a listed name in another order, or a
    listed beginning such as `ema_`. None if no reason is known.
    """
    return own_reason(name) or _with_words("none", name) or _family(name)


def _family(name: str) -> str | None:
    """The reason for a name that begins like a `family` in no_equivalent.txt: the family `ema *` includes
    `ema_momentum`, and the family `critic` includes dotted names such as `critic.optim.lr`. None for any other name.
    """
    segments = [parts(segment) for segment in name[:120].split(".")]
    # a name of a single word is no longer than the family's, and may be a setting
    ends = [len(typed) + (number < len(segments) - 1 or len(typed) > 2) for number, typed in enumerate(segments)]
    found = (_of_family(typed[:end]) for typed, last in zip(segments, ends, strict=True) for end in range(1, last))
    return next((one for one in found if one is not None), None)


def _of_family(typed: tuple[str, ...]) -> str | None:
    return _table("family").get("".join(typed))


def with_words_of_family(name: str) -> str | None:
    """The reason for a name that has the words of a `family` anywhere: `log_to_slack`. None for any other name."""
    typed = parts(name[:80])
    runs = (typed[at:end] for at in range(len(typed)) for end in range(at + 1, len(typed) + 1))
    return next((why for one in runs if (why := _of_family(one)) is not None), None)


def no_such_choice(setting: str, choice: str) -> str:
    """The beginning of the `help` line for a choice that has no equivalent, such as `method ppo`: "it has no
    equivalent, because ...". "" for any other choice.
    """
    why = loose_reason(f"{setting} {choice}")
    return "" if why is None else f"{NO_EQUIVALENT.removeprefix('leave it out: ')}{why}; "


def _of_stacks() -> dict[str, str]:
    """The arguments that the newest stack has removed, and those that xpc never sets, each with the reason."""
    stack = stacks.default()
    missing = {
        name: "transformers has removed it" if why == "no equivalent" else why for name, why in stack.removed.items()
    }
    return {**missing, **stack.omitted()}


def reason(name: str) -> str | None:
    """The reason why a name has no equivalent. None if no reason is known."""
    return reasons().get(_letters(name))


def without_equivalent(message: str, name: str, loosely: bool = True) -> Suggestion | None:
    """The suggestion to leave out a name that has no equivalent in xpc. None for any other name. If `loosely` is true,
    the name may have the words of a listed name in another order, or a listed beginning such as `ema_`.
    """
    why = loose_reason(name) if loosely else own_reason(name)
    return None if why is None else Suggestion("XP101", message, help=NO_EQUIVALENT + why)


def excluded(message: str, name: str) -> Suggestion | None:
    """The suggestion to leave out an argument that the stack has removed or that importers drop; None for other
    names.
    """
    why = reason(name)
    return None if why is None else Suggestion("XP101", message, help=f"leave it out: it has no equivalent ({why})")
