"""For a run that learns only some tokens: count the rows in which no token is learned."""

from ...core.errors import say
from ...core.feature import Bundle, Feature, Rows
from ...core.token_counts import TokenCounts
from ...library_internals.datasets_rows import rearranged

IGNORED = -100
"""The label of a token that is not learned."""


class LossMask(Feature):
    """Hooks for a run with a loss mask."""

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: Rows) -> None:
        """Count the rows in which every token is masked: trl 0.18 does not drop such rows, and no version of trl drops
        them after packing."""
        import pyarrow.compute

        names = prepared.column_names
        mask = next((name for name in ("assistant_masks", "completion_mask", "labels") if name in names), None)
        if mask is None or rearranged(prepared):
            return
        trained = 0
        for chunk in prepared.data.column(mask).chunks:
            marks = pyarrow.compute.list_flatten(chunk)
            ones = pyarrow.compute.not_equal(marks, IGNORED if mask == "labels" else 0)
            rows = pyarrow.compute.list_parent_indices(chunk).filter(ones)
            trained += pyarrow.compute.count_distinct(rows).as_py()
        if bundle.arguments.get("packing") and trained:
            return  # a dropped packed sequence had several rows, so their number is unknown
        counted.unlearned = len(prepared) - trained
        if counted.unlearned:
            say(f"{counted.unlearned:,} of {len(prepared):,} rows have no learned token within seq and add no loss")
