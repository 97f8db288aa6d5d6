"""A mixture of rows in several formats. Each row is tokenized and masked according to its own format."""

import sys
from collections.abc import Callable
from copy import copy
from typing import Any

from ...core.feature import Arguments, Bundle, Feature, Rows, Source
from ...core.token_counts import TokenCounts, lengths_of
from ...library_internals.datasets_rows import rearranged
from ...library_internals.trl_modules import replaced
from ...library_internals.trl_preparation import PART, TOKENS, Prepared
from .kinds import KIND


def marked(source: Source, part: Rows) -> Rows:
    """The converted rows of a source, with their format in a column. The format also is a prefix of all other columns'
    names, so that two formats never share a column.
    """
    kind = source["kind"]
    part = part.rename_columns({name: f"{kind}/{name}" for name in part.column_names})
    return part.add_column(KIND, [kind] * len(part))


class MixedShapesTrainer(Prepared):
    """Trainer methods for a run whose rows have several formats."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Call trl's constructor. trl decides by the first row whether all rows are conversations. Here, trl treats
        every row of a mixture as a conversation.
        """
        module = next(sys.modules[one.__module__] for one in type(self).__mro__ if one.__module__.startswith("trl."))
        real = module.is_conversational
        with replaced(module, {"is_conversational": lambda row: KIND in row or real(row)}):
            super().__init__(*args, **kwargs)

    def prepare_rows(self, rows: Rows, args: Arguments, packing: bool, name: str, prepare: Callable[..., Any]) -> Any:
        """Tokenize the rows of each format separately, restore their order, and truncate or pack them together."""
        import datasets
        import numpy

        if KIND not in rows.column_names:
            return super().prepare_rows(rows, args, packing, name, prepare)
        untruncated = copy(args)
        untruncated.max_length, untruncated.shuffle_dataset = None, False
        kinds = numpy.asarray(rows[KIND])
        parts, places = [], []
        for kind in dict.fromkeys(kinds.tolist()):
            places.append(numpy.flatnonzero(kinds == kind))
            part = prepare(_of_kind(rows.select(places[-1]), kind), untruncated, False, f"{name} ({kind})")
            if kind == "text":
                part, counts = self.split_texts(part, args, name)
                places[-1] = places[-1] if counts is None else numpy.repeat(places[-1], counts)
            columns = [PART, *(one for one in TOKENS if one in part.column_names)]
            part = part.with_format(None).select_columns(columns)
            # rows of token ids were not mapped, so they may still be a selection from a larger table
            parts.append(part.flatten_indices() if rearranged(part) else part)
        names = [one for one in TOKENS if any(one in part.column_names for part in parts)]
        with args.main_process_first():
            parts = [_learned(part, [one for one in names if one not in part.column_names]) for part in parts]
        joined = datasets.concatenate_datasets([part.select_columns(names) for part in parts])
        joined = joined.select(numpy.argsort(numpy.concatenate(places), kind="stable"))
        return prepare(joined, args, packing, name)


def _of_kind(rows: Rows, kind: str) -> Rows:
    """The rows of the format ``kind``, with only this format's columns, under their original names."""
    names = {name: name[len(kind) + 1 :] for name in rows.column_names if name.startswith(f"{kind}/")}
    return rows.select_columns([KIND, *names]).rename_columns({KIND: PART, **names})


def _learned(part: Rows, missing: list[str]) -> Rows:
    """Add the columns ``missing``: masks that only rows of other formats have, here 1 (learned) for every token."""
    if not missing:
        return part
    return part.map(lambda row: {name: [1] * len(row["input_ids"]) for name in missing}, desc=None)


class MixedCounts(TokenCounts):
    """Counts the tokens of all rows of the mixture, after the formats are joined but before truncation and packing."""

    def mapped(self, real: Callable[..., Any], rows: Rows, *args: Any, **kwargs: object) -> object:
        """Replaces ``Dataset.map``: map the rows as usual. The first time that tokenized rows of all formats are mapped
        together, count their tokens."""
        import numpy

        names = rows.column_names
        if not self.has_counts and "input_ids" in names and PART not in names:
            lengths = lengths_of(rows, "input_ids")[None]
            self.count(lengths, numpy.maximum(lengths - (lengths if self.most is None else self.most), 0))
        return real(rows, *args, **kwargs)


class MixedShapes(Feature):
    """Hooks for a run whose rows have several formats."""

    def source_mapped(self, bundle: Bundle, source: Source, rows: Rows) -> Rows:
        """Add a column with the row format, and prefix the names of the other columns with it (see `marked`)."""
        return marked(source, rows)

    def token_counter(self, bundle: Bundle, counted: type[TokenCounts]) -> type[TokenCounts]:
        """The class that counts the tokens of a mixture."""
        return MixedCounts
