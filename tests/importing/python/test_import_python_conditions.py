"""Conditions of a script that depend on files or columns, which the import cannot see. The import can decide two kinds
of conditions. A file that the script itself writes does not exist yet. A branch that only removes columns makes no
difference. For every other condition, the import asks the user for a decision.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import imported
from test_import_python_partial import ROWS, decisions, script


@pytest.mark.parametrize(("before", "seq"), [
    ("if os.path.exists('out/adapter'):\n    n = 128\nelse:\n    n = 96\n"
     "model = None\nmodel.save_pretrained('out/adapter')", 96),
    ("from pathlib import Path\nn = 128\nif not Path('cache').exists():\n    n = 96\n"
     "Dataset.from_list([]).save_to_disk('cache')", 96),
    ("n = 96\nif os.path.isfile('/data/snapshots/0752c79'):\n    n = 128", 96),
    ("n = 96\nif os.path.exists('/data/snapshots/0752c79'):\n    n = 128", 128),
    ("n = 96\nif os.path.isfile('/data/rows.bin'):\n    n = 128", 128),
])  # fmt: skip
def test_a_path_that_the_script_writes_or_that_is_no_file_does_not_exist(tmp_path: Path, before: str, seq: int) -> None:
    found = script(tmp_path, before, "n")
    assert f"seq = {seq}" in found.text
    assert len(decisions(found)) == 1


def test_conditions_on_one_path_have_one_outcome(tmp_path: Path) -> None:
    before = """
seen = os.path.exists("/data/rows.bin")
n, rate = 96, 1
if seen:
    n = 128
if not seen:
    n = n + 1
"""
    assert "seq = 128" in script(tmp_path, before, "n").text


@pytest.mark.parametrize("branch", [
    "extra = [one for one in rows.column_names if one != 'text']\nif extra:\n    rows = rows.remove_columns(extra)",
    "if 'id' in rows.column_names:\n    rows = rows.remove_columns(['id'])",
    "if 'id' in rows.column_names:\n    rows = rows.remove_columns('id')",
])  # fmt: skip
def test_columns_that_are_removed_if_they_are_there_need_no_decision(tmp_path: Path, branch: str) -> None:
    found = script(tmp_path, f"rows = {ROWS}\n{branch}", data="rows")
    assert not found.draft.wrong, found.messages
    assert not decisions(found)


@pytest.mark.parametrize("branch", [
    "if 'id' in rows.column_names:\n    rows = rows.remove_columns(['text'])",
    "if 'id' in rows.column_names:\n    rows = rows.select(range(10))",
    "if 'id' not in rows.column_names:\n    rows = rows.remove_columns(['id'])",
])  # fmt: skip
def test_another_branch_on_columns_is_a_decision(tmp_path: Path, branch: str) -> None:
    assert decisions(script(tmp_path, f"rows = {ROWS}\n{branch}", data="rows"))


def test_the_evaluation_on_a_folder_of_arrow_files_names_its_own_file(tmp_path: Path) -> None:
    folder = "from datasets import load_from_disk\nboth = load_from_disk('rows')"
    evaluated = "both['train'], eval_dataset=both['validation']"
    found = script(tmp_path, folder, "64, eval_strategy='epoch'", evaluated)
    assert 'on "./rows-train.parquet"' in found.text
    assert 'data = "./rows-validation.parquet"' in found.text
    assert len(decisions(found)) == 1


def test_a_configuration_that_a_spec_cannot_name_is_a_decision(tmp_path: Path) -> None:
    found = script(tmp_path, data='load_dataset("org/rows", "Hard Rows", split="train")')
    (decision,) = decisions(found)
    assert "a spec cannot name this configuration" in decision
    assert "on org/rows" in found.text


@pytest.mark.parametrize(("before", "model"), [
    ("config = AutoConfig.from_pretrained('org/base')\n"
     "if config.model_type in VISION_MODELS:\n    model = AutoModelForImageTextToText.from_pretrained('org/base')\n"
     "else:\n    model = AutoModelForCausalLM.from_pretrained('org/base')", "model"),
    ("model = AutoModelForCausalLM.from_pretrained('org/base')\n"
     "if hasattr(model, 'vision_tower'):\n    for one in model.vision_tower.parameters():\n"
     "        one.requires_grad = False", "model"),
])  # fmt: skip
def test_conditions_on_images_have_the_outcome_for_a_model_of_text(tmp_path: Path, before: str, model: str) -> None:
    names = "AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText"
    found = script(tmp_path, f"from transformers import {names}\n{before}", model=model)
    assert "train org/base on org/rows" in found.text
    assert not decisions(found)
    assert any("the import assumes that the model reads only text" in one for one in found.messages)


def test_name_of_the_tokenizer_may_be_that_of_the_loaded_model(tmp_path: Path) -> None:
    before = (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "model = AutoModelForCausalLM.from_pretrained('org/base')\n"
        "tokenizer = AutoTokenizer.from_pretrained(model.config._name_or_path)"
    )
    found = script(tmp_path, before, data=f"{ROWS}, processing_class=tokenizer", model="model")
    assert not decisions(found)


def test_text_file_is_not_taken_for_the_rows_of_an_unknown_name(tmp_path: Path) -> None:
    before = (
        "with open('last_run.txt') as file:\n    name = file.read()\n"
        "with open(f'runs/{name}.json') as file:\n    rows = json.load(file)\nrows = Dataset.from_list(make(rows))"
    )
    found = script(tmp_path, before, data="rows")
    assert "last_run.txt" not in found.text.partition("# Parts")[0]
    assert any(one.startswith("which data the run trains on") for one in decisions(found))


def test_data_sets_of_a_concatenation_that_are_not_known_are_counted(tmp_path: Path) -> None:
    before = (
        "from datasets import concatenate_datasets\n"
        f"rows = concatenate_datasets([Dataset.from_list(collect(1)), {ROWS}, Dataset.from_list(collect(2))])"
    )
    found = script(tmp_path, before, data="rows")
    assert "on org/rows" in found.text
    assert any("2 of the 3 datasets that the script joins are not known" in one for one in decisions(found))


@pytest.mark.parametrize(("inside", "model"), [("pass", "org/last"), ("break", "org/first")])
def test_the_branch_after_a_loop_runs_if_the_loop_does_not_break(inside: str, model: str) -> None:
    found = imported(f"""
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
model = "org/first"
for name in ("a", "b"):
    {inside}
else:
    model = "org/last"
SFTTrainer(model, SFTConfig("out"), train_dataset=load_dataset("org/rows", split="train")).train()
""", name="train.py")  # fmt: skip
    assert f"train {model} on org/rows" in found.text, found.messages


def test_an_attribute_of_a_class_or_a_module_may_be_none() -> None:
    found = imported("""
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
class Settings:
    ROWS = None
rows = load_dataset("org/rows", split="train")
if Settings.ROWS is not None:
    rows = rows.select(range(Settings.ROWS))
SFTTrainer("Qwen/Qwen2.5-0.5B", SFTConfig("out"), train_dataset=rows).train()
""", name="train.py")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-0.5B on org/rows" in found.text


@pytest.mark.parametrize("branch", [
    "if len(rows) > 500:\n    rows = rows.select(range(500))",
    "if len(rows) > n:\n    rows = rows.shuffle(seed=1).select(range(n))\n    print(len(rows))",
    "if n and len(rows) >= n:\n    rows = rows.select(range(n))",
])  # fmt: skip
def test_a_condition_that_only_shortens_the_data_needs_no_decision(tmp_path: Path, branch: str) -> None:
    found = script(tmp_path, f"n = 500\nrows = {ROWS}\n{branch}", data="rows")
    assert not found.draft.wrong, found.messages
    assert not decisions(found)
    assert "= 500" in found.text


@pytest.mark.parametrize("branch", [
    "if len(rows) > 900:\n    rows = rows.select(range(500))",
    "if len(rows) < 500:\n    rows = rows.select(range(500))",
    "if len(rows) > 500:\n    rows = rows.select(range(500))\nelse:\n    rows = load_dataset('org/b', split='train')",
    "if unknown() and len(rows) > 500:\n    rows = rows.select(range(500))",
])  # fmt: skip
def test_another_condition_on_the_number_of_rows_is_a_decision(tmp_path: Path, branch: str) -> None:
    assert decisions(script(tmp_path, f"rows = {ROWS}\n{branch}", data="rows"))


@pytest.mark.parametrize(("names", "rate"), [(("train", "infer"), "3e-6"), (("score", "train_dpo"), "1e-4")])
def test_the_only_subcommand_that_trains_is_taken(tmp_path: Path, names: tuple[str, str], rate: str) -> None:
    before = f"""
def build():
    parser = argparse.ArgumentParser()
    parts = parser.add_subparsers(required=True)
    one, two = parts.add_parser("{names[0]}"), parts.add_parser("{names[1]}")
    one.add_argument("--rate", type=float, default=3e-6)
    two.add_argument("--rate", type=float, default=1e-4)
    one.set_defaults(func=run)
    two.set_defaults(func=run)
    return parser
def run(args):
    SFTTrainer(model="Qwen/Qwen2.5-0.5B", train_dataset={ROWS},
               args=SFTConfig("out", max_length=64, learning_rate=args.rate)).train()
args = build().parse_args()
args.func(args)
"""
    found = imported("import argparse\nfrom datasets import load_dataset\nfrom trl import SFTConfig, SFTTrainer\n"
                     + before, name="train.py", root=str(tmp_path))  # fmt: skip
    assert f"lr = {rate}" in found.text


def test_a_part_of_several_tables_is_an_error(tmp_path: Path) -> None:
    tables = "pd.concat([pd.read_json('a.jsonl', lines=True), pd.read_json('b.jsonl', lines=True)])"
    before = f"import pandas as pd\nrows = Dataset.from_pandas({tables}.head(20))"
    found = script(tmp_path, before, data="rows")
    assert any("the script takes a part of several joined datasets" in one for one in found.messages)
