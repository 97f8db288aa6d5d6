"""Mix several sources: shares, the holdout, and evaluation sets. Published mixtures are reproduced row for row."""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from ...core import data_sources
from ...core.errors import RunError, say
from ...core.feature import Bundle, Feature, Rows, RowSets, Source, Tokenizer
from ...core.rows import FIELDS, KEPT, name
from .evaluation_sets import Sets

Load = Callable[..., Rows]
"""A function of a source, and optionally a split, that returns the converted rows."""


class Mixture(Feature):
    """Hooks for a run with several sources, shares, removal of duplicates, or evaluation rows."""

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Check that each source has rows in the evaluation split."""
        found, split = [], bundle.data.get("eval_split")
        for source in bundle.data["sources"] if split else ():
            try:
                if not data_sources.load(bundle, source, split, first=1):
                    found.append(f"{name(source)} has no rows in {split}")
            except RunError as error:
                found.append(str(error))
        return found

    def rows_mapped(
        self, bundle: Bundle, sets: RowSets, parts: list[Rows], load: Load, tokenizer: Tokenizer
    ) -> RowSets:
        """Return a pair: the mixed rows of all sources, and the evaluation set (None, rows, or `Sets`)."""
        return build(bundle, parts, load, mix)


def build(bundle: Bundle, parts: list[Rows], load: Load, mix: Callable[..., RowSets]) -> RowSets:
    """Return a pair: the training set, made from the converted rows of its sources, and the evaluation set."""
    data = bundle.data
    filtered = repeated if data.get("unique") else None
    train, evaluation = mix(parts, data["sources"], data["seed"], _shuffles(bundle), data["holdout"], filtered)
    if evaluation is None and data.get("eval_split"):
        evaluation = joined([load(source, data["eval_split"]) for source in data["sources"]])
    stated = data.get("evaluation")
    if evaluation is None and stated:
        evaluation = _evaluation_sets(bundle, stated, load)
    return train, evaluation


def mix(
    parts: list[Rows],
    plans: Sequence[Source],
    seed: int,
    shuffle: bool,
    holdout: Mapping[str, Any] | None,
    filtered: Callable[[Rows], Rows] | None = None,
) -> RowSets:
    """Mix sources exactly as ``get_dataset`` of the alignment handbook and of open-r1 does, row for row.

    ``parts`` are the rows of each source. A part with a share is shuffled with the seed, and its first ``int(rows x
    share)`` rows are kept. The parts are concatenated and shuffled with the seed. ``train_test_split`` with the seed
    makes the holdout. Without ``shuffle``, nothing is shuffled. ``filtered`` drops rows from the concatenated parts.
    """
    taken = [selected(part, plan, seed, shuffle) for part, plan in zip(parts, plans, strict=True)]
    rows = joined(taken)
    if filtered is not None:
        rows = filtered(rows)
    if shuffle:
        rows = rows.shuffle(seed=seed)
    if holdout is None:
        return rows, None
    size = int(holdout["rows"]) if "rows" in holdout else float(holdout["fraction"])
    if isinstance(size, int) and size >= len(rows):
        raise RunError(f"the holdout asks for {size} rows, but the data has only {len(rows)}")
    try:
        split = rows.train_test_split(test_size=size, seed=seed, shuffle=shuffle)
    except ValueError as error:  # the training rows or the holdout would be empty
        raise RunError(f"the holdout of {size} cannot be taken from {len(rows)} rows") from error
    return split["train"], split["test"]


def joined(parts: list[Rows]) -> Any:
    """Concatenate the rows of all parts in order. Raises RunError if their columns have different types."""
    if len(parts) == 1:
        return parts[0]
    import datasets

    try:
        return datasets.concatenate_datasets(_one_type(parts))
    except ValueError as error:
        raise RunError(f"the sources of the mixture have rows of different kinds: {_different(parts)}") from error


def _different(parts: Sequence[Any]) -> str:
    """The first column whose type differs between two sources, or that only some sources have."""
    first: dict[str, tuple[int, Any]] = {}
    for number, part in enumerate(parts):
        for column, kind in part.features.items():
            other, known = first.setdefault(column, (number, kind))
            if kind != known:
                return (
                    f"the column {column!r} is {str(known)[:80]} in source {other} and {str(kind)[:80]} in source "
                    f"{number} (counted from 0); write it with one type, or leave it out with `columns`"
                )
    columns = "; ".join(", ".join(part.column_names) for part in parts)
    return f"their columns are {columns}"


def _one_type(parts: list[Rows]) -> list[object]:
    """Give all messages one type: if only some parts have messages with the key `FIELDS`, the messages of all parts get
    this key. A column for the chat template, such as `tools`, becomes JSON text if its types in the parts differ."""
    for column in KEPT:
        if len({str(part.features[column]) for part in parts if column in part.features}) > 1:
            parts = [_as_text(part, column) if column in part.features else part for part in parts]
    wide: dict[str, object] = {}
    for part in parts:
        turns = {name: getattr(kind, "feature", None) for name, kind in part.features.items()}
        wide |= {name: part.features[name] for name, one in turns.items() if isinstance(one, dict) and FIELDS in one}
    out = []
    for part in parts:
        features = part.features.copy()
        features.update({name: kind for name, kind in wide.items() if name in features})
        out.append(part if features == part.features else part.cast(features))
    return out


def _as_text(part: Rows, column: str) -> Rows:
    from datasets import Value

    def text(row: Mapping[str, Any]) -> dict[str, Any]:
        value = row[column]
        written = value if value is None or isinstance(value, str) else json.dumps(value)
        return {column: written}

    features = part.features.copy()
    features[column] = Value("string")
    return part.map(text, features=features, desc=None)


def selected(part: Rows, plan: Source, seed: int, shuffle: bool) -> Rows:
    """The rows that ``take`` selects from the first ``limit`` rows of a source."""
    most = plan.get("limit")
    first = part if most is None or most >= len(part) else part.select(range(most))
    return _take(first, plan.get("take"), seed, shuffle)


def _take(part: Rows, take: Mapping[str, Any] | None, seed: int, shuffle: bool) -> Rows:
    if take is None:
        return part
    count = int(take["rows"]) if "rows" in take else int(len(part) * take["fraction"])
    if count > len(part):
        raise RunError(f"`take` asks for {count} rows of a source that has only {len(part)}")
    return (part.shuffle(seed=seed) if shuffle else part).select(range(count))


def _shuffles(bundle: Bundle) -> bool:
    """Whether rows are shuffled before training: if there is a mixture, a share or a holdout, as in the published
    recipes.

    A complete dataset is passed to the trainer unchanged, as in the recipes, because the trainer's sampler shuffles
    every epoch. KTO's trainer does not shuffle, so its rows are shuffled before.
    """
    data = bundle.data
    mixed = len(data["sources"]) > 1 or any(one.get("take") for one in data["sources"]) or data["holdout"]
    return bool(data["shuffle"] and (mixed or bundle.plan["method"]["unpaired"]))


def _evaluation_sets(bundle: Bundle, stated: Mapping[str, Any], load: Load) -> Any:
    """The evaluation sets that the spec states separately from the training data. Sources of a set may have shares."""
    data, made = bundle.data, Sets()
    for one in stated["sets"]:
        parts = [load(source) for source in one["sources"]]
        plans = zip(parts, one["sources"], strict=True)
        taken = [selected(part, plan, data["seed"], bool(data["shuffle"])) for part, plan in plans]
        made[one["name"]] = joined(taken)
        if len(made[one["name"]]) == 0:
            raise RunError(f"the evaluation set {one['name']} has no rows")
    return made if stated["named"] else next(iter(made.values()))


def repeated(rows: Rows, seen: set[bytes] | None = None) -> Rows:
    """The rows without duplicates (rows that are equal in every converted column). Prints how many are dropped.

    ``seen`` has the digests of other sources' rows; a row that equals one of these is also a duplicate. The digests of
    ``rows`` are added to ``seen``.
    """
    seen = set() if seen is None else seen
    kept: list[int] = []
    for index, row in enumerate(rows):
        key = sha256(json.dumps(row, sort_keys=True, default=str).encode()).digest()
        if key not in seen:
            seen.add(key)
            kept.append(index)
    if len(kept) == len(rows):
        return rows
    say(f"{len(rows) - len(kept):,} of {len(rows):,} rows are left out, because they equal earlier rows")
    return rows.select(kept)
