"""Raw text in real trainers of every stack: long documents are split at `seq`, and no token is lost."""

from __future__ import annotations

from typing import Any

import pytest
from emitted import put
from method_runs import Warm
from prepared_data import trained_on
from tiers import FIRST_AND_LAST, nightly_but
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, STACKS, load
from xpc.runtime.features.rows.chunks import beginnings, split

pytestmark = pytest.mark.slow

FILES = {
    "tales.txt": "\n\n".join(f"Number {i} is red. " * (1 + 3 * i) for i in range(6)) + "\n",
    "talk.jsonl": lines(
        [
            {"messages": [{"role": "user", "content": f"Number {i}?"}, {"role": "assistant", "content": "Red. " * 9}]}
            for i in range(4)
        ]
    ),
}
SEQ = 24


def texts(*more: str, other: str = "") -> str:
    settings = "".join(f"  {one}\n" for one in ("documents = paragraph", *more))
    return f'data mix {{\n  "tales.txt"\n{other}{settings}}}'


def prepared(warm: Warm, target: str, *specs: str) -> list[dict[str, Any]]:
    put(warm.location, FILES)
    return trained_on(warm, target, "chunks", specs)


def small(target: str, data: str, *more: str, seq: int = SEQ) -> str:
    return spec(data, *more, data="mix", length="1 step", target=target, sizes=f"gbs=1 micro=1 seq={seq}")


def ids(found: dict[str, Any]) -> list[list[int]]:
    return [row["input_ids"] for row in found["rows"]]


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_long_document_is_several_rows_with_one_end_token(warm: Warm, target: str) -> None:
    whole, cut, chunked = prepared(
        warm, target, small(target, texts(), seq=2048), small(target, texts()), small(target, texts("long = chunk"))
    )
    documents = ids(whole)
    assert len(documents) == 6
    assert max(map(len, documents)) > 3 * SEQ
    # Each document ends with the end token.
    assert len({one[-1] for one in documents}) == 1
    expected = split({"input_ids": documents}, SEQ)["input_ids"]
    assert sorted(ids(chunked)) == sorted(expected)
    assert sum(map(len, ids(chunked))) == sum(map(len, documents))
    assert max(map(len, ids(chunked))) == SEQ
    assert all(row["labels"] == row["input_ids"] for row in chunked["rows"])
    assert chunked["counted"]["cut_rows"] == chunked["counted"]["cut_tokens"] == 0
    assert "texts (train) have more than seq = 24 tokens" in chunked["said"]
    assert sum(map(len, ids(cut))) < sum(map(len, documents))
    assert cut["counted"]["cut_rows"] > 0


PACKS = [one for one in STACKS if "bfd" in getattr(load(one), "packing", ())]
"""Stacks on which packed documents do not attend to each other on a CPU."""


@pytest.mark.parametrize("target", nightly_but(PACKS, DEFAULT.__eq__))
def test_packed_pieces_lose_nothing(warm: Warm, target: str) -> None:
    batch = "batch packing(isolate=mask, strategy=bfd)"
    whole, packed = prepared(
        warm, target, small(target, texts(), seq=2048), small(target, texts("long = chunk"), batch)
    )
    assert sum(map(len, ids(packed))) == sum(map(len, ids(whole)))
    assert max(map(len, ids(packed))) == SEQ


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_only_texts_of_a_mixture_are_split(warm: Warm, target: str) -> None:
    other = '  "talk.jsonl"\n'
    alone = f"data mix {{\n{other}}}"
    order = "shuffle = false" if target == DEFAULT else "seed = 2"
    parts = (
        alone,
        texts("long = chunk"),
        texts("long = chunk", other=other),
        texts("long = chunk", order, other=other),
    )
    talk, tales, mixed, ordered = prepared(warm, target, *(small(target, one) for one in parts))
    assert sorted(ids(mixed)) == sorted(ids(talk) + ids(tales)) == sorted(ids(ordered))
    assert mixed["counted"]["cut_rows"] == talk["counted"]["cut_rows"] == 4
    if target == DEFAULT:
        assert ids(ordered) == ids(tales) + ids(talk)


def test_evaluated_texts_are_split_too(warm: Warm) -> None:
    (found,) = prepared(warm, DEFAULT, small(DEFAULT, texts("long = chunk", "holdout = 2"), "eval every=epoch"))
    assert found["evaluated"] >= 2
    assert "texts (eval) have more than" in found["said"]


def test_no_piece_has_one_token() -> None:
    for length in range(2, 60):
        for most in (3, 8, 24):
            starts = beginnings(length, most)
            sizes = [end - start for start, end in zip(starts, [*starts[1:], length], strict=True)]
            assert all(2 <= one <= most for one in sizes)
            assert len(sizes) == -(-length // most)
    assert beginnings(0, 8) == [0]
    assert beginnings(1, 8) == [0]
