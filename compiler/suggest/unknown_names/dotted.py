"""Suggest what to write for a name with dots, as in Hydra and nested files: `validation_ds.micro_batch_size`."""

from __future__ import annotations

from xpc.compiler.language.advisor import Suggestion
from xpc.compiler.suggest.components import another_part, by_parent, of_evaluation
from xpc.compiler.suggest.unknown_names.case import Case, settings_of
from xpc.compiler.suggest.unknown_names.setting import of_guess


def is_unclear_path(case: Case) -> bool:
    """Whether a name contains dots, and the complete name is not known: `trainer.nnodes`."""
    return "." in case.name and not case.exact


def key_of_a_component(case: Case) -> Suggestion | None:
    """Handle a dotted name in which a part before the last decides the clause: `validation_ds.micro_batch_size` is
    `eval.micro`.
    """
    guess = by_parent(case.name) if is_unclear_path(case) else None
    return None if guess is None else of_the_run(case, of_guess(case.unknown, guess))


def key_of_evaluation(case: Case) -> Suggestion | None:
    """Handle a dotted name such as `validation_ds.global_batch_size`: a part before the last is about evaluation, so
    the name does not mean a setting of the training.
    """
    return case.says(settings_of("eval")) if is_unclear_path(case) and of_evaluation(case.name) else None


def of_the_run(case: Case, found: Suggestion) -> Suggestion:
    """Drop the edit of a suggestion for a dotted name that may be about another object than the run: `teachers.weight`
    is no weight decay.
    """
    other = another_part(case.name)
    if not other or not (found.edit or found.elsewhere) or not found.help.startswith("write `"):
        return found
    form = found.edit if found.replaces_value or not found.edit else f"{found.edit} = {case.typed}"
    help = f"write `{form}`" if form else found.help
    return case.says(f"{help}, if `{other[:60]}` is a part of the run itself")
