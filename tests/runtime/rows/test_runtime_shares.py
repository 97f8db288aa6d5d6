"""A mixture with shares takes the right rows of each source, in the right order. These tests need the datasets
library.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from late_imports import datasets

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import shares
from xpc.runtime.features.rows.mixture import repeated

pytestmark = pytest.mark.slow


def mixed(first: int, second: int, share: float, **more: Any) -> tuple[list[str], list[str] | None]:
    """Mix sources with the given `shuffle`, `holdout` and `exhausted`. Return the ids of the training rows, and the ids
    of the holdout rows.
    """
    parts = [
        datasets.Dataset.from_dict({"id": [f"{name}{i}" for i in range(rows)]})
        for name, rows in (("a", first), ("b", second))
    ]
    plans = [
        {"id": None, "path": f"{name}.jsonl", "share": part, **more.get(name, {})}
        for name, part in (("a", share), ("b", round(1 - share, 10)))
    ]
    train, held = shares.mix(
        parts, plans, more.get("seed", 42), more.get("shuffle", True), more.get("holdout"), more.get("filtered"),
        exhausted=more.get("exhausted", "stop"),
    )  # fmt: skip
    return train["id"][:], None if held is None else held["id"][:]


def test_each_row_is_used_once_and_the_order_follows_from_the_seed() -> None:
    rows, held = mixed(70, 500, 0.7)
    assert held is None
    assert Counter(one[0] for one in rows) == {"a": 70, "b": 30}
    assert len(set(rows)) == 100
    assert rows == mixed(70, 500, 0.7)[0]
    assert rows != mixed(70, 500, 0.7, seed=1)[0]


def test_repeated_rows_are_used_equally_often() -> None:
    rows, _ = mixed(7, 60, 0.4, exhausted="repeat")
    assert Counter(one[0] for one in rows) == {"a": 40, "b": 60}
    times = Counter(rows)
    assert {times[f"b{i}"] for i in range(60)} == {1}
    assert {times[f"a{i}"] for i in range(7)} == {5, 6}


def test_without_shuffle_sources_alternate_by_their_shares() -> None:
    rows, _ = mixed(60, 40, 0.6, shuffle=False)
    assert rows[:5] == ["a0", "b0", "a1", "b1", "a2"]
    assert [one for one in rows if one[0] == "a"] == [f"a{i}" for i in range(60)]
    for length in range(1, 101):
        assert abs(sum(one[0] == "a" for one in rows[:length]) - 0.6 * length) <= 1


def test_held_out_rows_are_never_trained_on() -> None:
    for shuffle in (True, False):
        for exhausted in ("stop", "repeat"):
            rows, held = mixed(20, 300, 0.5, holdout={"rows": 8}, exhausted=exhausted, shuffle=shuffle)
            assert held is not None
            assert Counter(one[0] for one in held) == {"a": 4, "b": 4}
            assert not set(held) & set(rows)
            assert Counter(one[0] for one in rows) == (
                {"a": 16, "b": 16} if exhausted == "stop" else {"a": 296, "b": 296}
            )


def test_take_and_limit_select_rows_before_they_are_drawn() -> None:
    rows, _ = mixed(100, 100, 0.5, a={"take": {"rows": 10}}, b={"limit": 20})
    assert Counter(one[0] for one in rows) == {"a": 10, "b": 10}
    assert all(int(one[1:]) < 20 for one in rows if one[0] == "b")
    with pytest.raises(RunError, match="asks for 101 rows of a source that has only 100"):
        mixed(100, 100, 0.5, a={"take": {"rows": 101}})


def test_unique_drops_repeated_rows_of_all_sources_before_they_are_drawn() -> None:
    part = datasets.Dataset.from_dict({"id": ["x", "x", "y", "z"]})
    plans = [{"id": None, "path": name, "share": 0.5} for name in ("a", "b")]
    other = datasets.Dataset.from_dict({"id": ["x", "u", "v", "w"]})
    rows, _ = shares.mix([part, other], plans, 1, True, None, repeated, exhausted="stop")
    assert sorted(rows["id"]) == ["u", "v", "w", "x", "y", "z"]


def test_rows_are_dropped_before_they_are_drawn() -> None:
    """Half of the first source's rows are too short, so they are dropped before rows are chosen. The source still gets
    its complete share, from the other rows.
    """
    from types import SimpleNamespace

    from xpc.runtime.features.rows.lengths import LengthLimits

    texts = {"a": ["long " * 9 if i % 2 else "x" for i in range(60)], "b": ["long " * 9] * 100}
    sources = [{"id": None, "path": f"{one}.jsonl", "share": 0.5} for one in texts]
    bundle: Any = SimpleNamespace(
        data={"sources": sources, "min_tokens": 5, "exhausted": "stop", "seed": 42, "shuffle": True, "holdout": None},
        sources=lambda: sources,
        method="sft",
        arguments={},
        plan={"method": {"unpaired": False}},
    )
    tokenizer: Any = lambda text: {"input_ids": text.split()}  # noqa: E731
    feature = LengthLimits()
    feature.tokenizer_loaded(bundle, tokenizer)
    parts = [
        feature.source_mapped(bundle, source, datasets.Dataset.from_dict({"text": rows}))
        for source, rows in zip(sources, texts.values(), strict=True)
    ]
    assert [len(part) for part in parts] == [30, 100]
    made = shares.Shares().rows_mapped(bundle, (None, None), parts, lambda *_: None, tokenizer)
    train, _ = feature.rows_mapped(bundle, made, parts, lambda *_: None, tokenizer)
    assert len(train) == 60
