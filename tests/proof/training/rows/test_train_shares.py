"""On every stack, a mixture whose sources have shares trains on the right rows, and a resumed run continues with the
right rows.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from emitted import put
from interpreters import methods_of
from method_runs import KEPT, STEPS, Warm, tensors
from prepared_data import trained_on
from tiers import FIRST_AND_LAST
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, STACKS

OLDEST = min(STACKS, key=lambda one: float(one.removeprefix("trl-")))

pytestmark = pytest.mark.slow

FILES = {
    f"{name}.jsonl": lines(
        [
            {
                "messages": [
                    {"role": "user", "content": f"Number {i}?"},
                    {"role": "assistant", "content": f"{word} {i}."},
                ]
            }
            for i in range(rows)
        ]
    )
    for name, word, rows in (("few", "red", 6), ("many", "blue", 30))
}


def mixture(more: str = "", few: str = "share = 40%", many: str = "share = 60%") -> str:
    settings = "".join(f"  {one}\n" for one in more.split(", ") if one)
    return f'data mix {{\n  "few.jsonl" {{\n    {few}\n  }}\n  "many.jsonl" {{\n    {many}\n  }}\n{settings}}}'


def prepared(warm: Warm, target: str, *texts: str) -> list[dict[str, Any]]:
    """Compile these specs; return the rows on which each bundle's trainer trains."""
    put(warm.location, FILES)
    return trained_on(warm, target, "shares", texts)


def small(target: str, data: str, *more: str) -> str:
    return spec(data, *more, data="mix", length="1 epoch", target=target, sizes="gbs=2 micro=1 seq=64")


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_trainer_gets_each_source_in_its_share(warm: Warm, target: str) -> None:
    alone = [f'data mix {{\n  "{name}.jsonl"\n}}' for name in ("few", "many")]
    held = "exhausted = repeat, holdout = 5"
    few, many, stop, repeat, evaluated = prepared(
        warm,
        target,
        *(small(target, one) for one in (*alone, mixture(), mixture("exhausted = repeat"))),
        small(target, mixture(held), "eval every=epoch"),
    )
    of = {json.dumps(row): name for name, one in (("few", few), ("many", many)) for row in one["rows"]}
    times = [Counter(json.dumps(row) for row in one["rows"]) for one in (stop, repeat, evaluated)]
    counts = [Counter(of[row] for row in one.elements()) for one in times]
    assert counts == [{"few": 6, "many": 9}, {"few": 20, "many": 30}, {"few": 18, "many": 27}]
    assert set(times[0].values()) == {1}
    assert {times[1][row] for row, name in of.items() if name == "few"} == {3, 4}
    assert {times[1][row] for row, name in of.items() if name == "many"} == {1}
    assert evaluated["evaluated"] == 5
    assert sum(row in times[2] for row in of) == 36 - 5


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_a_stopped_run_continues_in_the_same_order(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, target: str
) -> None:
    put(warm.location, FILES)
    text = spec(mixture("exhausted = repeat, seed = 3"), data="mix", length=f"{STEPS} steps", target=target,
                sizes="gbs=8 micro=2 seq=64", save=f'save "out" every={KEPT}')  # fmt: skip
    whole, again = warm.twice(text, f"shares-{target}", target, str(tmp_path_factory.mktemp("shares")))
    assert "mixture: 20 rows of few.jsonl, which has 6 rows, 3.333 times each" in whole.output
    assert "mixture: 30 rows of many.jsonl, which has 30" in whole.output
    assert again.summary["resumed_from"] == f"checkpoint-{KEPT}"
    assert again.values("loss") == whole.values("loss")
    model = [tensors(str(Path(one.out, "model.safetensors"))) for one in (whole, again)]
    assert model[0] == model[1]


LONG = "word " * 90
DROPPED = {
    "dpo": "preferences", "reward": "preferences", "orpo": "preferences", "kto": "judged",
    "sft(completion_only)": "completions", "sft(assistant_only)": "messages",
}  # fmt: skip
"""Maps methods whose trainers, on some stack, drop rows that are too long to the shape of their rows."""


def of_shape(shape: str, word: str, question: str, number: int) -> dict[str, Any]:
    prompt, answer = f"{question}Number {number}?", f"{word} {number}."
    turns = {"prompt": [{"role": "user", "content": prompt}], "answer": [{"role": "assistant", "content": answer}]}
    rows: dict[str, dict[str, Any]] = {
        "preferences": {
            "prompt": turns["prompt"], "chosen": turns["answer"],
            "rejected": [{"role": "assistant", "content": f"{word} no."}],
        },
        "judged": {"prompt": turns["prompt"], "completion": turns["answer"], "label": number % 2 == 0},
        "completions": {"prompt": prompt, "completion": answer},
        "messages": {"messages": [*turns["prompt"], *turns["answer"]]},
    }  # fmt: skip
    return rows[shape]


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_rows_that_the_trainer_drops_are_not_drawn(warm: Warm, target: str) -> None:
    """In the first source, half of the prompts are so long that the trainer drops their rows. The source's share is
    then filled with rows of the other half.
    """
    methods = [one for one in DROPPED if one.partition("(")[0] in methods_of(target)]
    if target == OLDEST:
        methods.remove("sft(assistant_only)")
    texts = []
    for shape in {*DROPPED.values()}:
        few = [of_shape(shape, "red", LONG if number % 2 else "", number) for number in range(12)]
        many = [of_shape(shape, "blue", "", number) for number in range(30)]
        put(warm.location, {f"{shape}-few.jsonl": lines(few), f"{shape}-many.jsonl": lines(many)})
    for method in methods:
        names = DROPPED[method]
        data = f'data mix {{\n  "{names}-few.jsonl" {{ share = 40% }}\n  "{names}-many.jsonl" {{ share = 60% }}\n}}'
        texts.append(small(target, data, f"method {method}").replace("micro=1", "micro=2"))
    for method, found in zip(methods, trained_on(warm, target, "dropped", tuple(texts)), strict=True):
        # On the older stacks, these methods truncate long prompts instead of dropping them.
        limited = method in ("dpo", "kto", "orpo") and target != DEFAULT
        assert len(found["rows"]) == (30 if limited else 15), method
        assert "so the shares are not exact" not in found["said"]


def test_packing_drops_no_rows_of_a_mixture(warm: Warm) -> None:
    text = small(DEFAULT, mixture()).replace("seq=64", "seq=64 packing(isolate=mask)")
    packed = prepared(warm, DEFAULT, text)[0]
    assert len(packed["rows"]) < 15
    assert "mixture: 6 rows of few.jsonl, which has 6" in packed["said"]
    assert "so the shares are not exact" not in packed["said"]
