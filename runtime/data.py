"""The training and evaluation sets: sources, their shares, shuffles and the holdout, row for row as published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import sources
from .bundle import Bundle
from .errors import RunError


def build(bundle: Bundle) -> tuple[Any, Any]:
    """The training set and the evaluation set (None without a holdout or an evaluation split).

    Call it under ``main_process_first``: the other processes then find the mapped rows in the cache. Raises RunError.
    """
    import datasets

    datasets.disable_progress_bars()
    data = bundle.data
    parts = [_part(bundle, source) for source in data["sources"]]
    train, evaluation = mix(parts, data["sources"], data["seed"], data["shuffle"], data["holdout"])
    if evaluation is None and data.get("eval_split"):
        held = [_part(bundle, source, data["eval_split"]) for source in data["sources"]]
        evaluation = _joined(held)
    if len(train) == 0:
        raise RunError("the data has no rows to train on")
    return train, evaluation


def _part(bundle: Bundle, source: Mapping[str, Any], split: str | None = None) -> Any:
    stored = sources.load(bundle, source, split)
    lacking = sources.missing_columns(source, list(stored.column_names))
    if lacking:
        raise RunError(lacking)
    text = bundle.arguments.get("dataset_text_field") or "text"
    drop = [column for column in stored.column_names if column not in sources.KEPT]
    return stored.map(
        _convert,
        with_indices=True,
        remove_columns=drop,
        fn_kwargs={"source": dict(source), "system": bundle.data.get("system"), "text": text},
        num_proc=bundle.data.get("workers"),
        desc=None,
    )


def _convert(
    row: Mapping[str, Any], index: int, source: dict[str, Any], system: str | None, text: str
) -> dict[str, Any]:
    return sources.to_row(source, row, index, system, text)


def mix(
    parts: list[Any],
    plans: list[Mapping[str, Any]],
    seed: int,
    shuffle: bool,
    holdout: Mapping[str, Any] | None,
) -> tuple[Any, Any]:
    """The mixture of the alignment handbook and open-r1 (``get_dataset``), row for row.

    A part with a share is shuffled with the seed and its first ``int(rows x share)`` rows are kept; the parts are
    concatenated and shuffled with the seed; the holdout is ``train_test_split`` with the seed. One part without share
    and holdout keeps the order of its file unless ``shuffle``. With ``shuffle`` off nothing is shuffled anywhere.
    """
    taken = [_take(part, plan.get("take"), seed, shuffle) for part, plan in zip(parts, plans, strict=True)]
    whole = _joined(taken)
    if shuffle:
        whole = whole.shuffle(seed=seed)
    if holdout is None:
        return whole, None
    size = int(holdout["rows"]) if "rows" in holdout else float(holdout["fraction"])
    if isinstance(size, int) and size >= len(whole):
        raise RunError(f"the holdout asks for {size} rows, and the data has {len(whole)}")
    try:
        split = whole.train_test_split(test_size=size, seed=seed, shuffle=shuffle)
    except ValueError as error:  # a share of few rows that leaves none on one side
        raise RunError(f"the holdout of {size} cannot be taken from {len(whole)} rows") from error
    return split["train"], split["test"]


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    import datasets

    try:
        return datasets.concatenate_datasets(parts)
    except ValueError as error:
        columns = "; ".join(", ".join(f"{name}: {kind}" for name, kind in part.features.items()) for part in parts)
        raise RunError(f"the sources of the mixture have rows of different kinds ({columns})") from error


def _take(part: Any, take: Mapping[str, Any] | None, seed: int, shuffle: bool) -> Any:
    if take is None:
        return part
    rows = int(take["rows"]) if "rows" in take else int(len(part) * take["fraction"])
    if rows > len(part):
        raise RunError(f"a part of the mixture takes {rows} rows, and has {len(part)}")
    return (part.shuffle(seed=seed) if shuffle else part).select(range(rows))
