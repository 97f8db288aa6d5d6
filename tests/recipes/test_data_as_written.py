"""A bundle builds exactly the rows that its spec names. A spec can name rows by configuration, split and slice of a
dataset, or by files of every kind.

Instead of a hub dataset, the tests have a folder of the same name, whose README names the configurations and splits.
The datasets library reads both in the same way.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from compile_support import compiled, put
from late_imports import datasets
from run_features import read

from xpc.runtime.core import data
from xpc.runtime.core.errors import RunError

pytestmark = pytest.mark.slow


CONFIG = {
    "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 512,
}  # fmt: skip
CARD = """\
---
configs:
- config_name: short
  data_files:
  - {split: train, path: short/train.jsonl}
  - {split: validation, path: short/validation.jsonl}
- config_name: long
  data_files:
  - {split: train, path: long/train.jsonl}
---
"""


def turns(name: str, count: int) -> str:
    return "".join(
        json.dumps({
            "id": i,
            "messages": [{"role": "user", "content": f"{name}{i}"}, {"role": "assistant", "content": "yes"}],
        }) + "\n"
        for i in range(count)
    )  # fmt: skip


def built(folder: Path, *lines: str, train: str = "rows", method: str = "") -> tuple[Any, Any, dict[str, Any]]:
    """Compile a spec with these lines. Return three things: the training rows, the holdout rows, and the section `data`
    of the bundle.
    """
    put(folder, {"model/config.json": json.dumps(CONFIG)})
    text = "\n".join(["xpc 1", f'train "model" on {train} for 1 epochs', "hardware cpu", method, *lines, ""])
    put(folder / "run.bundle", compiled(text, str(folder), "run.xp"))
    bundle = read(str(folder / "run.bundle"))
    return (*data.build(bundle), bundle.data)


def first_prompts(rows: Any) -> list[str]:
    return [one[0]["content"] for one in rows["messages"]]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the library reads as the dataset org/chat, with two configurations, one of which has two splits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    put(tmp_path, {
        "org/chat/README.md": CARD, "org/chat/short/train.jsonl": turns("s", 20),
        "org/chat/short/validation.jsonl": turns("v", 4), "org/chat/long/train.jsonl": turns("l", 10),
    })  # fmt: skip
    return tmp_path


def test_configs_splits_and_slices_of_a_dataset_are_read(hub: Path) -> None:
    train, held, plan = built(
        hub, "data rows {", "  org/chat:short[train:50%] {", "    columns = [messages]", "  }",
        "  org/chat:long[train] {", "    columns = [messages]", "    take = 3", "  }", "  shuffle = false", "}",
    )  # fmt: skip
    assert first_prompts(train) == [*(f"s{i}" for i in range(10)), "l0", "l1", "l2"]
    assert held is None
    assert [(one["config"], one["split"], one["slice"]) for one in plan["sources"]] == [
        ("short", "train", "50%"), ("long", "train", None),
    ]  # fmt: skip


def test_a_split_of_its_own_is_evaluated_on(hub: Path) -> None:
    train, held, plan = built(hub, "eval(every=epoch, split=validation)", train="org/chat:short")
    assert len(train) == 20
    assert first_prompts(held) == ["v0", "v1", "v2", "v3"]
    assert (plan["eval_split"], plan["holdout"]) == ("validation", None)


def test_missing_split_is_reported(hub: Path) -> None:
    with pytest.raises(RunError, match=r"cannot read org/chat \(validation\)"):
        built(hub, "eval(every=epoch, split=validation)", train="org/chat:long")


@pytest.mark.parametrize("seed", [0, 7])
def test_seeds_decide_the_held_out_rows(hub: Path, seed: int) -> None:
    train, held, _ = built(hub, "data rows {", "  org/chat:short", f"  seed = {seed}", "  holdout = 25%", "}",
                           "eval(every=epoch)")  # fmt: skip
    stored = datasets.Dataset.from_list([json.loads(line) for line in turns("s", 20).splitlines()])
    wanted = stored.shuffle(seed=seed).train_test_split(test_size=0.25, seed=seed)
    assert (first_prompts(train), first_prompts(held)) == (
        first_prompts(wanted["train"]),
        first_prompts(wanted["test"]),
    )


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a file of the format that its extension names."""
    table = datasets.Dataset.from_list(rows)
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        table.to_json(path)


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "csv"])
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_local_files_of_every_kind_are_read(tmp_path: Path, ending: str, folder: bool) -> None:
    location = tmp_path / "rows"
    location.mkdir()
    write(location / f"train.{ending}", [{"prompt": f"{i}?", "completion": " no", "id": i} for i in range(3)])
    named = "rows" if folder else f"rows/train.{ending}"
    train, _, plan = built(tmp_path, "data mix {", f'  "{named}"', "  format = prompt_completion", "  shuffle = false",
                           "}", train="mix")  # fmt: skip
    assert train["prompt"][:] == ["0?", "1?", "2?"]
    assert train["completion"][:] == [" no"] * 3
    (one,) = plan["sources"]
    assert os.path.basename(one["path"]) == os.path.basename(named)
    assert folder or one["sha256"]


def test_a_file_that_changed_since_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [{"text": "one"}])
    _, _, plan = built(tmp_path, "data mix {", '  "a.parquet"', "  format = text", "}", train="mix")
    write(tmp_path / "run.bundle" / plan["sources"][0]["bundled"], [{"text": "two"}])
    with pytest.raises(RunError, match="sha256 differs"):
        data.build(read(str(tmp_path / "run.bundle")))


def test_a_system_prompt_goes_before_conversations_that_have_none(tmp_path: Path) -> None:
    own = {"messages": [{"role": "system", "content": "mine"}, {"role": "user", "content": "b"}]}
    put(tmp_path, {"a.jsonl": turns("a", 1) + json.dumps({"id": 1, **own}) + "\n", "said.txt": "Be brief.\n"})
    train, _, _ = built(tmp_path, "data mix {", '  "a.jsonl"', '  system = file("said.txt")', "  shuffle = false", "}",
                        train="mix")  # fmt: skip
    assert [one[0]["content"].strip() for one in train["messages"]] == ["Be brief.", "mine"]


def test_a_prompts_column_is_named_once_for_every_source(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", [{"question": f"{name}{i}", "answer": "4"} for i in range(2)])
    train, _, _ = built(
        tmp_path, "data mix {", '  "a.jsonl"', '  "b.jsonl"', "  prompt = question", "  shuffle = false", "}",
        "batch gbs=4 micro=2", train="mix", method="method grpo(rewards=format, generations=2)",
    )  # fmt: skip
    assert [one[0]["content"] for one in train["prompt"]] == ["a0", "a1", "b0", "b1"]
    assert train["answer"][:] == ["4"] * 4


def test_repeated_rows_are_left_out_before_the_holdout_is_split_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, {"a.jsonl": turns("a", 4), "b.jsonl": turns("a", 6)})
    train, held, plan = built(
        tmp_path, "data mix {", '  "a.jsonl"', '  "b.jsonl"', "  unique", "  holdout = 2", "}", "eval(every=epoch)",
        train="mix",
    )  # fmt: skip
    assert plan["unique"] is True
    assert sorted([*first_prompts(train), *first_prompts(held)]) == [f"a{i}" for i in range(6)]
    assert "4 of 10 rows are left out, because they equal earlier rows" in capsys.readouterr().out


class Words:
    """A tokenizer with one token per word."""

    chat_template = "there is one"

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[str]]:
        return {"input_ids": text.split()}

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> str:
        return " ".join(f"<{one['role']}> {one['content']}" for one in turns)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ("text", [{"text": "one two"}, {"text": "one two three four five six"}]),
        ("prompt_completion", [{"prompt": "one", "completion": " two"}, {"prompt": "a b c", "completion": " d e f"}]),
        ("messages", [{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}]},
                      {"messages": [{"role": "user", "content": "a b c"}, {"role": "assistant", "content": "d e"}]}]),
    ],
)  # fmt: skip
def test_short_rows_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: str, rows: list[dict[str, Any]]
) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ("data mix {", '  "a.jsonl"', f"  format = {shape}", "  min_tokens = {}", "  shuffle = false", "}")
    put(tmp_path, {"model/config.json": json.dumps(CONFIG)})
    text = "\n".join(["xpc 1", 'train "model" on mix for 1 epochs', "hardware cpu", *lines, ""])
    put(tmp_path / "least.bundle", compiled(text.replace("{}", "6"), str(tmp_path), "least.xp"))
    bundle = read(str(tmp_path / "least.bundle"))
    train, _ = data.build(bundle, Words())
    assert len(train) == 1
    assert "1 of 2 rows are left out: they have fewer than 6 tokens" in capsys.readouterr().out
    bundle.data["min_tokens"] = 100
    with pytest.raises(RunError, match="every row has fewer than 100 tokens: there are no rows to train on"):
        data.build(bundle, Words())
