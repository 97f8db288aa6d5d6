"""Streamed rows: read one after the other while the run trains, and shuffled in a buffer.

A run of N steps trains on N x gbs sequences of the stream. When the stream ends, the run reads it again in another
order. All processes read the same stream, and each process trains on its part of every step. A resumed run first reads
the stream up to the step of its checkpoint, so that the next step gets the same rows as in an uninterrupted run.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from ...core import data, data_sources
from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Rows, RowSets, Source, Tokenizer, Trainer
from ...core.token_counts import TokenCounts
from ..rows import lengths

FIRST = 1000
"""Before the run, this many of the first rows are converted and compared with their rendered text."""


class FirstRows(Feature):
    """Reads only the first rows of the stream. The checks that use it would otherwise read all rows of the source."""

    def source_reader(self, bundle: Bundle, source: Source) -> Callable[..., Rows] | None:
        """A reader that returns only a source's first rows. None for a source that is used only for evaluation."""
        return _first_rows(_reader(bundle, source)) if source is bundle.data["sources"][0] else None


def _reader(bundle: Bundle, source: Source) -> Callable[..., Any]:
    """The function that would read the source in a run without streaming."""
    others = (one for one in bundle.features if not isinstance(one, FirstRows))
    return data_sources.reader(bundle, source, others)


class Streaming(Feature):
    """Hooks for a run whose rows are a stream."""

    def rows_mapped(
        self, bundle: Bundle, sets: RowSets, parts: list[Rows], load: Callable[..., Rows], tokenizer: Tokenizer
    ) -> RowSets:
        """Return a pair: the stream of all converted rows (not only the first rows), and the evaluation set."""
        from .passes import Stream

        if len(sets[0]) == 0:
            return sets
        source, plan = bundle.data["sources"][0], bundle.data
        stored = _reader(bundle, source)(bundle, source, source["split"], True)
        dropped = bundle.row_format().dropped(source, stored.column_names, bundle.method)
        make = data.row_maker(bundle, source, tokenizer is None or bool(tokenizer.chat_template))
        rows = stored.map(make, with_indices=True, remove_columns=dropped)
        if plan["shuffle"]:
            rows = rows.shuffle(seed=plan["seed"], buffer_size=plan["streaming"]["shuffle_buffer"])
        rows = lengths.of_stream(bundle, rows, tokenizer)
        if next(iter(rows), None) is None:
            raise RunError("nothing is left to train on: every row is shorter or longer than the spec allows")
        return Stream(rows, sequences(bundle)), sets[1]

    def token_counter(self, bundle: Bundle, kind: type[TokenCounts]) -> type[TokenCounts]:
        """A counter that counts nothing, because the rows of a stream are not all read before the run."""
        return NullTokenCounter

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Replace the trainer's dataset by `Passes` over the tokenized stream. It has the sequences of all steps."""
        from .passes import Passes

        trainer.train_dataset = Passes(bundle, trainer.train_dataset, sequences(bundle))


def _first_rows(read: Callable[..., Any]) -> Callable[..., Any]:
    def first(bundle: Bundle, source: Source, split: str, streaming: bool) -> Any:
        if streaming or split != source["split"]:
            return read(bundle, source, split, streaming)
        from datasets import Dataset

        rows = read(bundle, source, split, True)
        return Dataset.from_list(list(islice(rows, FIRST)), features=rows.features)

    return first


def sequences(bundle: Bundle) -> int:
    """The number of sequences in all steps of the run."""
    return int(bundle.arguments["max_steps"]) * bundle.run["gbs"]


class NullTokenCounter(TokenCounts):
    """A token counter that counts nothing."""

    def mapped(self, real: Callable[..., Any], rows: Rows, *args: Any, **kwargs: object) -> object:
        """Call ``Dataset.map`` unchanged."""
        return real(rows, *args, **kwargs)
