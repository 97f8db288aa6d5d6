"""Rows of token ids in the real trainers of every stack: a batch has exactly the ids and labels of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from emitted import put
from method_runs import Warm
from prepared_data import trained_on
from tiers import FIRST_AND_LAST, nightly_but
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow

SEQ = 12
IDS = [[10 + 7 * row + location for location in range(4 + row)] for row in range(8)]
LABELS = [[-100, -100, *ids[2:]] for ids in IDS]
LABELLED: list[dict[str, object]] = [{"input_ids": a, "labels": b} for a, b in zip(IDS, LABELS, strict=True)]
PADDED: list[dict[str, object]] = [
    {"input_ids": [*ids, 0, 0], "completion_mask": [0, 0, *[1] * (len(ids) - 2), 0, 0],
     "attention_mask": [*[1] * len(ids), 0, 0]}
    for ids in IDS
]  # fmt: skip
FILES = {
    "labelled.jsonl": lines(LABELLED),
    "padded.jsonl": lines(PADDED),
    "named.jsonl": lines([{"text": "red", "ids": a, "targets": b} for a, b in zip(IDS, LABELS, strict=True)]),
    "ids.jsonl": lines([{"input_ids": ids} for ids in IDS]),
    "shifted.jsonl": lines([{"input_ids": ids, "labels": [*ids[1:], -100]} for ids in IDS]),
    "talk.jsonl": lines(
        [{"messages": [{"role": "user", "content": "Red?"}, {"role": "assistant", "content": f"No, {i}."}]}
         for i in range(3)]
    ),
    "large.jsonl": lines([*LABELLED[:3], {"input_ids": [5, 4000], "labels": [5, 4000]}]),
}  # fmt: skip


def small(target: str, *sources: str, more: str = "", seq: int = SEQ, batch: str = "") -> str:
    block = "data mix {\n" + "".join(f"  {one}\n" for one in sources) + f"{more}}}"
    return spec(block, data="mix", length="1 step", target=target, sizes=f"gbs=1 micro=1 seq={seq}", batch=batch)


def prepared(warm: Warm, target: str, *specs: str) -> list[dict[str, Any]]:
    put(warm.location, FILES)
    return trained_on(warm, target, "tokens", specs)


def rows(found: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    return sorted((row["input_ids"], row["labels"]) for row in found["rows"])


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_batch_has_the_ids_and_labels_of_the_rows(warm: Warm, target: str) -> None:
    labelled, padded, named, plain = prepared(
        warm, target, small(target, '"labelled.jsonl"'), small(target, '"padded.jsonl"'),
        small(target, '"named.jsonl" { columns = [ids, targets] }', more="  format = tokens\n"),
        small(target, '"ids.jsonl"'),
    )  # fmt: skip
    expected = sorted((a[:SEQ], b[:SEQ]) for a, b in zip(IDS, LABELS, strict=True))
    assert rows(labelled) == rows(padded) == rows(named) == expected
    assert rows(plain) == sorted((a[:SEQ], a[:SEQ]) for a in IDS)
    cut = [len(ids) - SEQ for ids in IDS if len(ids) > SEQ]
    for found in (labelled, padded, plain):
        counted = found["counted"]
        assert (counted["rows"], counted["tokens"]) == (len(IDS), sum(map(len, IDS)))
        assert (counted["cut_rows"], counted["cut_tokens"]) == (len(cut), sum(cut))


@pytest.mark.parametrize("target", nightly_but(STACKS, DEFAULT.__eq__))
def test_masked_tokens_evaluate_a_run_on_completions(warm: Warm, tmp_path: Path, target: str) -> None:
    """The evaluation loss covers the learned tokens only, as for rows with a prompt and a completion (XP525)."""
    all_learned = [{"input_ids": ids, "labels": ids} for ids in IDS]
    pairs = [{"prompt": f"{row}?", "completion": "red"} for row in range(8)]
    put(warm.location, {**FILES, "learned.jsonl": lines(all_learned), "few_pairs.jsonl": lines(pairs)})
    sets = 'eval(data=["labelled.jsonl", "padded.jsonl", "learned.jsonl"], every=2, micro=1)'
    text = spec(sets, data='"few_pairs.jsonl"', length="2 steps", sizes="gbs=2 micro=1 seq=64", target=target)
    run = warm.train(text, f"{target}-masked-tokens", target, str(tmp_path))
    labelled, padded, learned = (run.values(f"eval_{name}_loss")[0] for name in ("labelled", "padded", "learned"))
    assert abs(labelled - padded) < 1e-5
    assert abs(labelled - learned) > 1e-3


PACKS = [one for one in STACKS if "bfd" in getattr(load(one), "packing", ())]
"""Stacks on which packed rows do not attend to each other on a CPU."""


@pytest.mark.parametrize("target", nightly_but(PACKS, DEFAULT.__eq__))
def test_packed_rows_keep_their_labels(warm: Warm, target: str) -> None:
    packed, mixed = prepared(
        warm, target, small(target, '"labelled.jsonl"', batch=" packing(isolate=mask, strategy=bfd)"),
        small(target, '"labelled.jsonl"', '"talk.jsonl"', seq=64),
    )  # fmt: skip
    kept = {ids[2]: tuple(ids[:SEQ]) for ids in IDS}
    learned = [label for row in packed["rows"] for label in row["labels"] if label != -100]
    assert sorted(learned) == sorted(one for ids in kept.values() for one in ids[2:])
    assert sum(len(row["input_ids"]) for row in packed["rows"]) == sum(map(len, kept.values()))
    of_tokens = sorted((a, b) for a, b in zip(IDS, LABELS, strict=True))
    assert [one for one in rows(mixed) if one in of_tokens] == of_tokens
    assert len(mixed["rows"]) == len(IDS) + 3


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_parquet_rows_are_checked_by_the_run(warm: Warm, tmp_path: Path, target: str) -> None:
    """The compiler reads only the names and types of a Parquet file's columns. So the run itself must find wrong rows,
    and does so before it loads the model.
    """
    datasets = pytest.importorskip("datasets")
    wrong: dict[str, tuple[list[dict[str, Any]], str]] = {
        "large": ([*LABELLED[:3], {"input_ids": [5, 4000], "labels": [5, -100]}],
                  "row 3: input_ids has the token id 4,000, and the model has 1,024 tokens"),
        "short": ([*LABELLED[:2], {"input_ids": [5, 6], "labels": [5]}], "row 2: labels has 1 entries for 2 tokens"),
        "gap": ([{"input_ids": [5, 6, 7], "attention_mask": [1, 0, 1]}], "row 0: attention_mask has a 0 between"),
    }  # fmt: skip
    if not load(target).facts.reads_labels:
        wrong["shifted"] = (
            [{"input_ids": [5, 6, 7], "labels": [6, 7, -100]}],
            "is another token, and the installed trl cannot train on such labels",
        )
    for name, (found, message) in wrong.items():
        datasets.Dataset.from_list(found).to_parquet(f"{warm.location}/{name}.parquet")
        bundle = warm.compiled(small(target, f'"{name}.parquet"'), f"{name}-{target}")
        answer = warm.of(target).run(bundle, str(tmp_path), XPC_DATA_ROOT=warm.location)
        assert answer["status"] != [0]
        assert message in answer["err"] + answer["out"]


def test_a_run_on_tokens_learns_them_and_resumes(warm: Warm, tmp_path: Path) -> None:
    put(warm.location, FILES)
    text = spec('data(holdout=2)', "eval(every=2, micro=2)", data='"labelled.jsonl"', length="4 steps",
                sizes="gbs=4 micro=2 seq=12", save='save "out" every=2')  # fmt: skip
    first, again = warm.twice(text, "tokens-run", DEFAULT, str(tmp_path))
    losses = first.values("loss")
    assert losses[-1] < losses[0]
    assert first.summary["data"]["tokens"] < sum(map(len, IDS))
    assert again.values("loss")[-1] == losses[-1]
