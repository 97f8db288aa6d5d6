"""Streamed rows in the real trainers of every stack: each pass over the data has every row exactly once, and a run that
is killed and resumed ends bit-identical to an undisturbed run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from emitted import put
from method_runs import Warm, tensors
from prepared_data import trained_on
from tiers import FIRST_AND_LAST, nightly_but
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow

COLOURS = ("red", "green", "blue", "black", "white", "brown")
TEXTS = [f"Number {i} is {COLOURS[i % 6]} and has {'many ' * (i % 5)}friends." for i in range(18)]
TALKS = [
    {"messages": [{"role": "user", "content": f"Which colour has {i}?"}, {"role": "assistant", "content": text}]}
    for i, text in enumerate(TEXTS)
]
FILES = {
    **{f"stream/train-{part}.jsonl": lines([{"text": one, "id": 1} for one in TEXTS[6 * part : 6 * part + 6]])
       for part in range(3)},
    "flow.jsonl": lines([{**row, "id": i} for i, row in enumerate(TALKS)]),
    "held.jsonl": lines([{"text": one} for one in TEXTS[:4]]),
}  # fmt: skip
"""Eighteen rows of text in three files, and the same rows as conversations in one file."""


def small(*more: str, data: str = '"stream"', target: str = DEFAULT, steps: int = 4, **around: Any) -> str:
    return spec(*more, data=data, length=f"{steps} steps", target=target, **around)


def prepared(warm: Warm, target: str, *specs: str) -> list[list[list[int]]]:
    """Compile these specs. For each spec, return the token ids of every sequence that the trainer gets, in order."""
    put(warm.location, FILES)
    return [[row["input_ids"] for row in one["rows"]] for one in trained_on(warm, target, "stream", specs)]


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_each_pass_has_every_row_once_and_its_own_order(warm: Warm, target: str) -> None:
    complete, stored, shuffled, few, talks = prepared(
        warm, target, small(target=target),
        small("data(streaming, shuffle=false)", target=target, steps=5),
        small("data(streaming, shuffle_buffer=8)", target=target, steps=5),
        small("data(streaming, shuffle=false, min_tokens=30)", target=target),
        small("data(streaming, shuffle=false)", data='"flow.jsonl"', target=target),
    )  # fmt: skip
    assert len(complete) == 18
    # in the first pass, the stream gives the same tokens as a dataset that is not streamed
    assert stored[:18] == complete
    assert stored == (complete * 3)[:40]
    for start in (0, 18):
        assert sorted(shuffled[start : start + 18]) == sorted(complete)
    assert shuffled[:18] not in (complete, shuffled[18:36])
    # `min_tokens` does not count the end token, which `ids` contains.
    long = [ids for ids in complete if len(ids) > 30]
    assert 0 < len(long) < 18
    assert few == (long * 9)[:32]
    assert len({tuple(one) for one in talks[:18]}) == 18
    assert talks[18:32] == talks[:14]


PACKS = [one for one in STACKS if "bfd" in getattr(load(one), "packing", ())]
"""Stacks on which packed rows do not attend to each other on a CPU."""


@pytest.mark.parametrize("target", nightly_but(PACKS, DEFAULT.__eq__))
def test_packed_sequences_of_a_stream_are_those_of_complete_rows(warm: Warm, target: str) -> None:
    batch = " packing(isolate=mask, strategy=bfd)"
    complete, streamed = prepared(
        warm, target, small(target=target, batch=batch),
        small("data(streaming, shuffle=false)", target=target, batch=batch),
    )  # fmt: skip
    assert max(map(len, streamed)) <= 64
    assert streamed == (complete * 9)[:32]


def test_nothing_to_learn_ends_the_run(warm: Warm) -> None:
    put(warm.location, FILES)
    text = small("data(streaming, min_tokens=60)")
    answer = warm.of(DEFAULT).run(warm.compiled(text, "stream-short"), warm.location)
    assert answer["status"] != [0]
    assert "nothing is left to train on" in answer["out"] + answer["err"]


DAILY = ((DEFAULT, "one", 2, " packing(isolate=mask, strategy=bfd)"), (DEFAULT, "ddp", 3, ""))
NIGHTLY = (
    (DEFAULT, "zero2", 3, ""),
    *((target, strategy, 3, "") for target in STACKS if target != DEFAULT for strategy in ("one", "ddp")),
)


@pytest.mark.parametrize(
    ("target", "strategy", "every", "batch"),
    [*DAILY, *(pytest.param(*one, marks=pytest.mark.nightly) for one in NIGHTLY)],
)
def test_a_run_that_was_killed_ends_bit_for_bit_the_same(
    warm: Warm, tmp_path: Path, target: str, strategy: str, every: int, batch: str
) -> None:
    """A run of 4 steps over 18 rows, with 8 rows per step, so it makes two passes. The test kills it in the first or in
    the second pass.
    """
    put(warm.location, FILES)
    world, name = 1 if strategy == "one" else 2, f"stream-{target}-{strategy}"
    text = small(
        "data(streaming, shuffle_buffer=8)", 'eval(data="held.jsonl", every=2, micro=2)', target=target, batch=batch,
        hardware="cpu" if world == 1 else "2 x cpu", strategy="ddp" if world == 1 else strategy,
        save=f'save "out" every={every}',
    )  # fmt: skip
    first, resumed = warm.twice(text, name, target, str(tmp_path), world)
    assert resumed.summary["resumed_from"] == f"checkpoint-{every}"
    for measure in ("loss", "grad_norm", "tokens", "eval_loss"):
        assert first.values(measure)
        assert resumed.values(measure) == first.values(measure)
    weights = [tensors(os.path.join(one.out, "model.safetensors")) for one in (first, resumed)]
    assert weights[0] == weights[1]
    assert first.summary["steps"] == 4
    assert first.summary["data"] is None


def test_two_processes_train_on_the_rows_of_one(warm: Warm, tmp_path: Any) -> None:
    """With two processes, a step has the same rows as with one process. Its loss differs only by rounding, because the
    sum has another order.
    """
    put(warm.location, FILES)
    found = []
    for world, hardware in ((1, "cpu"), (2, "2 x cpu")):
        text = small("data(streaming, shuffle_buffer=8)", hardware=hardware, steps=3)
        (tmp_path / str(world)).mkdir()
        found.append(warm.train(text, f"stream-world-{world}", DEFAULT, str(tmp_path / str(world)), world))
    one, two = found
    assert one.values("tokens") == two.values("tokens")
    assert one.values("loss") == pytest.approx(two.values("loss"), rel=1e-4)


def test_rows_of_a_stream_are_not_prepared_before(warm: Warm, tmp_path: Any) -> None:
    put(warm.location, FILES)
    bundle = warm.compiled(small("data(streaming)"), "stream-prepare")
    program = os.path.join(bundle, "prepare_rows.py")
    answer = warm.of(DEFAULT).run(bundle, warm.location, str(tmp_path), program=program)
    assert answer["status"] != [0]
    assert "the rows are a stream" in answer["out"] + answer["err"]
    with open(os.path.join(bundle, "trainer_args.json"), encoding="utf-8") as handle:
        assert json.load(handle)["data"]["streaming"] == {"shuffle_buffer": 10_000}


@pytest.mark.nightly
def test_parquet_rows_are_streamed_as_json_rows_are(warm: Warm) -> None:
    datasets = pytest.importorskip("datasets")
    put(warm.location, FILES)
    datasets.Dataset.from_list([{**row, "id": i} for i, row in enumerate(TALKS)]).to_parquet(
        f"{warm.location}/flow.parquet"
    )
    lines_of, columns = prepared(
        warm,
        DEFAULT,
        *(small("data(streaming, shuffle_buffer=8)", data=f'"flow.{one}"') for one in ("jsonl", "parquet")),
    )
    assert lines_of == columns
