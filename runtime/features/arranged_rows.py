"""What becomes of the rows of the sources before training: mixed, shuffled, held out, taken apart, left out."""

from collections.abc import Callable
from typing import Any

from ..core import data_sources
from ..core.bundle import Bundle
from ..core.errors import RunError


def before_rows(bundle: Bundle, tokenizer: object) -> list[str]:
    """A sentence on each source whose split that is evaluated on cannot be read, or has no rows."""
    found, split = [], bundle.data.get("eval_split")
    for source in bundle.data["sources"] if split else ():
        try:
            if not data_sources.load(bundle, source, split, first=1):
                found.append(f"{data_sources.name(source)} has no rows in {split}")
        except RunError as error:
            found.append(str(error))
    return found


def arranged(
    bundle: Bundle, sets: tuple[Any, Any], parts: list[Any], mapped: Callable[..., Any], tokenizer: Any
) -> tuple[Any, Any]:
    """The training set and the evaluation set out of the mapped rows of each source. Raises RunError.

    ``sets`` are the rows of the first source alone. ``mapped`` gives the rows of a source, of its own split or of the
    one that is named.
    """
    train, evaluation = sets
    if bundle.uses("mixture"):
        from . import mixture

        train, evaluation = mixture.build(bundle, parts, mapped)
    elif bundle.uses("row_filters") and bundle.data.get("unique"):
        from . import row_filters

        train = row_filters.repeated(train)
    if bundle.uses("kto_rows"):
        from . import kto_rows

        data = bundle.data
        train = kto_rows.apart(train if bundle.uses("mixture") else kto_rows.shuffled(train, data), data)
        evaluation = _each(evaluation, lambda rows, _: kto_rows.apart(rows, data))
    if bundle.uses("row_filters") and len(train) > 0:
        from . import row_filters

        train = row_filters.fitting(bundle, train, tokenizer, "train on")
        evaluation = _each(evaluation, lambda rows, use: row_filters.fitting(bundle, rows, tokenizer, use))
    return train, evaluation


def _each(evaluation: Any, change: Callable[[Any, str], Any]) -> Any:
    """The evaluation set, changed; of several each, with its name in the words for what it is used for."""
    if isinstance(evaluation, dict):
        return type(evaluation)({name: change(rows, f"evaluate on ({name})") for name, rows in evaluation.items()})
    return None if evaluation is None else change(evaluation, "evaluate on")
