"""Rows of several sources: their shares, the holdout, and what is evaluated on, row for row as published."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.bundle import Bundle
from ..core.errors import RunError

Mapped = Callable[..., Any]
"""Gives the mapped rows of a source, of its own split or of the one that is named."""


def build(bundle: Bundle, parts: list[Any], mapped: Mapped) -> tuple[Any, Any]:
    """The training set out of the mapped rows of its sources, and the evaluation set: None, rows, or `Sets` of them."""
    data = bundle.data
    if bundle.uses("mixed_shapes"):
        from . import mixed_shapes

        parts = [mixed_shapes.marked(*one) for one in zip(data["sources"], parts, strict=True)]
        mapped = mixed_shapes.marking(mapped)
    filtered = None
    if bundle.uses("row_filters") and data.get("unique"):
        from .row_filters import repeated

        filtered = repeated
    train, evaluation = mix(parts, data["sources"], data["seed"], _shuffles(bundle), data["holdout"], filtered)
    if evaluation is None and data.get("eval_split"):
        evaluation = _joined([mapped(source, data["eval_split"]) for source in data["sources"]])
    stated = data.get("evaluation")
    if evaluation is None and stated:
        evaluation = _own(bundle, stated, mapped)
    return train, evaluation


def mix(
    parts: list[Any],
    plans: Sequence[Mapping[str, Any]],
    seed: int,
    shuffle: bool,
    holdout: Mapping[str, Any] | None,
    filtered: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """The mixture of the alignment handbook and open-r1 (``get_dataset``), row for row.

    A part with a share is shuffled with the seed and its first ``int(rows x share)`` rows are kept; the parts are
    concatenated and shuffled with the seed; the holdout is ``train_test_split`` with the seed. With ``shuffle`` off
    nothing is shuffled anywhere. ``filtered`` leaves out rows of what the parts hold together.
    """
    taken = [
        _take(_first(part, plan), plan.get("take"), seed, shuffle) for part, plan in zip(parts, plans, strict=True)
    ]
    whole = _joined(taken)
    if filtered is not None:
        whole = filtered(whole)
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


def _first(part: Any, plan: Mapping[str, Any]) -> Any:
    """The rows at the beginning where the source has a ``limit``, and all of fewer."""
    most = plan.get("limit")
    return part if most is None or most >= len(part) else part.select(range(most))


def _take(part: Any, take: Mapping[str, Any] | None, seed: int, shuffle: bool) -> Any:
    if take is None:
        return part
    count = int(take["rows"]) if "rows" in take else int(len(part) * take["fraction"])
    if count > len(part):
        raise RunError(f"a part of the mixture takes {count} rows, and has {len(part)}")
    return (part.shuffle(seed=seed) if shuffle else part).select(range(count))


def _shuffles(bundle: Bundle) -> bool:
    """Whether rows are shuffled before training: those of a mixture, of a share or beside a holdout, as published.

    A whole dataset goes to the trainer as it is, there and here: its sampler draws the rows at random in every epoch.
    KTO's, which keeps their order, gets them shuffled.
    """
    data = bundle.data
    mixed = len(data["sources"]) > 1 or any(one.get("take") for one in data["sources"]) or data["holdout"]
    return bool(data["shuffle"] and (mixed or bundle.plan["method"]["unpaired"]))


def _own(bundle: Bundle, stated: Mapping[str, Any], mapped: Mapped) -> Any:
    """The rows that are evaluated on beside the training data: a share is taken as of a part of the mixture."""
    data, made = bundle.data, Sets()
    for one in stated["sets"]:
        parts = [mapped(source) for source in one["sources"]]
        plans = zip(parts, one["sources"], strict=True)
        taken = [
            _take(_first(part, plan), plan.get("take"), data["seed"], bool(data["shuffle"])) for part, plan in plans
        ]
        made[one["name"]] = _joined(taken)
        if len(made[one["name"]]) == 0:
            raise RunError(f"the evaluation set {one['name']} has no rows")
    return made if stated["named"] else next(iter(made.values()))


class Sets(dict[str, Any]):
    """Several evaluation sets by name, with what the trainers of trl ask of one: those that know of no dictionary map
    and filter all of them (orpo; kto and reward of trl 0.18)."""

    def map(self, *given: Any, **named: Any) -> "Sets":
        """Each set, mapped."""
        return Sets({name: rows.map(*given, **named) for name, rows in self.items()})

    def filter(self, *given: Any, **named: Any) -> "Sets":
        """Each set, filtered."""
        return Sets({name: rows.filter(*given, **named) for name, rows in self.items()})

    @property
    def column_names(self) -> list[str]:
        """Those of the first set: all are of one kind."""
        return list(next(iter(self.values())).column_names)


def joined_sets(parts: list[Any], axis: int = 0) -> Any:
    """``datasets.concatenate_datasets``, of sets too: the kto trainer of trl 0.18 joins columns to its rows so."""
    import datasets

    if not isinstance(parts[0], Sets):
        return datasets.concatenate_datasets(parts, axis=axis)
    return Sets({name: datasets.concatenate_datasets([part[name] for part in parts], axis=axis) for name in parts[0]})
