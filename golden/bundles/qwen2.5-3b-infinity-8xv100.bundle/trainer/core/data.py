"""The training and evaluation sets: sources, their shares, shuffles and the holdout, row for row as published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..features import row_filters
from . import data_sources, rows, template_check
from .bundle import Bundle
from .errors import RunError


def build(bundle: Bundle, tokenizer: Any = None) -> tuple[Any, Any]:
    """The training set and the evaluation set: None, rows, or `Sets` of them where they are named.

    The tokenizer says whether there is a chat template, and how long a prompt is. Call it on the main process first:
    the others then find the mapped rows in the cache. Raises RunError.
    """
    import datasets

    datasets.disable_progress_bars()
    data = bundle.data
    parts = [_heard(bundle, source, tokenizer) for source in data["sources"]]
    unique = bool(data.get("unique"))
    train, evaluation = mix(parts, data["sources"], data["seed"], _shuffles(bundle), data["holdout"], unique)
    if evaluation is None and data.get("eval_split"):
        held = [_heard(bundle, source, tokenizer, data["eval_split"]) for source in data["sources"]]
        evaluation = _joined(held)
    if evaluation is None and data.get("evaluation"):
        evaluation = _own(bundle, data["evaluation"], tokenizer)
    if len(train) == 0:
        raise RunError("the data has no rows to train on")
    train = _fitting(bundle, train, tokenizer, "train on")
    if isinstance(evaluation, Sets):
        kept = {name: _fitting(bundle, rows, tokenizer, f"evaluate on ({name})") for name, rows in evaluation.items()}
        evaluation = Sets(kept)
    elif evaluation is not None:
        evaluation = _fitting(bundle, evaluation, tokenizer, "evaluate on")
    return train, evaluation


class Sets(dict[str, Any]):
    """Several evaluation sets by name, with what the trainers of trl ask of one: those that know of no dictionary map
    and filter all of them (orpo; kto and reward of trl 0.18)."""

    def map(self, *given: Any, **named: Any) -> Sets:
        """Each set, mapped."""
        return Sets({name: rows.map(*given, **named) for name, rows in self.items()})

    def filter(self, *given: Any, **named: Any) -> Sets:
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


def _own(bundle: Bundle, stated: Mapping[str, Any], tokenizer: Any) -> Any:
    """The rows that are evaluated on beside the training data: a share is taken as of a part of the mixture."""
    data, made = bundle.data, Sets()
    for one in stated["sets"]:
        parts = [_heard(bundle, source, tokenizer) for source in one["sources"]]
        plans = zip(parts, one["sources"], strict=True)
        taken = [_take(part, plan.get("take"), data["seed"], bool(data["shuffle"])) for part, plan in plans]
        made[one["name"]] = _joined(taken)
        if len(made[one["name"]]) == 0:
            raise RunError(f"the evaluation set {one['name']} has no rows")
    return made if stated["named"] else next(iter(made.values()))


def _fitting(bundle: Bundle, rows: Any, tokenizer: Any, use: str) -> Any:
    """The rows as the trainer takes them: pairs of kto apart, none with too long a prompt, none too short."""
    data = bundle.data
    if bundle.method == "kto" and "chosen" in rows.column_names:
        rows = _unpaired(rows, data)
    if data.get("max_prompt") is not None:
        rows = row_filters.long_prompts(rows, tokenizer, data["max_prompt"], use)
    if data.get("min_tokens") is not None:
        rows = row_filters.short_rows(rows, tokenizer, data["min_tokens"], use)
    return rows


def _shuffles(bundle: Bundle) -> bool:
    """Whether rows are shuffled before training: those of a mixture, of a share or beside a holdout, as published.

    A whole dataset goes to the trainer as it is, there and here: its sampler draws the rows at random in every epoch.
    KTO's, which keeps their order, gets them shuffled.
    """
    data = bundle.data
    mixed = len(data["sources"]) > 1 or any(one.get("take") for one in data["sources"]) or data["holdout"]
    return bool(data["shuffle"] and (mixed or bundle.method == "kto"))


def _unpaired(pairs: Any, data: Mapping[str, Any]) -> Any:
    """Both answers of each pair as rows of their own, shuffled unless the order of the files is to stay.

    trl would do it, too, but a thousand chosen answers before a thousand rejected ones, in the order of which KTO is
    then trained (trl 1.16, KTOTrainer._prepare_dataset and train_sampling_strategy "sequential").
    """
    apart = pairs.map(_both, batched=True, remove_columns=["chosen", "rejected"], desc=None)
    return apart.shuffle(seed=data["seed"]) if data["shuffle"] else apart


def _both(pairs: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {"completion": [], "label": []}
    rest = [name for name in pairs if name not in ("chosen", "rejected")]
    for name in rest:
        out[name] = [value for value in pairs[name] for _ in range(2)]
    for chosen, rejected in zip(pairs["chosen"], pairs["rejected"], strict=True):
        out["completion"] += [chosen, rejected]
        out["label"] += [True, False]
    return out


def _heard(bundle: Bundle, source: Mapping[str, Any], tokenizer: Any, split: str | None = None) -> Any:
    """The mapped rows of a source. Raises RunError for a turn that the chat template leaves out."""
    part = _part(bundle, source, tokenizer is None or bool(tokenizer.chat_template), split)
    why = template_check.unheard(part, tokenizer, data_sources.name(source))
    if why is not None:
        raise RunError(why if split is None else f"{why} (split {split})")
    return part


def _part(bundle: Bundle, source: Mapping[str, Any], chat: bool, split: str | None = None) -> Any:
    stored = data_sources.load(bundle, source, split)
    lacking = data_sources.missing_columns(source, list(stored.column_names))
    if lacking:
        raise RunError(lacking)
    text = bundle.arguments.get("dataset_text_field") or "text"
    how = {"system": bundle.data.get("system"), "text": text, "method": bundle.method, "chat": chat}
    try:
        return stored.map(
            _convert,
            with_indices=True,
            remove_columns=data_sources.dropped(source, stored.column_names, bundle.method),
            fn_kwargs={"source": dict(source), "how": how},
            num_proc=bundle.data.get("workers"),
            desc=None,
        )
    except UnicodeDecodeError as error:  # the readers take what only its letters show
        raise RunError(data_sources.unreadable(bundle, source, split, error)) from error


def _convert(row: Mapping[str, Any], index: int, source: dict[str, Any], how: dict[str, Any]) -> dict[str, Any]:
    return rows.to_row(source, row, index, **how)


def mix(
    parts: list[Any],
    plans: list[Mapping[str, Any]],
    seed: int,
    shuffle: bool,
    holdout: Mapping[str, Any] | None,
    unique: bool = False,
) -> tuple[Any, Any]:
    """The mixture of the alignment handbook and open-r1 (``get_dataset``), row for row.

    A part with a share is shuffled with the seed and its first ``int(rows x share)`` rows are kept; the parts are
    concatenated and shuffled with the seed; the holdout is ``train_test_split`` with the seed. With ``shuffle`` off
    nothing is shuffled anywhere. ``unique`` leaves out the repetitions of what the parts hold together.
    """
    taken = [_take(part, plan.get("take"), seed, shuffle) for part, plan in zip(parts, plans, strict=True)]
    whole = _joined(taken)
    if unique:
        whole = row_filters.repeated(whole)
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
    count = int(take["rows"]) if "rows" in take else int(len(part) * take["fraction"])
    if count > len(part):
        raise RunError(f"a part of the mixture takes {count} rows, and has {len(part)}")
    return (part.shuffle(seed=seed) if shuffle else part).select(range(count))
