"""The runtime tokenizes the texts of many rows in one call. Each row still gets the ids of its own texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from xpc.runtime import batched_calls, batched_map
from xpc.runtime.batched_calls import NotBatched, Recorder

pytestmark = pytest.mark.slow


class Encoded:
    """A class that stands in for the encodings of the `tokenizers` library. Each character of the text is one token."""

    n_sequences = 1

    def __init__(self, text: str, offsets: bool) -> None:
        self.ids = [ord(one) for one in text]
        self.offsets = [(at if offsets else 0, at + 1 if offsets else 0) for at in range(len(text))]


class Core:
    """A stand-in for tokenizers.Tokenizer, which counts the texts of each batch."""

    def __init__(self) -> None:
        self.slow, self.fast = list[int](), list[int]()

    def encode_batch(self, texts: list[str]) -> list[Encoded]:
        self.slow.append(len(texts))
        return [Encoded(one, offsets=True) for one in texts]

    def encode_batch_fast(self, texts: list[str]) -> list[Encoded]:
        self.fast.append(len(texts))
        return [Encoded(one, offsets=False) for one in texts]


class Tokenizer:
    """A stand-in for a tokenizer of transformers."""

    def __init__(self) -> None:
        self._tokenizer = Core()

    def __call__(self, text: str | list[str]) -> Any:
        from transformers import BatchEncoding

        found = self._tokenizer.encode_batch([text] if isinstance(text, str) else text)
        ids = [one.ids for one in found]
        values = {"input_ids": ids[0] if isinstance(text, str) else ids}
        return BatchEncoding(values, encoding=found)  # type: ignore[arg-type]


Function = Callable[[Tokenizer, str], Any]
ROWS = ["one", "two", "three", "four"]


def results(function: Function, rows: list[str]) -> tuple[list[Any], list[str], Core]:
    """Three results: the ids of each row, the rows for which the row function was called, and the fake tokenizer that
    has counted the batches.
    """
    tokenizer, called = Tokenizer(), list[str]()

    def of_row(location: int) -> dict[str, Any]:
        called.append(rows[location])
        return {"ids": function(tokenizer, rows[location])}

    found = Recorder(tokenizer).results(of_row, range(len(rows)))
    assert type(tokenizer) is Tokenizer
    return [one["ids"] for one in found], called, tokenizer._tokenizer


def test_unread_ids_need_one_call_for_each_row_and_no_offsets() -> None:
    found, called, core = results(lambda tokenizer, row: tokenizer(row)["input_ids"], ROWS)
    assert found == [[ord(one) for one in row] for row in ROWS]
    assert called == ROWS
    assert core.fast[-1] == len(ROWS)
    assert len(ROWS) not in core.slow[:1]


@pytest.mark.parametrize(
    "read",
    [
        lambda ids: [0] * len(ids),
        lambda ids: ids[:2],
        lambda ids: [*ids, 0] if ids else [],
        lambda ids: list(ids),
        lambda ids: {"inner": ids},
        lambda ids: sorted(ids),
        lambda ids: ids if isinstance(ids, list) else None,
        lambda ids: ids if ids == ids[:] else None,
        lambda ids: f"{ids}",
    ],
)
def test_a_function_that_reads_ids_gets_them(read: Callable[[Any], Any]) -> None:
    found, called, _ = results(lambda tokenizer, row: read(tokenizer(row)["input_ids"]), ROWS)
    assert found == [read([ord(one) for one in row]) for row in ROWS]
    assert called == ROWS * 2


def test_an_encoding_that_depends_on_another_is_known_after_a_third_call() -> None:
    def twice(tokenizer: Tokenizer, row: str) -> Any:
        return len(tokenizer(row + "!" * len(tokenizer(row)["input_ids"]))["input_ids"])

    found, called, _ = results(twice, ROWS)
    assert found == [2 * len(row) for row in ROWS]
    assert called == ROWS * 3


def test_offsets_are_those_of_the_text() -> None:
    found, _, core = results(lambda tokenizer, row: tokenizer(row).encodings[0].offsets, ROWS)
    assert found == [[(at, at + 1) for at in range(len(row))] for row in ROWS]
    assert len(ROWS) in core.slow


def test_calls_that_differ_are_not_batched() -> None:
    turns = iter(range(100))
    with pytest.raises(NotBatched, match="differently when it runs again"):
        results(lambda tokenizer, row: len(tokenizer(f"{row} {next(turns)}")["input_ids"]), ROWS)


def test_a_call_that_goes_row_by_row_says_why() -> None:
    notes = list[str]()

    def real(rows: Any, **options: Any) -> str:
        return "mapped row by row"

    options: dict[str, Any] = {"function": lambda row: row, "keep_in_memory": True}
    assert batched_map.mapped(real, ROWS, "path", None, notes.append, **options) == "mapped row by row"
    assert notes == ["`Dataset.map` gets the argument keep_in_memory"]


def test_masks_are_those_of_apply_chat_template() -> None:
    class Chars:
        """An encoding with one token for each character."""

        def char_to_token(self, location: int) -> int | None:
            return location if location < 4 else None

    assert batched_calls.assistant_mask(6, [(1, 3)], Chars()) == [0, 1, 1, 0, 0, 0]
    assert batched_calls.assistant_mask(6, [(2, 9)], Chars()) == [0, 0, 1, 1, 1, 1]
    assert batched_calls.assistant_mask(6, [(5, 6), (0, 2)], Chars()) == [0] * 6
