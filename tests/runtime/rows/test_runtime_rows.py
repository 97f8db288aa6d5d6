"""The runtime converts rows of preferences, labelled completions and prompts, splits pairs for KTO, and handles prompts
that are too long.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_features import read
from runtime_bundles import of_method, plan, source, write

from xpc.runtime.core import data
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.rows import prompts

pytestmark = pytest.mark.slow

ASK = {"role": "user", "content": "2?"}
GOOD, BAD = ({"role": "assistant", "content": one} for one in ("4", "5"))
PAIR, JUDGED, PROMPT = source("x", "preference"), source("x", "unpaired"), source("x", "prompt")
SYSTEM = {"role": "system", "content": "S"}


def preference(row: dict[str, Any], system: str | None = None, method: str = "dpo") -> dict[str, Any]:
    return prompts.to_row(PAIR, row, 0, system=system, method=method)


def test_a_pair_of_conversations_shares_its_prompt() -> None:
    row = {"chosen": [ASK, GOOD], "rejected": [ASK, BAD], "score": 1}
    assert preference(row) == {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]}
    assert preference(row, "S") == {"prompt": [SYSTEM, ASK], "chosen": [GOOD], "rejected": [BAD]}
    assert preference(row, "S", "reward") == {"chosen": [SYSTEM, ASK, GOOD], "rejected": [SYSTEM, ASK, BAD]}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2?", "chosen": [ASK, GOOD], "rejected": [ASK, BAD]},  # ultrafeedback_binarized
        {"prompt": [ASK], "chosen": [ASK, GOOD], "rejected": [ASK, BAD]},
        {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]},
        # `chosen` and `rejected` have only the answer, not the prompt before it
        {"prompt": "2?", "chosen": GOOD, "rejected": BAD},
        {"prompt": [{"from": "human", "value": "2?"}], "chosen": [{"from": "gpt", "value": "4"}],
         "rejected": [{"from": "gpt", "value": "5"}]},
    ],
)  # fmt: skip
def test_every_spelling_of_a_pair_is_the_same_row(row: dict[str, Any]) -> None:
    assert preference(row) == {"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]}


def test_pairs_of_texts_are_divided_into_prompt_and_answers() -> None:
    texts = {"chosen": "Two and two is four.", "rejected": "Two and two is nine."}
    assert preference(texts) == {"prompt": "Two and two is", "chosen": " four.", "rejected": " nine."}
    assert preference({"prompt": "2?", "chosen": " 4", "rejected": " 5"}) == {
        "prompt": "2?", "chosen": " 4", "rejected": " 5",
    }  # fmt: skip
    whole = preference({"prompt": "2?", "chosen": " 4", "rejected": " 5"}, method="reward")
    assert whole == {"chosen": "2? 4", "rejected": "2? 5"}
    same = preference({"chosen": "yes", "rejected": "yes"})
    # One answer is a prefix of the other. So the prompt ends one character earlier, and neither answer is empty.
    assert (same["chosen"], same["rejected"]) == ("s", "s")


def test_answers_without_a_common_prompt_are_reported_with_their_row() -> None:
    with pytest.raises(RunError, match="x, row 0: the chosen and the rejected answer share no prompt"):
        preference({"chosen": [GOOD], "rejected": [BAD]})


def test_columns_of_a_pair_are_named_in_order() -> None:
    own = {**PAIR, "columns": ["question", "best", "worst"]}
    row = {"question": "2?", "best": "4", "worst": "5", "chosen": "no"}
    assert prompts.to_row(own, row, 0, method="dpo") == {"prompt": "2?", "chosen": "4", "rejected": "5"}
    with pytest.raises(RunError, match=r"names 1 column\(s\), and the shape preference needs 2"):
        prompts.to_row({**PAIR, "columns": ["best"]}, row, 0, method="dpo")
    assert prompts.dropped(PAIR, ["chosen", "rejected", "margin", "id"], "reward") == ["chosen", "rejected", "id"]
    assert prompts.dropped(PAIR, ["chosen", "rejected", "margin"], "dpo") == ["chosen", "rejected", "margin"]


def test_judged_completions_need_a_boolean_label() -> None:
    def judged(row: dict[str, Any], system: str | None = None) -> dict[str, Any]:
        return prompts.to_row(JUDGED, row, 0, system=system, method="kto")

    assert judged({"prompt": "2?", "completion": " 4", "label": True}) == {
        "prompt": "2?", "completion": " 4", "label": True,
    }  # fmt: skip
    assert judged({"prompt": "2?", "completion": [GOOD], "label": 0}, "S") == {
        "prompt": [SYSTEM, ASK], "completion": [GOOD], "label": False,
    }  # fmt: skip
    for label in (None, "yes", 0.5, 1.0):
        with pytest.raises(RunError, match="x, row 0: the label is"):
            judged({"prompt": "2?", "completion": " 4", "label": label})


def test_a_prompt_is_a_turn_of_the_user_where_there_is_a_template() -> None:
    def prompt_row(prompt: Any, system: str | None = None, chat: bool = True) -> Any:
        return prompts.to_row(PROMPT, {"prompt": prompt}, 0, system=system, method="grpo", chat=chat)["prompt"]

    assert prompt_row("2?") == prompt_row([ASK]) == [ASK]
    assert prompt_row("2?", "S") == [SYSTEM, ASK]
    assert prompt_row("2?", chat=False) == "2?"
    with pytest.raises(RunError, match="the list of messages is empty or not a list"):
        prompt_row(None)


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        (None, ["solution", "level"]),
        # A single name in `columns` is the column of the prompt.
        (["prompt"], ["solution", "level"]),
        (["prompt", "solution"], ["solution"]),
        (["question"], ["solution", "level"]),
        (["question", "level"], ["level"]),
    ],
)
def test_columns_that_rewards_read(columns: list[str] | None, kept: list[str]) -> None:
    present = ["prompt", "question", "solution", "level", "messages"]
    own = {**PROMPT, "columns": columns}
    left = [one for one in present if one not in prompts.dropped(own, present, "grpo")]
    assert [one for one in left if one != "question"] == kept
    assert ("question" in left) is (columns in (None, ["prompt"]))
    assert "messages" not in left  # a column of this name would make trl take the row for a conversation


def made(folder: Path, shape: str, config: str, rows: list[dict[str, Any]], **changes: Any) -> Bundle:
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = plan("tiny", [source("d.jsonl", shape)])
    facts = of_method(facts, config)
    facts["data"].update(changes)
    (folder / "bundle").mkdir()
    return read(write(str(folder / "bundle"), facts))


class Letters:
    """A tokenizer with one token for each letter. Its template writes a mark before an answer."""

    chat_template = "there is one"

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(one) for one in text]}

    def apply_chat_template(self, turns: list[dict[str, str]], add_generation_prompt: bool, **_: Any) -> str:
        return "".join(one["content"] for one in turns) + ">" * add_generation_prompt


def test_prompts_that_are_too_long_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    rows = [{"prompt": [{**ASK, "content": "x" * size}], "chosen": [GOOD], "rejected": [BAD]} for size in (1, 9, 10)]
    bundle = made(tmp_path, "preference", "trl.DPOConfig", rows, max_prompt=10, shuffle=False)
    train, _ = data.build(bundle, Letters())
    # a prompt of 10 letters has 11 tokens, because the generation prompt (`>`) is a token, too
    assert [len(row["prompt"][0]["content"]) for row in train] == [1, 9]
    assert "1 of 3 rows are left out: their prompts have over 10 tokens" in capsys.readouterr().out
    bundle.data["max_prompt"] = 1
    with pytest.raises(RunError, match="every prompt has more than 1 tokens: there are no rows to train on"):
        data.build(bundle, Letters())


def test_text_prompts_and_held_out_rows_are_counted_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    rows = [{"prompt": "x" * size, "chosen": "4", "rejected": "5"} for size in (3, 4, 3, 4)]
    bundle = made(
        tmp_path, "preference", "trl.DPOConfig", rows, max_prompt=3, shuffle=False, holdout={"rows": 2}
    )  # fmt: skip
    train, held = data.build(bundle, Letters())
    assert (len(train), len(held)) == (1, 1)
    assert capsys.readouterr().out.count("1 of 2 rows are left out") == 2


def test_prompts_that_the_trainer_cuts_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    rows = [{"prompt": "x" * size, "chosen": "4", "rejected": "5"} for size in (3, 9, 4)]
    bundle = made(tmp_path, "preference", "trl.DPOConfig", rows, min_tokens=1)
    bundle.arguments["max_prompt_length"] = 3
    assert len(data.build(bundle, Letters())[0]) == 3
    cut = "2 of 3 prompts have more than max_prompt = 3 tokens (the longest 9): their beginnings are cut off"
    assert cut in capsys.readouterr().out


@pytest.mark.parametrize("shuffle", [True, False])
def test_kto_takes_pairs_apart_and_mixes_them(tmp_path: Path, shuffle: bool) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"prompt": str(i), "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(20)]
    train, _ = data.build(made(tmp_path, "preference", "trl.KTOConfig", rows, shuffle=shuffle, seed=3), Letters())
    requested = [row["prompt"][0]["content"] if isinstance(row["prompt"], list) else row["prompt"] for row in train]
    assert sorted(zip(requested, train["completion"], train["label"], strict=True)) == sorted(
        (str(i), f"{word} {i}", word == "good") for i in range(20) for word in ("good", "bad")
    )
    if shuffle:
        # The datasets library alone gives the expected order: shuffle the pairs, split each pair into two rows, and
        # shuffle these rows, both times with the same seed.
        order = datasets.Dataset.from_dict({"i": range(20)}).shuffle(seed=3)["i"][:]
        halves = [f"{word} {i}" for i in order for word in ("good", "bad")]
        expected = datasets.Dataset.from_dict({"c": halves}).shuffle(seed=3)["c"][:]
        assert train["completion"][:] == expected
    else:
        assert train["label"][:] == [True, False] * 20
