"""Override how trl's SFT trainer tokenizes rows (trl 0.18 to 1.16)."""

from collections.abc import Callable
from typing import Any

TOKENS = ("input_ids", "labels", "completion_mask", "assistant_masks")
"""Names of columns with tokens and masks in the trainers of trl 0.18 to 1.16."""
PART = "part"
"""A column with the format of each row. It exists only while the rows of each format are tokenized separately."""


class Prepared:
    """Trainer methods for a custom tokenization of rows."""

    def prepare_rows(self, rows: Any, args: Any, packing: bool, name: str, prepare: Callable[..., object]) -> object:
        """The tokenized rows; ``prepare(rows, args, packing, name)`` is trl's method that tokenizes rows."""
        return prepare(rows, args, packing, name)

    def split_texts(self, rows: Any, args: Any, name: str) -> tuple[Any, Any]:
        """Return a pair: the rows into which texts are split, and each text's number of rows (None if unsplit)."""
        return rows, None

    def _prepare_dataset(
        self, dataset: Any, processing_class: Any, args: Any, packing: bool, formatting_func: Any, dataset_name: str
    ) -> Any:
        def prepare(rows: object, args: Any, packing: bool, name: str) -> object:
            return super(Prepared, self)._prepare_dataset(  # type: ignore[misc]
                rows, processing_class, args, packing, formatting_func, name
            )

        return self.prepare_rows(dataset, args, packing, dataset_name, prepare)
