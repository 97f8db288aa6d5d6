"""Shuffle rows for KTO, whose trainer does not shuffle, and split preference pairs into single answers."""

from collections.abc import Callable, Mapping
from typing import Any

from ...core.feature import Bundle, Feature, Rows, RowSets, Tokenizer


class KtoRows(Feature):
    """Hooks for a run on single answers, each labelled good or bad."""

    def rows_mapped(
        self, bundle: Bundle, sets: RowSets, parts: list[Rows], load: Callable[..., Rows], tokenizer: Tokenizer
    ) -> RowSets:
        """Return the training set and the evaluation sets, with one row per answer."""
        (train, evaluation), data = sets, bundle.data
        if isinstance(evaluation, dict):
            evaluation = type(evaluation)({name: split_pairs(rows, data) for name, rows in evaluation.items()})
        elif evaluation is not None:
            evaluation = split_pairs(evaluation, data)
        return split_pairs(train, data), evaluation


def shuffled(rows: Rows, data: Mapping[str, Any]) -> Rows:
    """The rows of a dataset, shuffled or, if the data must keep its order, unchanged."""
    return rows.shuffle(seed=data["seed"]) if data["shuffle"] else rows


def split_pairs(pairs: Any, data: Mapping[str, object]) -> Any:
    """Split preference pairs into one row per answer and shuffle them; other rows are unchanged.

    trl also splits pairs, but it puts a thousand chosen answers before a thousand rejected answers, and KTO keeps this
    order (trl 1.16, KTOTrainer._prepare_dataset and train_sampling_strategy "sequential").
    """
    if "chosen" not in pairs.column_names:
        return pairs
    rows = pairs.map(_both, batched=True, remove_columns=["chosen", "rejected"], desc=None)
    return shuffled(rows, data)


def _both(pairs: Mapping[str, list[object]]) -> dict[str, list[object]]:
    out: dict[str, list[Any]] = {"completion": [], "label": []}
    rest = [name for name in pairs if name not in ("chosen", "rejected")]
    for name in rest:
        out[name] = [value for value in pairs[name] for _ in range(2)]
    for chosen, rejected in zip(pairs["chosen"], pairs["rejected"], strict=True):
        out["completion"] += [chosen, rejected]
        out["label"] += [True, False]
    return out
