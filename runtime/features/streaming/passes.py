"""The sequences of a streamed run: `Stream` is a dataset for the datasets library, `Passes` repeats it for torch."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from datasets import IterableDataset
from jinja2 import TemplateError
from torch.utils.data import IterableDataset as Iterable

from ...core import data_sources
from ...core.errors import RunError, say
from ...core.feature import Bundle

IGNORED = -100
"""The label of a token that is not learned."""


class Stream(IterableDataset):  # type: ignore[misc]  # datasets has no types
    """A stream of rows. Its length is the number of sequences that the run trains on."""

    def __init__(self, rows: IterableDataset, sequences: int) -> None:
        self.__dict__.update(rows.__dict__)
        self.sequences = sequences

    def __len__(self) -> int:
        return self.sequences


class Passes(Iterable):  # type: ignore[misc]  # torch is not installed where types are checked
    """The sequences of the run: one pass after another over the tokenized stream. If rows are shuffled, the order
    differs in each pass.

    Its length makes the run's N steps one epoch of transformers, so a resumed run skips exactly the sequences that it
    has trained on. `Passes` is no class of the datasets library: accelerate would divide the files of such a dataset
    among the processes, but here, each process should get a part of every batch.
    """

    column_names = ()

    def __init__(self, bundle: Bundle, rows: IterableDataset, sequences: int) -> None:
        self.bundle, self.rows, self.sequences = bundle, rows, sequences

    def __len__(self) -> int:
        return self.sequences

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._passes()
        except (RunError, OSError):
            raise
        except TemplateError as error:
            raise RunError(f"the chat template refuses a row of the data: {error}") from error
        except Exception as error:  # the datasets library raises many exception classes for the errors of its readers
            source = self.bundle.data["sources"][0]
            raise RunError(data_sources.unreadable(self.bundle, source, None, error)) from error

    def _passes(self) -> Iterator[object]:
        left = self.sequences
        for number in count():
            if self.bundle.data["shuffle"]:  # the order of rows and files depends on the epoch number
                self.rows.set_epoch(number)
            before, learns = left, False
            for row in self.rows:
                learns = learns or _learns(row)
                yield row
                left -= 1
                if not left:
                    return
            if not learns:
                raise RunError(f"nothing is left to train on: none of {before - left:,} rows has anything to learn")
            say(f"the stream has ended after {before - left:,} sequences, and begins again (pass {number + 2})")


def _learns(row: Mapping[str, Any]) -> bool:
    """Whether any token of a tokenized row is learned."""
    if "labels" in row:
        return any(label != IGNORED for label in row["labels"])
    masks = [row[name] for name in ("completion_mask", "assistant_masks") if name in row]
    return all(any(mask) for mask in masks) and len(row["input_ids"]) > 0
