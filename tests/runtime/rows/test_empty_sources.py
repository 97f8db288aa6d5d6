"""A source or an evaluation set without rows is refused. If a stream ends before the run does, the stream is read again
from its beginning.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from runtime_bundles import source

from xpc.runtime.core import data_sources
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import mixture

FIRST, SECOND = source("a.jsonl"), source("b.jsonl")


def bundle(**data: Any) -> Any:
    return SimpleNamespace(data={"seed": 3, "shuffle": False, "sources": [FIRST, SECOND], **data})


def test_every_source_without_rows_for_the_evaluation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, str, int]] = []

    def load(_: Any, one: dict[str, Any], split: str, first: int) -> list[int]:
        read.append((one["path"], split, first))
        if one is FIRST:
            raise RunError("a.jsonl has no split test")
        return []

    monkeypatch.setattr(data_sources, "load", load)
    found = mixture.Mixture().before_rows(bundle(eval_split="test"), None)
    assert found == ["a.jsonl has no split test", "b.jsonl has no rows in test"]
    # One row of each source was read, to see if the source has any row.
    assert read == [("a.jsonl", "test", 1), ("b.jsonl", "test", 1)]
    assert mixture.Mixture().before_rows(bundle(), None) == []


@pytest.mark.parametrize("named", [True, False])
def test_an_evaluation_set_without_rows_is_refused_by_its_name(named: bool) -> None:
    rows = {"a.jsonl": [1, 2], "b.jsonl": list[int]()}
    sets = {"named": named, "sets": [{"name": "easy", "sources": [FIRST]}, {"name": "hard", "sources": [SECOND]}]}

    def load(one: dict[str, Any]) -> list[int]:
        return rows[one["path"]]

    with pytest.raises(RunError, match="the evaluation set hard has no rows"):
        mixture._evaluation_sets(bundle(), sets, load)
    rows["b.jsonl"] = [3]
    made = mixture._evaluation_sets(bundle(), sets, load)
    assert made == ({"easy": [1, 2], "hard": [3]} if named else [1, 2])


class Stream:
    """Rows that can be read in several passes. The order of the rows depends on the number of the pass."""

    def __init__(self, *learned: bool) -> None:
        self.epochs: list[int] = []
        self.rows = [{"input_ids": [number], "completion_mask": [one]} for number, one in enumerate(learned)]

    def set_epoch(self, number: int) -> None:
        self.epochs.append(number)

    def __iter__(self) -> Any:
        return iter(self.rows)


@pytest.mark.slow
def test_a_stream_begins_again_until_the_run_has_its_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from xpc.runtime.features.streaming.passes import Passes

    rows = Stream(False, True, False)
    made: list[dict[str, Any]] = list(Passes(bundle(shuffle=True), rows, 7))
    assert [one["input_ids"] for one in made] == [[0], [1], [2], [0], [1], [2], [0]]
    assert rows.epochs == [0, 1, 2]
    assert capsys.readouterr().out.splitlines() == [
        "[run] the stream has ended after 3 sequences, and begins again (pass 2)",
        "[run] the stream has ended after 3 sequences, and begins again (pass 3)",
    ]
    rows = Stream(True, True)
    assert len(list(Passes(bundle(), rows, 2))) == 2
    assert (rows.epochs, capsys.readouterr().out) == ([], "")  # without shuffling, the stream is read only once
    with pytest.raises(RunError, match="none of 2 rows has anything to learn"):
        list(Passes(bundle(), Stream(False, False), 5))
