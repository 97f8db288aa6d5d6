"""In a mixture of sources with different shapes, each row has the same tokens and loss mask as in a run on the row's
source alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from emitted import put
from method_runs import Warm
from prepared_data import trained_on
from tiers import EACH_STACK, nightly_but
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow

QUESTION = [{"role": "user", "content": "What colour is it?"}]
ARGUMENTS = {one: load(one).base_arguments(load(one).config("sft")) for one in STACKS}
FILES = {
    "mixed-talk.jsonl": lines(
        [{"messages": [*QUESTION, {"role": "assistant", "content": f"Number {i} is red."}]} for i in range(5)]
    ),
    "mixed-pairs.jsonl": lines(
        [{"prompt": f"Number {i} is", "completion": " blue." * (i + 1)} for i in (0, 1, 2, 3, 3)]
    ),
    "mixed-alpaca.jsonl": lines(
        [{"instruction": "Name the colour.", "input": f"number {i}", "output": "Green."} for i in range(3)]
    ),
    "mixed-text.jsonl": lines(
        [{"text": f"Number {i} is red, and number {i + 1} is blue." * (1 + i % 2)} for i in range(6)]
    ),
}
SOURCES = {
    "talk": '"mixed-talk.jsonl"',
    "pairs": '"mixed-pairs.jsonl"',
    "alpaca": '"mixed-alpaca.jsonl" { format = alpaca, chat }',
    "text": '"mixed-text.jsonl" { format = text }',
}


def data(*names: str, more: str = "") -> str:
    """A `data` block with these sources."""
    return "data mix {\n" + "".join(f"  {SOURCES[name]}\n" for name in names) + f"{more}}}"


def prepared(warm: Warm, target: str, cwd: str, *texts: str) -> list[dict[str, Any]]:
    """Compile these specs; return the rows on which each bundle's trainer trains."""
    put(warm.location, FILES)
    return trained_on(warm, target, "mixed", texts)


def sorted_rows(*found: dict[str, Any]) -> list[str]:
    return sorted(json.dumps(row) for one in found for row in one["rows"])


@pytest.mark.parametrize("target", EACH_STACK)
def test_each_row_is_learned_as_its_own_shape_is(warm: Warm, tmp_path: Path, target: str) -> None:
    masks = load(target).facts.assistant_only_loss
    more = () if not masks else ("method sft(assistant_only)",)
    of = {"talk": more, "pairs": (), "alpaca": (), "text": ()}
    alone = [
        spec(data(name), *of[name], data="mix", length="1 step", target=target, sizes="gbs=1 micro=1 seq=40")
        for name in SOURCES
    ]
    whole = spec(data(*SOURCES), *more, data="mix", length="1 step", target=target, sizes="gbs=1 micro=1 seq=40")
    *parts, mixed = prepared(warm, target, str(tmp_path), *alone, whole)
    assert [len(one["rows"]) for one in parts] == [5, 5, 3, 6]
    assert sorted_rows(mixed) == sorted_rows(*parts)
    masked = [any(-100 in row["labels"] for row in one["rows"]) for one in parts]
    assert masked == [masks, True, True, False]
    reported = ("rows", "tokens", "cut_rows", "cut_tokens")
    assert {name: mixed["counted"][name] for name in reported} == {
        name: sum(one["counted"][name] for one in parts) for name in reported
    }
    assert mixed["counted"]["cut_rows"] > 0


def test_the_order_is_that_of_one_shape(warm: Warm, tmp_path: Path) -> None:
    ordered = "  shuffle = false\n"
    sizes = "gbs=1 micro=1 seq=64"
    alone = [spec(data(name, more=ordered), data="mix", length="1 step", sizes=sizes) for name in ("text", "pairs")]
    texts = [
        spec(data("text", "pairs", more=ordered), data="mix", length="1 step", sizes=sizes),
        spec(data("text", "pairs", more="  seed = 3\n"), data="mix", length="1 step", sizes=sizes),
    ]
    text, pairs, mixed, shuffled = prepared(warm, DEFAULT, str(tmp_path), *alone, *texts)
    assert mixed["rows"] == text["rows"] + pairs["rows"]
    import datasets

    order = datasets.Dataset.from_dict({"at": list(range(11))}).shuffle(seed=3)["at"]
    assert shuffled["rows"] == [mixed["rows"][at] for at in order]


def test_rows_of_several_shapes_are_filtered_held_out_and_packed_together(warm: Warm, tmp_path: Path) -> None:
    sizes, loss = "gbs=1 micro=1 seq=64", "method sft(assistant_only, completion_only)"
    alone = [spec(data(name), data="mix", length="1 step", sizes=sizes) for name in ("talk", "pairs", "text")]
    texts = [
        spec(data("talk", "pairs", "text", more=more), loss, *rest, data="mix", length="1 step", sizes=sizes,
             batch=batch)
        for more, rest, batch in (
            ("  unique\n  min_tokens = 14\n  max_tokens = 50\n", (), " packing(isolate=mask)"),
            ("  holdout = 3\n", ("eval(every=1)",), ""),
        )
    ]  # fmt: skip
    talk, pairs, text, packed, held = prepared(warm, DEFAULT, str(tmp_path), *alone, *texts)
    lengths = [[len(row["input_ids"]) for row in one["rows"]] for one in (talk, pairs, text)]
    ends = (0, 1, 1)  # `min_tokens` does not count the end token that trl adds after a text
    kept = [one for end, part in zip(ends, lengths, strict=True) for one in part if one - end >= 14 and one <= 50]
    repeated = pairs["rows"][-1]
    assert pairs["rows"].count(repeated) == 2
    kept.remove(len(repeated["input_ids"]))
    assert (len(kept), sum(kept)) == (packed["counted"]["rows"], packed["counted"]["tokens"])
    assert 0 < len(kept) < sum(map(len, lengths)) - 3
    assert sum(len(row["input_ids"]) for row in packed["rows"]) == sum(kept)
    assert len(packed["rows"]) < len(kept)
    assert (len(held["rows"]), held["evaluated"]) == (sum(map(len, lengths)) - 3, 3)


def test_a_mixture_of_shapes_trains_and_is_evaluated_on_two_processes(warm: Warm, tmp_path: Path) -> None:
    put(warm.location, FILES)
    held = 'data held {\n  "mixed-text.jsonl" { format = text }\n  "mixed-talk.jsonl"\n}'
    text = spec(data("talk", "pairs", "alpaca", "text"), held, "eval(data=held, every=3, micro=2)", data="mix",
                hardware="2 x cpu", length="6 steps", sizes="gbs=8 micro=2 seq=64")  # fmt: skip
    run = warm.train(text, "mixed-two", DEFAULT, str(tmp_path), world=2)
    assert run.summary["data"]["rows"] == 19
    losses, evaluated = run.values("loss"), run.values("eval_loss")
    assert losses[-1] < losses[0]
    assert len(evaluated) == 2
    assert evaluated[1] < evaluated[0]


@pytest.mark.parametrize(
    "target", nightly_but([one for one in STACKS if "assistant_only_loss" in ARGUMENTS[one]], DEFAULT.__eq__)
)
def test_an_evaluation_set_of_another_shape_has_its_own_loss_mask(warm: Warm, tmp_path: Path, target: str) -> None:
    put(warm.location, FILES)
    held = 'data held {\n  "mixed-pairs.jsonl"\n}'
    text = spec(data("talk"), held, "eval(data=held, every=2, micro=2)", "method sft(assistant_only)", data="mix",
                length="2 steps", sizes="gbs=4 micro=2 seq=64", target=target)  # fmt: skip
    run = warm.train(text, f"{target}-other-shape", target, str(tmp_path))
    assert len(run.values("eval_loss")) == 1
