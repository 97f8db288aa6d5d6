"""What the preflight looks at for some methods beside the rows: reward functions, a teacher, marks in the template."""

from contextlib import suppress
from functools import cache
from typing import Any

from ..core.bundle import Bundle
from ..core.errors import RunError


def before_rows(bundle: Bundle, tokenizer: Any) -> list[str]:
    """What is wrong whatever the rows are; the tokenizer is None where it could not be loaded."""
    found: list[str] = []
    if bundle.uses("assistant_marks") and tokenizer is not None and tokenizer.chat_template:
        from . import assistant_marks

        found += assistant_marks.missing(tokenizer)
    if bundle.uses("rewards"):
        try:
            _functions(bundle)
        except RunError as error:
            found.append(str(error))
    if bundle.uses("distillation") and tokenizer is not None:
        from . import distillation

        why = distillation.other_tokens(bundle, tokenizer)
        found += [] if why is None else [why]
    return found


def of_columns(bundle: Bundle, columns: list[str]) -> list[str]:
    """Why reward functions cannot be called with the columns of a source."""
    calls: list[str | None] = []
    if bundle.uses("rewards"):
        from . import rewards

        with suppress(RunError):  # told before
            calls = [rewards.problem(bundle, function, columns) for function in _functions(bundle)]
    return [one for one in calls if one]


@cache
def _functions(bundle: Bundle) -> list[Any]:
    """The reward functions; files of the bundle are executed once."""
    if bundle.uses("rewards"):
        from . import rewards

        return list(rewards.functions(bundle))
    return []
