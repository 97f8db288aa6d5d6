"""Rows that are flattened instead of padded (`padding_free`): truncated to `seq` tokens."""

from collections.abc import Callable
from copy import copy
from typing import Any

from ...core.feature import Arguments, Bundle, Feature, Model, Rows
from ...library_internals.trl_preparation import Prepared


class Flattened(Feature):
    """Hooks for a run whose rows are flattened. trl 1.16 refuses `max_length` in the arguments of such a run."""

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Tell `FlattenedTrainer` the length."""
        options["args"].longest = bundle.run["seq"]

    def truncation_limit(self, bundle: Bundle, limit: int | None) -> int | None:
        """The bundle's `seq`."""
        return bundle.run["seq"]


class FlattenedTrainer(Prepared):
    """Trainer methods for a run whose rows are flattened."""

    def prepare_rows(self, rows: Rows, args: Arguments, packing: bool, name: str, prepare: Callable[..., Any]) -> Any:
        """Tokenize, truncate and pack rows as trl does for rows that are not flattened."""
        limited = copy(args)
        limited.max_length = args.longest
        return super().prepare_rows(rows, limited, packing, name, prepare)
