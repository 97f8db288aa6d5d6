"""For a mixture of datasets, a bundle has exactly the rows that the alignment handbook and Open-R1 would build, in the
same order.

The code (https://github.com/huggingface/alignment-handbook at 925acdf, src/alignment/data.py, get_dataset; Open-R1's
src/open_r1/utils/data.py is the same) is rewritten here as `by_the_rule`. The bundle and `by_the_rule` get the same
made-up data.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from compile_support import checked, codes, compiled, put
from late_imports import datasets
from run_features import read

from xpc.runtime.core import data as runtime
from xpc.runtime.core.rows import FIELDS

pytestmark = pytest.mark.slow


SIZES = {"a": 101, "b": 57, "c": 30, "d": 9}
Part = tuple[str, float | None]


def rows(name: str) -> list[dict[str, Any]]:
    """Rows of a source. They are conversations whose first turn contains `name`, and have columns `id` and `source`,
    which the mixture must drop.
    """
    return [
        {
            "id": i, "source": name,
            "messages": [{"role": "user", "content": f"{name}{i}"}, {"role": "assistant", "content": "yes"}],
        }
        for i in range(SIZES[name])
    ]  # fmt: skip


def by_the_rule(parts: list[Part], seed: int, test_split_size: int | float | None) -> tuple[Any, Any]:
    """The rows that the handbook's get_dataset makes of a dataset_mixture. This function restates the handbook's
    code.
    """
    kept = []
    for name, weight in parts:
        part = datasets.Dataset.from_list(rows(name)).select_columns(["messages"])
        if weight is not None:
            part = part.shuffle(seed=seed).select(range(int(len(part) * weight)))
        kept.append(part)
    combined = datasets.concatenate_datasets(kept).shuffle(seed=seed)
    if test_split_size is None:
        return combined, None
    split = combined.train_test_split(test_size=test_split_size, seed=seed)
    return split["train"], split["test"]


def percent(share: float) -> str:
    return f"{round(share * 100, 9):g}%"


def by_the_bundle(folder: Path, parts: list[Part], seed: int, holdout: int | float | None) -> Any:
    """Compile a mixture of these parts, and return the rows that its bundle's runtime builds."""
    lines = ["xpc 1", "", 'train "model" on mix for 1 epochs', "", "hardware cpu", "", "data mix {"]
    for name, weight in parts:
        take = "" if weight is None else f"    take = {percent(weight)}\n"
        lines.append(f'  "{name}.jsonl" {{\n    columns = [messages]\n{take}  }}')
    lines.append(f"  seed = {seed}")
    if holdout is not None:
        lines.append(f"  holdout = {percent(holdout) if isinstance(holdout, float) else holdout}")
    text = "\n".join([*lines, "}", "", "eval(every=epoch)" if holdout is not None else "", "", ""])
    config = {
        "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 512,
    }  # fmt: skip
    files = {f"{name}.jsonl": "".join(json.dumps(row) + "\n" for row in rows(name)) for name in SIZES}
    put(folder, {**files, "model/config.json": json.dumps(config)})
    put(folder / "mix.bundle", compiled(text, str(folder), "mix.xp"))
    return runtime.build(read(str(folder / "mix.bundle")))


def first_turns(found: Any) -> Any:
    return None if found is None else [turns[0]["content"] for turns in found["messages"]]


@pytest.mark.parametrize(
    ("parts", "seed", "holdout"),
    [
        ([("a", 1.0), ("b", 1.0)], 0, 20),
        ([("a", 1.0), ("b", 1.0)], 0, None),
        ([("a", 0.5), ("b", 0.25)], 0, None),
        ([("a", 0.3), ("b", 1.0), ("c", 0.4), ("d", 1.0)], 42, 7),
        ([("a", 0.07), ("b", 0.29), ("c", 0.57)], 7, 0.1),
        ([("a", 1.0)], 0, 11),
        ([("a", 1.0)], 3, None),
        ([("a", None), ("b", 0.5)], 0, None),
        ([("a", 0.5), ("a", 0.5)], 0, 0.05),
    ],
)
def test_the_rows_are_those_of_the_published_rule(
    tmp_path: Path, parts: list[Part], seed: int, holdout: int | float | None
) -> None:
    train, held = by_the_bundle(tmp_path, parts, seed, holdout)
    wanted, wanted_held = by_the_rule(parts, seed, holdout)
    assert (first_turns(train), first_turns(held)) == (first_turns(wanted), first_turns(wanted_held))
    assert train.column_names == ["messages"]


def test_another_rule_gives_other_rows(tmp_path: Path) -> None:
    """The tests above can fail: taking the first rows of each source, or leaving out the last shuffle, would give other
    rows.
    """
    train, _ = by_the_bundle(tmp_path, [("a", 0.5), ("b", 0.25)], 0, None)
    first = [f"a{i}" for i in range(50)] + [f"b{i}" for i in range(14)]
    assert sorted(first_turns(train)) != sorted(first)
    assert first_turns(train)[:50] != [one for one in first_turns(train) if one.startswith("a")]


@pytest.mark.parametrize("tenths", range(1, 1000, 7))
def test_a_share_is_the_number_that_its_digits_say(tenths: int) -> None:
    """`take = 0.7%` means exactly 0.007. In floating point, 0.7 / 100 is slightly less, so 6 instead of 7 rows of 1,000
    would be taken.
    """
    text = f"xpc 1\ntrain qwen2.5-3b on mix\ndata mix {{\n  smoltalk(take={tenths / 10:g}%)\n}}\n"
    spec = checked(text).spec
    assert spec is not None
    take = spec.data[0].take
    assert take is not None
    assert take.value == float(f"{tenths}e-3")


def test_complete_dataset_reaches_the_trainer_in_its_order(tmp_path: Path) -> None:
    """As in the handbook and Open-R1, a dataset that is not part of a mixture keeps its order. The trainer's sampler
    shuffles the rows later.
    """
    train, _ = by_the_bundle(tmp_path, [("a", None)], 0, None)
    assert first_turns(train) == [f"a{i}" for i in range(SIZES["a"])]


@pytest.mark.parametrize(("split", "warned"), [("test_sft", True), ("test", True), ("Test", True), ("train", False)])
def test_training_on_a_split_called_test_is_warned_of(split: str, warned: bool) -> None:
    text = f"xpc 1\ntrain qwen2.5-3b on ultrachat-200k[{split}] for 1 epochs\nhardware 8 x h100-80gb\n"
    assert ("XP507" in codes(checked(text), "warning")) is warned


def test_nothing_of_the_made_data_is_shared_between_runs(tmp_path: Path) -> None:
    """A run with another seed gets other rows. So the cache of `datasets` does not return the rows that were made for
    the first seed.
    """
    one = first_turns(by_the_bundle(tmp_path / "one", [("a", 0.5)], 0, None)[0])
    two = first_turns(by_the_bundle(tmp_path / "two", [("a", 0.5)], 1, None)[0])
    assert one != two
    assert os.path.exists(tmp_path / "one" / "mix.bundle" / "bundle.toml")


@pytest.mark.parametrize("columns", ["messages", "messages, tools"])
def test_columns_that_are_not_named_are_excluded(tmp_path: Path, columns: str) -> None:
    """If `columns` does not name a column, the column is dropped, even if the chat template would read it. If `columns`
    names it, its value is stored in the first message, where the template finds it.
    """
    put(tmp_path, {"a.jsonl": json.dumps({**rows("a")[0], "tools": "[]", "chat_template_kwargs": {"x": 1}}) + "\n"})
    source = f'data mix {{\n  "a.jsonl" {{\n    columns = [{columns}]\n  }}\n}}\n'
    text = "xpc 1\ntrain qwen2.5-0.5b on mix for 1 epochs\nhardware cpu\n" + source
    put(tmp_path / "mix.bundle", compiled(text, str(tmp_path), "mix.xp"))
    train, _ = runtime.build(read(str(tmp_path / "mix.bundle")))
    assert train.column_names == ["messages"]
    carried = train[0]["messages"][0].get(FIELDS) or ""
    assert ("tools" in carried) == ("tools" in columns)
    assert "chat_template_kwargs" not in carried


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("prompt = problem", ["answer", "level", "prompt"]),
        ("prompt = problem\n  format = prompt", ["answer", "level", "prompt"]),
    ],
)
def test_rewards_get_the_columns_next_to_the_prompt(tmp_path: Path, written: str, left: list[str]) -> None:
    """Reward functions get all columns except `messages`, as in Open-R1's grpo.py."""
    row = {"problem": "1 + 1?", "answer": "2", "level": 3, "messages": rows("a")[0]["messages"]}
    put(tmp_path, {"math.jsonl": json.dumps(row) + "\n"})
    text = (
        'xpc 1\ntrain qwen2.5-0.5b on "math.jsonl" for 1 epochs\nhardware cpu\n'
        f"method grpo(generations=2, rewards=[format])\nbatch(gbs=2, micro=2)\ndata {{\n  {written}\n}}\n"
    )
    put(tmp_path / "math.bundle", compiled(text, str(tmp_path), "math.xp"))
    train, _ = runtime.build(read(str(tmp_path / "math.bundle")))
    assert sorted(train.column_names) == left
