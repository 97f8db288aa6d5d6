"""All names by which a setting is known: xpc's own, trainer arguments, and other tools' names.

The names of a setting are: its own name; the trainer arguments whose value it decides, also under their names in other
versions (`renames` of the stacks); the keys of accelerate and DeepSpeed whose value it decides; and the names that
other tools use (other_names.toml).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache

from xpc.compiler import stacks
from xpc.compiler.language import schema
from xpc.compiler.suggest import tables
from xpc.compiler.suggest.likeness import KnownName, alphabet_of, parts, words
from xpc.grammar.nearest import letters

MODULES = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Za-z])")
"""A pattern for what stands before the name of a class or of a member in Python: `torch.optim.`."""
NEVER_LEGAL = ("strategy.activation_checkpointing",)
"""Settings that are in the language only so that a rule can refuse them with a reason."""


@cache
def known() -> tuple[KnownName, ...]:
    """All names of all settings. The names that xpc itself uses come first."""
    from xpc.compiler.suggest import extra_form as passing

    out: dict[tuple[str, str, str], KnownName] = {}

    def add(name: str, path: str, value: str = "", own: bool = False, argument: bool = False) -> None:
        row = schema.BY_PATH.get(path)
        penalty = 0.0 if row is None else 0.03 * bool(row.methods) + 0.04 * (path.count(".") > 1)
        typed = letters(name)
        one = KnownName(typed, alphabet_of(typed), words(name), path, value, own, penalty, argument, parts(name))
        out.setdefault((typed, path, value), one)

    for row in schema.TABLE:
        if row.path not in NEVER_LEGAL and not row.path.startswith("train."):
            add(row.name, row.path, own=not row.inner)
            # `data_seed` is an argument of the trainer, and not another name of `data.seed`
            if row.path.replace(".", "_") not in passing.names():
                add(row.path, row.path, argument=True)
    for clause in schema.CLAUSES:
        if clause not in schema.BY_PATH and clause != "train":
            add(clause, clause, own=True)
    for name, path in schema.bare_choices().items():
        add(name, path, name, own=True)
    for row in schema.TABLE:
        for argument in row.args if row.path not in NEVER_LEGAL else ():
            add(argument, row.path, argument=True)
    for name, path, value in (*_names_of_settings(), *_target_names(), *_names_of_choices()):
        add(name, path, value)
    return tuple(out.values())


def _names_of_settings() -> Iterator[tuple[str, str, str]]:
    """The names that other tools have for settings. Yields a name, the path of the setting, and the value that the name
    implies.
    """
    for typed, phrases in tables.other_names().items():
        path, _, value = typed.partition("=")
        if path in (*schema.BY_PATH, "train", "data.take", "data.share", "data.columns"):
            yield from ((phrase, path, value) for phrase in phrases)


def _names_of_choices() -> Iterator[tuple[str, str, str]]:
    """Other tools' spellings of choices, but only of those choices that a spec may write alone: `bf16` is short for
    `precision bf16`. Yields a spelling, the path of the setting, and the choice.
    """
    for path, choices in tables.choices().items():
        if schema.BY_PATH[path].bare and path not in ("track", "method.loss", "method.rewards"):
            for choice, phrases in choices.items():
                yield from ((phrase, path, choice) for phrase in phrases if _distinct(phrase))


def _distinct(phrase: str) -> bool:
    """Whether a spelling of a choice is clear without its setting: true for `fa2`; false for `dp` and `auto`, which
    could mean many things.
    """
    common = ("auto", "none", "full", "default", "true", "false", "half", "single", "one gpu", "single gpu")
    typed = letters(phrase)
    return phrase not in common and not typed.isdecimal() and (len(typed) > 3 or (len(typed) == 3 and typed[0] == "f"))


def _target_names() -> Iterator[tuple[str, str, str]]:
    """The names of trainer arguments in other versions, and the keys of accelerate and DeepSpeed. Yields a name, the
    path of the setting that decides it, and "", because the name implies no value.
    """
    from xpc.compiler.language.extras import OWNED, owner

    for stack in stacks.every():
        for old in stack.renamed:
            path = owner("trl", stack.rename(old) or "")
            if path is not None:
                yield old, path, ""
    for library in ("accelerate", "deepspeed"):
        for name, path in OWNED[library].items():
            yield name.rpartition(".")[2], path, ""


@cache
def vocabulary() -> tuple[KnownName, ...]:
    """All words that occur in names of settings and choices."""
    phrases = {phrase for row in schema.TABLE for _, phrase in spellings(row)}
    found = {word for one in known() for word in one.words} | {word for phrase in phrases for word in words(phrase)}
    return tuple(KnownName(word, alphabet_of(word), (), "", "", False, 0.0) for word in found)


@cache
def index() -> tuple[tuple[KnownName, ...], dict[str, list[int]], dict[int, list[int]]]:
    """Return three things: the known names; a mapping from each word to the indices of the names that contain it; and a
    mapping from each length to the indices of the names with this many letters.
    """
    with_word: dict[str, list[int]] = {}
    of_length: dict[int, list[int]] = {}
    for number, one in enumerate(known()):
        of_length.setdefault(len(one.letters), []).append(number)
        for word in one.words:
            with_word.setdefault(word, []).append(number)
    return known(), with_word, of_length


@cache
def spellings(row: schema.Setting) -> tuple[tuple[str, str], ...]:
    """All spellings of the choices of a setting, as pairs of a choice and a spelling of it."""
    out = [(name, name) for name in row.choices]
    for name, phrases in tables.choices().get(row.path, {}).items():
        out += [(name, phrase) for phrase in phrases]
    if row.path == "optimizer":
        out += [name_words for stack in stacks.every() for name_words in stack.optimizers.items()]
    return tuple((name, phrase) for name, phrase in out if name in (row.choices or (name,)))


def known_choice(row: schema.Setting, text: str, legal: Collection[str] = ()) -> str | None:
    """The choice of a setting that `text` spells in another way; `legal` are those that are legal, if not all are. None
    if `text` spells no choice.
    """
    found = (
        name
        for one in (text[:80], MODULES.sub("", text[:80]))
        for name, phrase in (*spellings(row), *((one, one) for one in legal))
        if letters(phrase) == letters(one) or {*words(phrase)} == {*words(one)}
    )
    return next((name for name in found if name in (legal or (name,))), None)
