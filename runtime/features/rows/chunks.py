"""Split long texts into rows of `seq` tokens, instead of truncating them to `seq` tokens.

As in trl, a document consists of its tokens and one end token. Each document begins a new row, and is cut every `seq`
tokens. Nothing can be learned from a row of one token, so if the last row would have only one token, it gets two, and
the row before it gets one token less.
"""

from collections.abc import Callable, Mapping
from copy import copy
from itertools import pairwise
from typing import Any

from ...core.errors import say
from ...core.feature import Arguments, Bundle, Feature, Rows
from ...core.token_counts import lengths_of
from ...library_internals.trl_preparation import PART, TOKENS, Prepared


class ChunkedTrainer(Prepared):
    """Trainer methods for a run that splits long texts."""

    def prepare_rows(self, rows: Rows, args: Arguments, packing: bool, name: str, prepare: Callable[..., Any]) -> Any:
        """Tokenize texts completely, split them, and let trl pack the pieces; other rows are prepared as usual."""
        if (args.dataset_text_field or "text") not in rows.column_names:
            return super().prepare_rows(rows, args, packing, name, prepare)
        untruncated = copy(args)
        untruncated.max_length, untruncated.shuffle_dataset = None, False
        pieces, _ = self.split_texts(prepare(rows, untruncated, False, name), args, name)
        return prepare(pieces, args, packing, name)

    def split_texts(self, rows: Rows, args: Arguments, name: str) -> tuple[Any, Any]:
        """Return a pair: the pieces of tokenized texts, each with at most ``args.max_length`` tokens, and the number of
        pieces of each text."""
        import numpy

        columns = [one for one in rows.column_names if one in (*TOKENS, PART)]
        rows = rows.with_format(None).select_columns(columns)
        lengths, most = lengths_of(rows, "input_ids"), args.max_length
        counts = numpy.maximum(-(-lengths // most), 1)
        with args.main_process_first():
            pieces = rows.map(split, batched=True, fn_kwargs={"most": most}, num_proc=args.dataset_num_proc, desc=None)
        long = int((lengths > most).sum())
        if long:
            say(
                f"{long:,} of {len(rows):,} texts ({name}) have more than seq = {most:,} tokens (the longest "
                f"{int(lengths.max()):,}): they are split, and the texts become {len(pieces):,} rows"
            )
        return pieces, counts


def split(rows: Mapping[str, list[Any]], most: int) -> dict[str, list[Any]]:
    """Split tokenized rows. A list is cut in the same way as ``input_ids``; any other value is copied to each piece."""
    starts = [beginnings(len(ids), most) for ids in rows["input_ids"]]
    return {
        name: [
            value[start:end] if isinstance(value, list) else value
            for value, first in zip(values, starts, strict=True)
            for start, end in pairwise([*first, len(value)])
        ]
        for name, values in rows.items()
    }


def beginnings(length: int, most: int) -> list[int]:
    """The positions at which the pieces of a text of ``length`` tokens begin."""
    starts = list(range(0, length, most)) or [0]
    if len(starts) > 1 and length % most == 1 and most > 2:
        starts[-1] -= 1
    return starts


class Chunks(Feature):
    """Hooks for a run that splits long texts."""

    def truncation_limit(self, bundle: Bundle, most: int | None) -> int | None:
        """The length at which rows are truncated. None if all rows are plain texts, because these are split instead. In
        a mixture of formats, rows of other formats are truncated.
        """
        return most if any(one.get("kind") for one in bundle.sources()) else None
