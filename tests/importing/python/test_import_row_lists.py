"""Scripts that hold their rows in lists and data frames. Slices, shuffles and lengths mean the same in the import as in
Python.
"""

from __future__ import annotations

import pytest
from import_support import Imported, imported

HEAD = """
import json, random
import pandas as pd
from pathlib import Path
from datasets import Dataset, load_dataset
from sklearn.model_selection import train_test_split
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
"""
LINES = 'rows = [json.loads(line) for line in open("rows.jsonl")]\n'
JSON = 'rows = json.load(open("rows.json"))\n'
TRAIN = """
train = Dataset.from_list([{"prompt": r["q"], "completion": r["a"]} for r in rows])
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=train).train()
"""


def script(text: str, *options: str) -> Imported:
    return imported(HEAD + text, *options, name="train.py")


@pytest.mark.parametrize("read", [
    LINES, JSON, 'rows = [json.loads(x) for x in Path("r.jsonl").read_text().split()]\n',
    'rows = []\nfor n, x in enumerate(open("r.jsonl").read().strip().split("\\n")):\n    rows.append(json.loads(x))\n',
])  # fmt: skip
@pytest.mark.parametrize(("part", "setting"), [
    ("rows = rows[:100]", "limit = 100"),
    ("random.shuffle(rows); rows = rows[:100]", "take = 100"),
    ("rows = random.sample(rows, 100)", "take = 100"),
    ("rows = rows[:-20]", "holdout = 20"),
])  # fmt: skip
def test_part_of_the_rows_becomes_a_setting(read: str, part: str, setting: str) -> None:
    if "split()" in read:
        read = read.replace("split()", "splitlines()")
    found = script(read + part + TRAIN)
    assert not found.draft.wrong, found.messages
    assert setting in found.text


def test_all_rows_are_all_rows() -> None:
    assert "limit" not in script(LINES + "rows = rows[:]" + TRAIN).text


@pytest.mark.parametrize("read", [LINES, JSON])
def test_last_share_of_the_rows_is_held_out(read: str) -> None:
    found = script(read + """
cut = int(len(rows) * 0.9)
train, test = Dataset.from_list(rows[:cut]), Dataset.from_list(rows[cut:])
args = SFTConfig("out", eval_strategy="epoch")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=train, eval_dataset=test).train()
""")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert "holdout = 10%" in found.text
    assert "data = " not in found.text


def test_middle_of_the_rows_is_an_error() -> None:
    assert script(LINES + "rows = rows[100:200]" + TRAIN).draft.wrong


def test_rows_in_groups_of_a_column_are_not_known() -> None:
    found = script(LINES + """
groups, train, test = {}, [], []
for r in rows:
    groups.setdefault(r["source"], []).append(r)
for name, items in groups.items():
    count = 1 if len(items) > 10 else 0
    test.extend(items[:count])
    train.extend(items[count:])
data = Dataset.from_list(train)
args = SFTConfig("out", eval_strategy="epoch" if test else "no")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=data, eval_dataset=data).train()
""")  # fmt: skip
    assert found.draft.wrong
    assert "every = never" not in found.text


FRAME = """
frame = pd.read_csv("rows.csv").rename(columns={"q": "prompt", "a": "completion"})
"""


def test_parts_of_a_data_frame_become_the_holdout() -> None:
    found = script(FRAME + """
frame = frame.sample(frac=1, random_state=3).reset_index(drop=True)
one, two = train_test_split(frame[["prompt", "completion"]], test_size=0.15, random_state=7)
train, test = Dataset.from_pandas(one.reset_index(drop=True)), Dataset.from_pandas(two)
args = SFTConfig("out", eval_strategy="epoch")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=train, eval_dataset=test).train()
""")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert "columns = [q, a]" in found.text
    assert "holdout = 15%" in found.text
    assert "seed = 7" in found.text
    assert found.outcomes["eval_dataset"] == "irrelevant", "the held-out rows are those that the spec evaluates on"


def test_a_function_that_a_data_frame_applies_to_each_row_makes_columns() -> None:
    found = script("""
def asked(row):
    row["prompt"] = f"Q: {row['q']}"
    return row
frame = pd.read_csv("rows.csv").rename(columns={"a": "completion"}).apply(asked, axis=1)
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=Dataset.from_pandas(frame)).train()
""")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert 'prompt_template = "Q: {{ q }}"' in found.text
    assert "columns = [q, a]" in found.text


@pytest.mark.parametrize(("part", "setting"), [
    ("head(50)", "limit = 50"), ("sample(50)", "take = 50"), ("sample(n=50)", "take = 50"),
    ('drop(columns=["x"])', "columns = [q, a]"),
])  # fmt: skip
def test_operations_of_a_data_frame_become_settings(part: str, setting: str) -> None:
    found = script(FRAME + f"""
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=Dataset.from_pandas(frame.{part})).train()
""")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert setting in found.text


@pytest.mark.parametrize("value", [
    "'<s>' + pd.Series(asked) + frame['completion']", "frame.apply(joined, axis=1)", "[one for one in asked]",
])  # fmt: skip
def test_a_column_that_the_script_computes_is_an_error(value: str) -> None:
    found = script(FRAME + f"""
frame["text"] = {value}
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"),
           train_dataset=Dataset.from_pandas(frame[["text"]])).train()
""")  # fmt: skip
    assert any("the script computes the column `text` of its table" in one for one in found.messages)


def test_a_column_that_copies_another_one_is_resolved() -> None:
    found = script("""
frame = pd.read_csv("rows.csv")
frame["text"] = frame["story"]
print(frame["title"])
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=Dataset.from_pandas(frame)).train()
""")
    assert not found.draft.wrong, found.messages
    assert "columns = [story]" in found.text


def test_rows_that_a_data_frame_drops_are_an_error() -> None:
    assert script(FRAME + """
frame = frame.drop(frame[frame.prompt.isna()].index)
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=Dataset.from_pandas(frame)).train()
""").draft.wrong  # fmt: skip


HELD = """
parts = load_dataset("org/rows", split="train").train_test_split(test_size=SIZE, seed=1)
train, test = parts["train"].select(range(1000)), parts["test"].select(range(10))
args = SFTConfig("out", eval_strategy="epoch")
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=train, eval_dataset=test).train()
"""


@pytest.mark.parametrize(("size", "rows"), [("0.05", 1053), ("40", 1040)])
@pytest.mark.parametrize("taken", ["select(range(1000))", "take(1000)"])
def test_rows_taken_after_a_split_are_as_many_in_the_spec(size: str, rows: int, taken: str) -> None:
    found = script(HELD.replace("SIZE", size).replace("select(range(1000))", taken))
    assert f"take = {rows}" in found.text
    assert {"select", "eval_dataset"} <= set(found.draft.differences)


def test_rows_of_several_files_are_several_sources() -> None:
    found = script("""
rows = []
for name in ["a.jsonl", "b.jsonl"]:
    with open(name) as file:
        for line in file:
            rows.append(json.loads(line))
table = {"prompt": [r["q"] for r in rows], "chosen": [r["x"] for r in rows], "rejected": [r["y"] for r in rows]}
data = Dataset.from_dict(table)
DPOTrainer(model="Qwen/Qwen2.5-0.5B", args=DPOConfig("out"), train_dataset=data).train()
""")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert [one.ref for one in found.draft.sources] == ['"a.jsonl"', '"b.jsonl"']
    assert {one.columns for one in found.draft.sources} == {("q", "x", "y")}


def test_filter_over_several_files_is_an_error() -> None:
    found = script("""
rows = []
for name in ["a.jsonl", "b.jsonl"]:
    for line in open(name):
        row = json.loads(line)
        if row["x"] == row["y"]:
            continue
        rows.append(row)
DPOTrainer(model="Qwen/Qwen2.5-0.5B", args=DPOConfig("out"), train_dataset=Dataset.from_list(rows)).train()
""")  # fmt: skip
    assert any("skips rows" in one for one in found.messages)


FILTERED = """
kept = []
for line in open("rows.jsonl"):
    if "=" not in line:
        continue
    kept.append(json.loads(line))
"""


def test_a_condition_that_only_calls_the_tokenizer_is_no_filter() -> None:
    found = script("""
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
rows = []
for line in open("rows.jsonl"):
    row = json.loads(line)
    if len(row["a"]) > 9:
        print(len(tokenizer.encode(row["a"])))
    rows.append({"q": row["q"], "a": row["a"]})
""" + TRAIN)  # fmt: skip
    assert not found.draft.wrong, found.messages


@pytest.mark.parametrize(("rows", "wrong"), [(LINES, False), ("rows = kept\n", True)])
def test_filter_in_a_loop_over_another_file_is_no_error(rows: str, wrong: bool) -> None:
    found = script(FILTERED + rows + TRAIN)
    assert any("skips rows" in one for one in found.messages) is wrong, found.messages


@pytest.mark.parametrize("taken", ["take(int(sys.argv[1]))", "select(range(int(sys.argv[1])))"])
def test_an_unknown_number_of_rows_is_an_error(taken: str) -> None:
    found = script(f"""
rows = load_dataset("org/rows", split="train").{taken}
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=rows).train()
""")
    assert any("the selected rows are not known" in one for one in found.messages), found.messages
    assert found.draft.wrong


@pytest.mark.parametrize(("rows", "words"), [
    ('load_dataset("csv", data_files="a.csv", delimiter=";", split="train")', "this argument changes how"),
    ('load_dataset("json", data_files="a.json", field="rows", split="train")', "this argument changes how"),
    ('list(load_dataset("org/rows", split="train"))[::2]', "the selected rows are not known"),
    ('load_dataset("org/rows", split="train").map(lambda b: {"text": b["q"] + b["a"]}, batched=True)',
     "joins columns of several rows"),
    ('load_dataset("org/rows", split="train").map(lambda r: {"text": f"{r[\'q\']!r}: " + r["a"]})', "`repr`"),
])  # fmt: skip
def test_rows_that_a_spec_would_read_otherwise_are_an_error(rows: str, words: str) -> None:
    found = script(f"""
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset={rows}).train()
""")
    assert found.draft.wrong
    assert any(words in one for one in found.messages), found.messages


def test_a_transform_of_rows_is_an_error_and_a_revision_is_in_the_spec() -> None:
    train = 'SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=rows).train()\n'
    load = '\nrows = load_dataset("org/rows", split="train", revision="v2", num_proc=2)\n'
    found = script(load + train)
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-0.5B on org/rows@v2" in found.text
    assert script(load + "rows.set_transform(lambda batch: batch)\n" + train).draft.wrong
