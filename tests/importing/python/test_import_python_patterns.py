"""Published scripts have helper functions, classes around the parser or the trainer, and functions that build rows. The
import reads scripts with these patterns.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from import_support import HARDWARE, Imported, imported

pytestmark = pytest.mark.slow

HEAD = """\
import argparse, yaml
from datasets import Dataset, load_dataset
from peft import LoraConfig
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM, DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
"""
ROWS = 'load_dataset("org/rows", split="train")'


def sft(settings: str = "", rows: str = ROWS, more: str = "") -> str:
    return (f'trainer = SFTTrainer(model="Qwen/Qwen2.5-3B", train_dataset={rows}, {more}\n'
            f'                     args=SFTConfig(output_dir="out", {settings}))\ntrainer.train()\n')  # fmt: skip


def script(text: str, *arguments: str, root: str | None = None) -> Imported:
    return imported(HEAD + text, *arguments, name="train.py", **({} if root is None else {"root": root}))


def launched(folder: Path, command: str, *arguments: str, **files: str) -> Imported:
    for name, text in files.items():
        location = folder / (name.replace("__", "/") + ".py")
        location.parent.mkdir(parents=True, exist_ok=True)
        location.write_text(text)
    return imported(command, *HARDWARE, *arguments, name="run.sh", root=str(folder))


LINEAR = """
def find_all_linear_names(model):
    cls = bnb.nn.Linear4bit
    found = set()
    for name, module in model.named_modules():
        if isinstance(module, cls):
            names = name.split(".")
            found.add(names[0] if len(names) == 1 else names[-1])
    if "lm_head" in found:
        found.remove("lm_head")
    return list(found)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B")
"""
ADAPTER = "peft_config=LoraConfig(r=8, target_modules=find_all_linear_names(model)),"


def test_function_that_finds_the_linear_layers_is_all_linear() -> None:
    found = script(LINEAR + sft(more=ADAPTER))
    assert "targets = all-linear" in found.text
    assert not found.draft.wrong


@pytest.mark.parametrize(("old", "new"), [
    ("isinstance(module, cls)", 'isinstance(module, cls) and "vision" not in name'),
    ("bnb.nn.Linear4bit", "bnb.nn.Embedding"),
    ("return list(found)", "return list(found)[:1]"),
], ids=["filter", "class", "part"])  # fmt: skip
def test_function_that_finds_other_layers_is_an_error(old: str, new: str) -> None:
    found = script(LINEAR.replace(old, new) + sft(more=ADAPTER))
    assert found.outcomes["lora_target_modules"] == "error"


def test_set_has_what_is_added_to_it() -> None:
    text = 'names = set()\nfor one in ("q_proj", "k_proj", "q_proj"):\n    names.add(one)\nnames.discard("k_proj")\n'
    found = script(text + sft(more="peft_config=LoraConfig(r=8, target_modules=list(names)),"))
    assert "targets = [q_proj]" in found.text


def test_method_that_changes_a_list_in_an_unknown_way_makes_it_unknown() -> None:
    found = script("names = ['q_proj']\nnames.prune()\n"
                   + sft(more="peft_config=LoraConfig(r=8, target_modules=names),"))  # fmt: skip
    assert found.outcomes["lora_target_modules"] == "error"


PARSER = """
class Base:
    def __init__(self, text):
        self.parser = argparse.ArgumentParser(text)
class Parser(Base):
    def __init__(self):
        super().__init__("train")
        group = self.parser.add_argument_group("all")
        group.add_argument("--rate", type=float, default=1e-5)
    def parse(self):
        return self.parser.parse_args()
args = Parser().parse()
"""


def test_super_sets_what_the_base_class_sets(tmp_path: Path) -> None:
    text = HEAD + PARSER + sft("learning_rate=args.rate")
    assert "lr = 1e-5" in imported(text, name="train.py").text
    assert "lr = 3e-6" in launched(tmp_path, "python train.py --rate 3e-6\n", train=text).text


def test_arguments_of_super_are_those_of_the_library_class() -> None:
    text = """
class Own(SFTTrainer):
    def __init__(self, rate, **rest):
        super().__init__(args=SFTConfig(output_dir="out", learning_rate=rate), **rest)
trainer = Own(3e-6, model="Qwen/Qwen2.5-3B", train_dataset=load_dataset("org/rows", split="train"))
trainer.train()
"""
    found = script(text)
    assert "lr = 3e-6" in found.text
    both = text.replace('        super().__init__(args=SFTConfig(output_dir="out", learning_rate=rate), **rest)', (
        "        if check():\n"
        '            super().__init__(args=SFTConfig(output_dir="out", learning_rate=rate), **rest)\n'
        "        else:\n"
        '            super().__init__(args=SFTConfig(output_dir="out", learning_rate=1e-3), **rest)'))  # fmt: skip
    assert script(both).draft.wrong


COMMANDS = (
    HEAD
    + """
parser = argparse.ArgumentParser()
parts = parser.add_subparsers(dest="command")
one = parts.add_parser("sft")
one.add_argument("--rate", type=float, default=1e-5)
two = parts.add_parser("score")
two.add_argument("--rate", type=float, default=7.0)
args = parser.parse_args()
if args.command == "sft":
"""
    + "".join(f"    {line}\n" for line in sft("learning_rate=args.rate").splitlines())
)


def test_subcommand_of_a_command_chooses_its_arguments(tmp_path: Path) -> None:
    found = launched(tmp_path, "python train.py sft --rate 3e-6\n", train=COMMANDS)
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text
    assert "lr = 1e-5" in launched(tmp_path, "python train.py sft\n", train=COMMANDS).text


def test_module_stays_read_after_a_branch_that_imports_it(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
def early():
    if check():
        from parts import rate
early()
from parts import rate
"""
        + sft("learning_rate=rate()")
    )
    parts = "def rate():\n    return 3e-6\n"
    assert "lr = 3e-6" in launched(tmp_path, "python train.py\n", train=text, parts=parts).text


def test_function_that_calls_itself_with_unknown_values_ends() -> None:
    text = """
def flat(value, prefix=""):
    out = {}
    for key, one in value.items():
        if isinstance(one, dict):
            out.update(flat(one, key))
        elif isinstance(one, list):
            out.update(flat(one[0], key))
        else:
            out.update(flat(one, prefix))
    return out
names = flat(fetch())
def depth(table):
    return {key: depth(one) if isinstance(one, dict) else one for key, one in table.items()}
rates = depth({"a": {"b": {"c": {"rate": 3e-6}}}})
"""
    assert "lr = 3e-6" in script(text + sft('learning_rate=rates["a"]["b"]["c"]["rate"]')).text


def test_lines_for_a_notebook_are_skipped_in_a_script() -> None:
    assert "lr = 3e-6" in imported("!pip install trl\n%cd /content\n" + HEAD + sft("learning_rate=3e-6"),
                                   name="train.py").text  # fmt: skip


def test_progress_bar_gives_its_items(tmp_path: Path) -> None:
    text = """
rows = []
with open("rows.jsonl") as handle:
    for line in tqdm(handle, desc="rows"):
        rows.append(json.loads(line))
"""
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
    found = imported("import json\n" + HEAD + text + sft(rows="Dataset.from_list(rows)"), name="train.py",
                     root=str(tmp_path))  # fmt: skip
    assert 'on "rows.jsonl"' in found.text
    assert not found.draft.wrong


@pytest.mark.parametrize("call", [
    'map(build, fn_kwargs={"start": "Q: "})',
    'map(answer, input_columns="answer").map(build, fn_kwargs=dict(start="Q: "))',
])  # fmt: skip
def test_arguments_of_map_reach_its_function(call: str) -> None:
    text = """
def build(row, start):
    return {"text": f"{start}{row['question']} A: {row['answer']}"}
def answer(value):
    return {"answer": value}
"""
    found = script(text + sft(rows=f"{ROWS}.{call}"))
    assert '"Q: {{ question }} A: "' in found.text


def test_arguments_of_map_that_are_not_known_are_an_error() -> None:
    text = "def build(row, start):\n    return {'text': start + row['question']}\n"
    assert script(text + sft(rows=f"{ROWS}.map(build, fn_kwargs=fetch())")).draft.wrong


def test_getattr_of_a_field_that_no_version_has_is_its_default() -> None:
    text = """
config = SFTConfig(output_dir="out", learning_rate=1e-5)
if getattr(config, "own_field", False):
    config.learning_rate = 9e-1
if getattr(config, "packing", None):
    config.weight_decay = 0.5
"""
    found = script(text + sft().replace('SFTConfig(output_dir="out", )', "config"))
    assert "lr = 1e-5" in found.text
    assert found.outcomes["learning_rate"] == "mapped"


COLLATOR = 'data_collator=DataCollatorForCompletionOnlyLM("{}", tokenizer=AutoTokenizer.from_pretrained("q")),'
FORMAT = "def f(row):\n    return f\"### Q: {row['q']}\\n### A: {row['a']}\"\n"


@pytest.mark.parametrize(("marker", "differs"), [("### A:", False), ("<start>", True)])
def test_collator_with_another_marker_than_the_prompts_is_a_difference(marker: str, differs: bool) -> None:
    found = script(FORMAT + sft(more=COLLATOR.format(marker) + " formatting_func=f,"))
    assert any("`response_template`" in one for one in found.messages) is differs


def test_json_file_with_a_list_for_each_column_is_an_error() -> None:
    text = 'import json\nwith open("rows.json") as handle:\n    table = json.load(handle)\n'
    found = script(text + sft(rows="Dataset.from_dict(table)"))
    assert any("a list for each column" in one for one in found.messages)
    found = script(text + sft(rows="Dataset.from_list(table)"))
    assert not any("a list for each column" in one for one in found.messages)


def test_length_for_encoders_changes_nothing() -> None:
    text = (f'trainer = DPOTrainer(model="Qwen/Qwen2.5-3B", train_dataset={ROWS}, max_target_length=128,\n'
            '                     args=DPOConfig(output_dir="out"))\ntrainer.train()\n')  # fmt: skip
    assert script(text).outcomes["trainer.max_target_length"] == "irrelevant"
    inside = text.replace("max_target_length=128,", "").replace('"out"', '"out", max_target_length=128')
    assert script(inside).outcomes["max_target_length"] == "irrelevant"


GRPO = f"""
def good(completions, **rest):
    return [1.0 for one in completions]
trainer = GRPOTrainer(model="Qwen/Qwen2.5-3B", reward_funcs=good, train_dataset={ROWS},
                      args=GRPOConfig(output_dir="out"))
trainer.train()
"""


def test_stub_is_no_reward_function(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text('def good(completions, **rest):\n    raise NotImplementedError("write it")\n')
    found = script(GRPO, "--rewards", "r.py", root=str(tmp_path))
    assert b"return [1.0" in found.draft.files["r.py"]
    (tmp_path / "r.py").write_text("def good(completions, **rest):\n    return [2.0]\n")
    assert "r.py" not in script(GRPO, "--rewards", "r.py", root=str(tmp_path)).draft.files


OWN = (
    HEAD
    + """
class DPOTrainer:
    def __init__(self, model, rows):
        self.model = model
    def train(self):
        pass
trainer = DPOTrainer("Qwen/Qwen2.5-3B", [])
trainer.train()
"""
)


def test_class_of_the_script_with_the_name_of_a_trainer_is_its_own(tmp_path: Path) -> None:
    command = "python dpo.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows\n"
    found = launched(tmp_path, command, dpo=OWN.replace("DPOConfig, DPOTrainer, ", ""))
    assert any("a trainer of its own" in one for one in found.messages)


READS = (
    HEAD
    + """
parser = argparse.ArgumentParser()
parser.add_argument("--config")
with open(parser.parse_args().config) as handle:
    settings = yaml.safe_load(handle)
"""
    + sft('learning_rate=settings["training"]["rate"]')
)


def test_file_that_the_script_reads_itself_has_no_warning(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("training:\n  rate: 3e-6\nname: x\n")
    found = launched(tmp_path, "python train.py --config c.yaml\n", train=READS)
    assert "lr = 3e-6" in found.text
    assert not any("declares no such argument" in one for one in found.messages)


LOOP = """
rows = {rows}
for name in rows:
    rows[name] = rows[name].{change}
"""


def test_a_loop_over_the_splits_changes_the_rows() -> None:
    change = LOOP.format(rows='load_dataset("org/rows")', change='map(lambda row: {"text": row["story"]})')
    found = script(change + sft(rows='rows["train"]'))
    assert not found.draft.wrong, found.messages
    assert "columns = [story]" in found.text


def test_a_function_of_map_has_the_variables_of_its_call() -> None:
    rows = """
parts = []
for name, column in (("org/a", "article"), ("org/b", "body")):
    parts.append(load_dataset(name, split="train").map(lambda row: {"text": row[column]}))
"""
    found = script("from datasets import concatenate_datasets\n" + rows + sft(rows="concatenate_datasets(parts)"))
    assert not found.draft.wrong, found.messages
    assert [one.columns for one in found.draft.sources] == [("article",), ("body",)]


@pytest.mark.parametrize("text", ["HEAD + row['q']", "asked(row)"])
def test_a_formatting_function_has_the_variables_of_the_trainers_call(text: str) -> None:
    found = script(f"""
HEAD = "Q: "
def asked(row):
    return HEAD + row["q"]
def form(row):
    return {text} + " A: " + row["a"]
trainer = SFTTrainer(model="Qwen/Qwen2.5-3B", args=SFTConfig("out"), formatting_func=form,
                     train_dataset=load_dataset("org/rows", split="train"))
HEAD = "Now ask: "
trainer.train()
""")
    assert not found.draft.wrong, found.messages
    assert 'prompt_template = "Q: {{ q }} A: "' in found.text


@pytest.mark.parametrize("rows", ['load_dataset("org/rows")', 'load_from_disk("rows")', "own_rows()"])
def test_a_filter_in_a_loop_over_the_splits_is_an_error(rows: str) -> None:
    change = LOOP.format(rows=rows, change='filter(lambda row: len(row["text"]) > 9)')
    found = script(
        "from datasets import load_from_disk\nfrom own import own_rows\n" + change + sft(rows='rows["train"]')
    )
    found_errors = [one for one in found.messages if "error" in one and "load_from_disk" not in one]
    assert found_errors, found.messages


@pytest.mark.parametrize(("settings", "precision"), [("bf16=True", "bf16"), ("fp16=True", "fp16")])
def test_the_difference_of_fp16_weights_names_the_spec_s_precision(settings: str, precision: str) -> None:
    text = sft(settings).replace('"Qwen/Qwen2.5-3B"', 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B").half()')
    found = script(text)
    assert any(f"keeps the weights in fp32 and computes in {precision}" in one for one in found.messages), (
        found.messages
    )
    assert f"precision {precision}" in found.text


MERGED = """
import copy, json
from collections.abc import Mapping
from pathlib import Path
import yaml
DEFAULTS = {"model": {"name": "Qwen/Qwen2.5-3B", "seq": 512}, "training": {"lr": 1e-4, "epochs": 2}}
OTHER = copy.deepcopy(DEFAULTS)
OTHER["model"]["seq"] = 64
def merged(base, update):
    result = dict(base)
    for key, value in update.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result
config = json.loads(json.dumps(DEFAULTS))
where = Path("missing.yaml")
if where.exists():
    config = merged(config, yaml.safe_load(where.read_text()))
config = merged(config, {"training": {"lr": 2e-5}})
rows = load_dataset("org/rows", split="train")
model = AutoModelForCausalLM.from_pretrained(config["model"]["name"])
training = config["training"]
args = SFTConfig(output_dir="o", max_length=config["model"]["seq"], learning_rate=training["lr"])
trainer = SFTTrainer(model=model, args=args, train_dataset=rows)
trainer.train()
"""


def test_a_dict_that_a_script_copies_and_merges_is_known():
    found = script(MERGED, "--partial")
    wanted = {"max_length": 512, "learning_rate": 2e-5}
    assert {name: found.arguments.get(name) for name in wanted} == wanted
    assert "train Qwen/Qwen2.5-3B on" in found.text


def test_an_unknown_dict_that_is_passed_on_keeps_its_reason():
    body = """
def settings(path):
    return {**load(path)}
args = SFTConfig(output_dir="o", **settings("x"), max_length=HIDDEN)
trainer = SFTTrainer(model="org/base", args=args, train_dataset=load_dataset("org/rows", split="train"))
trainer.train()
"""
    assert any("`load` is not defined" in one for one in script(body).messages)


DOWNLOADED = """
from {} import snapshot_download
folder = snapshot_download("org/base", cache_dir="here")
rows = load_dataset("org/rows", split="train")
model = AutoModelForCausalLM.from_pretrained(folder)
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="o"), train_dataset=rows)
trainer.train()
"""


def test_a_downloaded_repository_is_the_model():
    for library, other in (("huggingface_hub", False), ("modelscope", True)):
        found = script(DOWNLOADED.format(library))
        assert "train org/base on org/rows" in found.text
        assert any("ModelScope" in one for one in found.messages) is other


CHOSEN = """
MODELS = {"small": "Qwen/Qwen2.5-0.5B", "large": "Qwen/Qwen2.5-3B"}
parser = argparse.ArgumentParser()
parser.add_argument("--size", choices=MODELS.keys(), required=True)
args = parser.parse_args()
trainer = SFTTrainer(model=MODELS[args.size], args=SFTConfig(output_dir="o"),
                     train_dataset=load_dataset("org/rows", split="train"))
trainer.train()
"""


def test_an_item_of_a_table_keeps_the_reason_of_its_key():
    assert any("`--set size=VALUE` gives it" in one for one in script(CHOSEN).messages)
    assert "train Qwen/Qwen2.5-3B on" in script("# python train.py --size large\n" + CHOSEN, "--partial").text
