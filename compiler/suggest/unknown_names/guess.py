"""Guess which setting an unknown name stands for, from the name and the clause that contains it."""

from __future__ import annotations

import re

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.suggest.components import HEADS, after_component
from xpc.compiler.suggest.known_names import NEVER_LEGAL
from xpc.compiler.suggest.likeness import one_mistake, parts, typo_of, words
from xpc.compiler.suggest.meaning import SAME, Meaning, meaning, name_of_four, shares_word
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.tables import mapped
from xpc.compiler.suggest.unknown_names.case import is_in
from xpc.grammar.record import evolve
from xpc.grammar.tree import List, Number

TYPO = 0.9
"""A name counts as a typo of a known name only if their similarity (from 0 to 1) is at least this."""
NEAR = SAME - 0.01
"""The similarity that a name and a setting get if the name misspells or shortens the setting's name."""


def best_guess(unknown: UnknownName) -> Meaning | None:
    """The setting that a name most likely stands for. The functions below are called one after another, and each
    function may replace the guess of the functions before it.
    """
    guess = meaning(unknown.name, unknown.clause, valued=unknown.node is not None)
    if guess is not None and _turns_on_another(unknown, guess):
        guess = None
    if unknown.clause is None:
        return _of_a_stated_clause(unknown, guess) or _after_component(unknown, guess)
    for better in (_of_the_same_name, _twin_in_the_clause, _with_a_shared_word, _misspelt_in_the_clause):
        guess = better(unknown.name, unknown.clause, guess)
    return guess


def _turns_on_another(unknown: UnknownName, guess: Meaning) -> bool:
    """Whether an inexact guess would turn on a feature that the spec does not mention: `max_lr_ratio` does not mean
    `lora(lr_ratio=...)`.
    """
    block, _, last = guess.path.rpartition(".")
    row = schema.BY_PATH.get(block)
    sure = guess.likeness >= SAME or one_mistake(unknown.name, last)
    return not sure and row is not None and row.kind is FLAG and row.name not in unknown.label.source.text.lower()


def _of_a_stated_clause(unknown: UnknownName, guess: Meaning | None) -> Meaning | None:
    """The setting that a name means in a clause that the spec states: `n` next to `method grpo` is `generations`."""
    stated = re.findall(r"^(method|optimizer|schedule)[ \t]+(\w+)", unknown.label.source.text, re.MULTILINE)
    own = guess is not None and guess.own and guess.likeness >= SAME
    ways = [f"{word} {unknown.name}" for clause, head in stated for word in (head, clause) if not own]
    found = (meaning(one, exact=True) for one in ways)
    method = method_of(unknown.label.source.text)
    rows = ((one, schema.BY_PATH[one.path]) for one in found if one is not None and one.path in schema.BY_PATH)
    return next((one for one, row in rows if "." in row.path and (not row.methods or method in row.methods)), None)


def _after_component(unknown: UnknownName, guess: Meaning | None) -> Meaning | None:
    """If a name begins with a word such as `rollout`, prefer a setting of the clause that this word means:
    `rollout_max_tokens` is `max_completion` of `method`.
    """
    numbered = guess is not None and guess.path in HEADS and isinstance(unknown.node, Number | List)
    sure = guess is not None and guess.likeness >= SAME and not numbered
    return guess if sure else after_component(unknown.name) or guess


def _of_the_same_name(name: str, clause: str, guess: Meaning | None) -> Meaning | None:
    """If the guess is a nested setting or the clause itself, prefer a setting with exactly this name: `max_len` in
    `method grpo` means `seq`, and not `vllm(max_len=...)`; `learning_rate` in `schedule` means `optimizer.lr`, and not
    the schedule.
    """
    nested = guess is not None and not is_in(guess.path, clause) and (guess.path.count(".") > 1 or guess.path == clause)
    return meaning(name, exact=True) or guess if nested else guess


def _twin_in_the_clause(name: str, clause: str, guess: Meaning | None) -> Meaning | None:
    """Prefer a setting of the clause to a setting of the same name in another clause: `per_device` in `eval` means
    `eval.micro`, and not `batch.micro`. The guess stays if the name begins with the other clause's name, or has a word
    of another clause or of the training: `log_interval` and `train_batch_size` in `eval`.
    """
    if guess is None or is_in(guess.path, clause):
        return guess
    home, _, last = guess.path.rpartition(".")
    own = f"{clause}.{last}"
    homes = {mapped("components").get(one, clause) for one in parts(name)} - {clause, clause.partition(".")[0]}
    other = bool(homes) or not {*words(home.rpartition(".")[2])}.isdisjoint(words(name)[:1])
    other = other or (last == "name" and last not in parts(name))  # `hf_repo` in `track` is `hub(name=...)`
    of_training = clause == "eval" and not {"train", "training"}.isdisjoint(parts(name))
    return guess if own not in schema.BY_PATH or other or of_training else evolve(guess, path=own)


def _with_a_shared_word(name: str, clause: str, guess: Meaning | None) -> Meaning | None:
    """Drop the guess if it is a setting of another clause whose name shares no word with the unknown name: `notes` in
    `track` does not mean `nodes`.
    """
    if guess is None or guess.likeness >= TYPO or is_in(guess.path, clause):
        return guess
    return guess if shares_word(name, guess.path) else None


def _misspelt_in_the_clause(name: str, clause: str, guess: Meaning | None) -> Meaning | None:
    """If the unknown name is a misspelt or shortened setting of the clause, prefer this setting to the guess so far:
    `drop` in `lora` is `dropout`. The setting may also be in a block of the clause: `privat` in `save` is
    `hub(private)`.
    """
    if guess is not None and guess.likeness >= SAME:
        return guess
    children = [row.name for row in schema.children(clause) if row.path not in NEVER_LEGAL]
    begun = [one for one in children if one.startswith(name)]
    short = begun[0] if len(begun) == 1 and len(name) > 2 else None
    near = typo_of(name, children) or name_of_four(name, children) or short
    if near is not None or guess is not None:
        return guess if near is None else Meaning(f"{clause}.{near}", "", NEAR, own=True)
    rows = [row for row in schema.TABLE if row.path.startswith(f"{clause}.") and row.path.count(".") > 1]
    inner = {row.name: row.path for row in rows}
    deep = typo_of(name, inner)
    return None if deep is None else Meaning(inner[deep], "", NEAR, own=True)
