"""Rows that are already tokenized: token ids, with labels or masks.

trl does not change a row with `input_ids`: it renders nothing and adds no end token. Some versions of trl read
`labels`, others `completion_mask`; a row gets the column that the installed trl reads. Padding is removed; otherwise
the model would attend to it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Rows, Source
from ...core.rows import name
from ...core.token_counts import TokenCounts, lengths_of
from ...library_internals.datasets_rows import rearranged

MASKS = ("completion_mask", "assistant_masks", "attention_mask")
UNLEARNED = -100
"""The label of a token without loss."""


def to_row(source: Source, row: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Convert a stored row to trl's ``input_ids`` and ``labels`` (or ``completion_mask``), without its padding.

    A token is not learned if its label is -100 or, in a row without labels, if one of its masks is 0. Raises RunError
    with the row's number (from 0) for a row in another format.
    """
    where, parts = f"{name(source)}, row {index}", _parts(source, row)
    ids = _integers(parts["input_ids"], where, "input_ids")
    found = {part: _integers(value, where, part) for part, value in parts.items()}
    wrong = next((part for part, values in found.items() if len(values) != len(ids)), None)
    if wrong is not None:
        raise RunError(f"{where}: {wrong} has {len(found[wrong]):,} entries for {len(ids):,} tokens")
    real = found.pop("attention_mask", [1] * len(ids))
    begin, end = _without_padding(real, where)
    labels = found.pop("labels", None)
    if labels is None:
        del found["input_ids"]
        masked = zip(*found.values(), strict=True) if found else [()] * len(ids)
        labels = [one if all(each) else UNLEARNED for one, each in zip(ids, masked, strict=True)]
    if unexpected := next((one for one in (*ids, *labels) if not 0 <= one < 2**31 and one != UNLEARNED), None):
        raise RunError(f"{where}: {unexpected} is neither a token id nor {UNLEARNED}")
    if UNLEARNED in ids:
        raise RunError(f"{where}: input_ids has {UNLEARNED}, which is a label and no token id")
    return _learned(source["tokens"], ids[begin:end], labels[begin:end], where)


def _parts(source: Source, row: Mapping[str, object]) -> dict[str, object]:
    """The row's `input_ids`, labels and masks, from the columns that the source names or else from columns with the
    usual names.
    """
    first, *others = list(source["columns"] or ())
    if not source.get("only"):
        others = [one for one in ("labels", *MASKS) if one in row]
    return {"input_ids": row[first], **{one if one in MASKS else "labels": row[one] for one in others}}


def _integers(value: object, where: str, part: str) -> list[int]:
    if not isinstance(value, list) or not all(type(one) is int or (part in MASKS and one in (0, 1)) for one in value):
        raise RunError(f"{where}: {part} is not a list of integers")
    if part in MASKS and not {*value} <= {0, 1}:
        raise RunError(f"{where}: {part} has other entries than 0 and 1")
    return list(value)


def _without_padding(real: list[int], where: str) -> tuple[int, int]:
    """Return two positions: that of the first token that is no padding, and that after the last such token. Raises
    RunError for padding between the two."""
    if 1 not in real:
        return 0, 0
    begin, end = real.index(1), len(real) - real[::-1].index(1)
    if 0 in real[begin:end]:
        raise RunError(f"{where}: attention_mask has a 0 between tokens; padding is removed only at the ends")
    return begin, end


def _learned(column: str, ids: list[int], labels: list[int], where: str) -> dict[str, object]:
    """The row with its labels in the trainer's ``column``, or without this column if the trainer learns every token."""
    if column == "labels":
        return {"input_ids": ids, "labels": labels}
    other = next((one for one, label in zip(ids, labels, strict=True) if label not in (one, UNLEARNED)), None)
    if other is not None:
        raise RunError(
            f"{where}: the label of the token {other} is another token, and the installed trl cannot train on such "
            "labels"
        )
    if not column and UNLEARNED in labels:
        raise RunError(
            f"{where}: the row excludes a token from the loss, but the installed trl learns every token with packing, "
            "padding_free or Liger"
        )
    mask = [int(one != UNLEARNED) for one in labels]
    return {"input_ids": ids, "completion_mask": mask} if column else {"input_ids": ids}


def _convert(
    convert: Callable[..., dict[str, object]], source: Source, row: Mapping[str, object], index: int, **how: object
) -> dict[str, object]:
    return to_row(source, row, index) if source["shape"] == "tokens" else convert(source, row, index, **how)


class GivenTokens(TokenCounts):
    """Counts the tokens of rows that are already tokenized, before the trainer truncates or packs these rows."""

    def mapped(self, real: Callable[..., Any], rows: Rows, *args: Any, **kwargs: object) -> object:
        """Called in place of ``Dataset.map`` while the trainer prepares its rows: before the rows are packed, count
        their tokens."""
        if not self.has_counts and "input_ids" in rows.column_names:
            self.given(rows)
        return super().mapped(real, rows, *args, **kwargs)

    def given(self, rows: Rows) -> None:
        """Count the rows of token ids (``rows``) that the trainer gets."""
        import numpy

        plain = rows.with_format(None)
        lengths = (
            numpy.asarray(list(map(len, plain["input_ids"]))) if rearranged(rows) else lengths_of(rows, "input_ids")
        )
        self.count(lengths[None], numpy.maximum(lengths - (lengths if self.most is None else self.most), 0)[None])


class TokenRows(Feature):
    """Hooks for a run on rows that are already tokenized."""

    def row_converter(self, bundle: Bundle, convert: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """For rows of token ids, ``to_row`` of this module; for other rows, ``convert``."""
        return partial(_convert, convert)

    def row_types(
        self, bundle: Bundle, source: Source, stored: Rows, dropped: Sequence[str],
        make: Callable[[Any, int], dict[str, Any]],
    ) -> dict[str, object] | None:  # fmt: skip
        """The types of the columns. Rows that the trainer tokenizes have the same types, so that both kinds of rows can
        be joined.
        """
        from datasets import Features, List, Value

        made = make(stored[0], 0) if len(stored) else {}
        if "input_ids" not in made:
            return None
        types: dict[str, Any] = Features({one: List(Value("int32" if one == "input_ids" else "int64")) for one in made})
        return types

    def source_mapped(self, bundle: Bundle, source: Source, rows: Rows) -> Rows:
        """Check that all ids and labels are in the model's vocabulary. Raises RunError with the row."""
        if source["shape"] == "tokens":
            size = _vocabulary(bundle)
            for column in ("input_ids", "labels"):
                if column in rows.column_names and (found := _too_large(rows.data.column(column), size)) is not None:
                    raise RunError(
                        f"{name(source)}, row {found[0]}: {column} has the token id {found[1]:,}, and the model has "
                        f"{size:,} tokens; tokenize the rows with this model's tokenizer"
                    )
        return rows

    def token_counter(self, bundle: Bundle, counted: type[TokenCounts]) -> type[TokenCounts]:
        """The counter for rows that the trainer does not tokenize."""
        return GivenTokens

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: Rows) -> None:
        """Count the rows, unless `GivenTokens.mapped` has counted them before the trainer truncated or packed them."""
        if isinstance(counted, GivenTokens) and not counted.has_counts:
            counted.given(prepared)


def _vocabulary(bundle: Bundle) -> int:
    """The number of tokens that the model embeds, including the tokens that the bundle adds."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(bundle.model_path, **bundle.loading())
    size = int(config.get_text_config().vocab_size)
    return size + len(bundle.plan["tokenizer"].get("added") or ())


def _too_large(column: object, size: int) -> tuple[int, int] | None:
    """The number of the first row that has a token id outside the vocabulary, and this id."""
    import pyarrow.compute as compute

    large = compute.greater_equal(compute.list_flatten(column), size)
    at = compute.index(large, True).as_py()
    if at < 0:
        return None
    return compute.list_parent_indices(column)[at].as_py(), compute.list_flatten(column)[at].as_py()
