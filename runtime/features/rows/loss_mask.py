"""For a run that learns only some tokens: count the rows in which no token is learned."""

from typing import Any

from ...core.errors import RunError, say
from ...core.feature import Bundle, Feature, Rows, Tokenizer, Trainer
from ...core.token_counts import TokenCounts
from ...library_internals.datasets_rows import rearranged

IGNORED = -100
"""The label of a token that is not learned."""


class LossMask(Feature):
    """Hooks for a run with a loss mask."""

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: Rows) -> None:
        """Count the rows in which every token is masked: trl 0.18 does not drop such rows, and no version of trl drops
        them after packing."""
        trained = _learned(prepared)
        if trained is None or (bundle.arguments.get("packing") and trained):
            return  # a dropped packed sequence had several rows, so their number is unknown
        counted.unlearned = len(prepared) - trained
        if counted.unlearned:
            say(f"{counted.unlearned:,} of {len(prepared):,} rows have no learned token within seq and add no loss")

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Raise RunError if every token of an evaluation set is masked: its loss would be nan."""
        found: Any = trainer.eval_dataset
        for name, rows in (found if isinstance(found, dict) else {"": found}).items():
            if hasattr(rows, "data") and _learned(rows) == 0:  # the rows of a stream are not read here
                where = name and f" in {name}"
                raise RunError(f"nothing is left to evaluate{where}: no token within seq counts in the loss")


def _learned(prepared: Any) -> int | None:
    """The number of rows with a learned token. None if no column says which tokens are learned."""
    import pyarrow.compute

    names = prepared.column_names
    mask = next((name for name in ("assistant_masks", "completion_mask", "labels") if name in names), None)
    if mask is None or rearranged(prepared):
        return None
    trained = 0
    for chunk in prepared.data.column(mask).chunks:
        marks = pyarrow.compute.list_flatten(chunk)
        ones = pyarrow.compute.not_equal(marks, IGNORED if mask == "labels" else 0)
        rows = pyarrow.compute.list_parent_indices(chunk).filter(ones)
        trained += pyarrow.compute.count_distinct(rows).as_py()
    return trained
