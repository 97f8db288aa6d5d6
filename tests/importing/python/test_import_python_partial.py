"""Some scripts leave something undecided: a condition, a required argument, or rows that the script builds. `--partial`
imports such a script nevertheless, and lists the open decisions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import Imported, imported

from xpc.compiler.importing import cli as edge
from xpc.compiler.importing import nearby, options, partial
from xpc.compiler.importing.python.interpreter import source
from xpc.compiler.importing.source_file import SourceFile
from xpc.compiler.importing.text.entries import Unreadable

pytestmark = pytest.mark.slow

TRAIN = """
import argparse, os, sys, json, inspect
from datasets import Dataset, load_dataset
from peft import LoraConfig
from transformers import Trainer, TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
{before}
SFTTrainer(model={model}, args=SFTConfig("out", max_length={length}, learning_rate=2e-5),
           train_dataset={data}).train()
"""
ROWS = 'load_dataset("org/rows", split="train")'


def script(
    folder: Path, before: str = "", length: str = "64", data: str = ROWS, model: str = '"Qwen/Qwen2.5-0.5B"', *more: str
) -> Imported:
    """Import `scripts/train.py` of a repository with `--partial`."""
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "scripts").mkdir(exist_ok=True)
    text = TRAIN.format(before=before, length=length, data=data, model=model)
    return imported(text, "--partial", *more, name="train.py", root=str(folder / "scripts"))


def decisions(found: Imported) -> list[str]:
    """The decisions that an import with `--partial` leaves to its user."""
    chosen = options.parse(["train.py", "--partial"])
    partial.apply(found.draft, edge.overrides_of(chosen, SourceFile("train.py", "", ".")))
    return [one.text for one in found.draft.decisions]


RANDOM = "import random\nif random.random() > 0.5:\n    size, other = 128, 1\nelse:\n    size, other = 256, 2"


def test_one_way_is_taken_at_a_condition_and_is_one_decision(tmp_path: Path) -> None:
    found = script(tmp_path, RANDOM, "size")
    assert "seq = 128" in found.text
    assert decisions(found) == [
        "`random.random() > 0.5: true`: the import cannot evaluate this condition and assumes that it is true"
    ]


def test_set_takes_the_other_way_without_a_decision(tmp_path: Path) -> None:
    line = TRAIN.partition("{before}")[0].count("\n") + 2
    found = script(tmp_path, RANDOM, "size", ROWS, '"Qwen/Qwen2.5-0.5B"', "--set", f"train.py:{line}=no")
    assert "seq = 256" in found.text
    assert not decisions(found)


def test_without_partial_a_condition_is_an_error() -> None:
    body = TRAIN.format(before=RANDOM, length="size", data=ROWS, model='"Qwen/Qwen2.5-0.5B"')
    assert imported(body, name="train.py").draft.wrong


@pytest.mark.parametrize(("before", "length"), [
    ("x = os.environ.get('RESUME')\nn = 64 if x is None else 128", "n"),
    ("n = int(input('Length [64]: ') or '64')", "n"),
    ("n = 128 if torch.cuda.device_count() > 1 else 64\n", "n"),
    ("n = int(sys.argv[1]) if len(sys.argv) > 1 else 64", "n"),
    ("names = set(inspect.signature(SFTConfig.__init__).parameters.keys())\nn = 64 if 'packing' in names else 1", "n"),
    ("from dataclasses import fields\nnames = {f.name for f in fields(SFTConfig)}\n"
     "n = 64 if 'eval_strategy' in names else 1", "n"),
    ("name = 'gpt2'\nn = 1 if any(one in name for one in ('llama', 'qwen')) else 64", "n"),
    ("n = 64 if all(one > 0 for one in (1, 2)) else 1", "n"),
    ("from pathlib import Path\nn = 64 if not Path('a.txt').is_absolute() else 1", "n"),
])  # fmt: skip
def test_values_of_a_usual_run(tmp_path: Path, before: str, length: str) -> None:
    found = script(tmp_path, "import torch\n" + before, length)
    assert not found.draft.wrong, found.messages
    assert "seq = 64" in found.text


def test_an_unset_variable_that_decides_is_a_warning(tmp_path: Path) -> None:
    found = script(tmp_path, "n = 128 if os.environ.get('BIG') else 64", "n")
    assert any("BIG" in one and "assumes that this value is empty" in one for one in found.messages)
    given = script(tmp_path, "n = 128 if os.environ.get('BIG') else 64", "n", ROWS, '"a/b"', "--set", "BIG=1")
    assert "seq = 128" in given.text


ARGUMENTS = "p = argparse.ArgumentParser()\np.add_argument('--model', required=True)\na = p.parse_args()"


@pytest.mark.parametrize(("name", "text"), [
    ("README.md", "Run it:\n\n```\npython scripts/train.py --model Qwen/Qwen2.5-0.5B --lr 3\n```\n"),
    ("run.sh", "MODEL=Qwen/Qwen2.5-0.5B\npython scripts/train.py \\\n  --lr 3 --model $MODEL\n"),
])  # fmt: skip
def test_a_required_argument_has_the_value_of_a_usage_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = script(tmp_path, ARGUMENTS, "64", ROWS, "a.model")
    assert found.draft.model == "Qwen/Qwen2.5-0.5B"
    (decision,) = decisions(found)
    assert "this documented command" in decision


def test_a_usage_line_of_the_scripts_own_text_names_the_model(tmp_path: Path) -> None:
    usage = '"""Usage: python train.py --model Qwen/Qwen2.5-0.5B"""\n'
    assert script(tmp_path, usage + ARGUMENTS, "64", ROWS, "a.model").draft.model == "Qwen/Qwen2.5-0.5B"
    placeholder = '"""Usage: python train.py --model <model>"""\n'
    assert not script(tmp_path, placeholder + ARGUMENTS, "64", ROWS, "a.model").draft.model


def test_the_data_of_rows_that_a_script_makes_is_named(tmp_path: Path) -> None:
    rows = "from own import transform\nrows = transform(json.load(open('data/train.json')))"
    found = script(tmp_path, rows, data="Dataset.from_list(rows)")
    assert 'on "data/train.json"' in found.text
    assert len(decisions(found)) == 1


def test_rows_and_batches_of_the_script_are_one_decision(tmp_path: Path) -> None:
    text = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
class Rows:
    def __init__(self, path):
        self.rows = [line for line in open(path)]
def collate(rows):
    return rows
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), args=TrainingArguments("out"),
        train_dataset=Rows("train.jsonl"), data_collator=collate).train()
"""
    found = imported(text, "--partial", name="train.py", root=str(tmp_path))
    assert 'on "train.jsonl"' in found.text
    (decision,) = decisions(found)
    assert "the spec reads `train.jsonl` as it is" in decision


def test_the_first_of_several_trainings_is_a_decision() -> None:
    body = TRAIN.format(before="", length="64", data=ROWS, model='"Qwen/Qwen2.5-0.5B"')
    body += f'DPOTrainer(model="Qwen/Qwen2.5-0.5B", args=DPOConfig("d"), train_dataset={ROWS}).train()\n'
    found = imported(body, "--partial", name="train.py")
    assert found.draft.method == "sft"
    assert "it trains" not in found.text
    assert ["--pick" in one.help for one in found.draft.messages if one.severity == "error"] == [True]
    with pytest.raises(Unreadable, match="trains 2 times"):
        imported(body, name="train.py")
    assert imported(body, "--pick", "2", name="train.py").draft.method == "dpo"


def test_a_module_is_followed_to_the_script_that_calls_it(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    module = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
def train(model, rate):
    SFTTrainer(model=model, args=SFTConfig("out", max_length=64, learning_rate=rate),
               train_dataset=load_dataset("org/rows", split="train")).train()
"""
    (tmp_path / "src" / "training.py").write_text(module)
    run = "from src.training import train\nif __name__ == '__main__':\n    train('Qwen/Qwen2.5-0.5B', 2e-5)\n"
    (tmp_path / "run.py").write_text(run)
    found = imported(module, name="training.py", root=str(tmp_path / "src"))
    assert not found.draft.wrong, found.messages
    assert found.draft.model == "Qwen/Qwen2.5-0.5B"
    assert any("`training.py` is a module" in one for one in found.messages)


def test_a_method_that_is_not_called_has_the_defaults_of_its_configuration() -> None:
    text = """
from dataclasses import dataclass
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
@dataclass
class Settings:
    model: str = "Qwen/Qwen2.5-0.5B"
    length: int = 64
class Runner:
    def __init__(self, settings: Settings):
        self.settings = settings
    def run(self):
        SFTTrainer(model=self.settings.model, args=SFTConfig("out", max_length=self.settings.length),
                   train_dataset=load_dataset("org/rows", split="train")).train()
"""
    found = imported(text, "--partial", name="train.py")
    assert "seq = 64" in found.text
    assert len(decisions(found)) == 1
    assert imported(text, name="train.py").draft.wrong


@pytest.mark.parametrize("call", ["raise SystemExit(main())", "sys.exit(main())"])
def test_a_script_that_ends_with_its_main_function(call: str) -> None:
    text = TRAIN.format(before="", length="64", data=ROWS, model='"Qwen/Qwen2.5-0.5B"')
    head, _, body = text.partition("SFTTrainer(model=")
    body = "def main():\n    SFTTrainer(model=" + body.replace("\n", "\n    ")
    found = imported(f"{head}{body}\nif __name__ == '__main__':\n    {call}\n", name="train.py")
    assert not found.draft.wrong, found.messages
    assert "seq = 64" in found.text


def test_f_strings_of_python_312_are_read(tmp_path: Path) -> None:
    quoted = "c = {'model': 'Qwen2.5-0.5B', 'n': 64}\nname = f\"Qwen/{c[\"model\"]}\"  # don't stop\nn = c['n']"
    found = script(tmp_path, quoted, "n", ROWS, "name")
    assert found.draft.model == "Qwen/Qwen2.5-0.5B"
    broken = "names = ['a']\nshown = f\"{'\\n'.join(names)}\""
    assert "seq = 64" in script(tmp_path, broken).text


@pytest.mark.parametrize(("loop", "refused"), [
    ("for name, p in model.named_parameters():\n    if 'lora' in name:\n        p.requires_grad = True", False),
    ("for p in model.parameters():\n    p.grad = None", False),
    ("for p in reference.parameters():\n    p.requires_grad = False", False),
    ("for p in model.parameters():\n    p.requires_grad = False", True),
    ("for n in range(len(model.model.layers)):\n    model.model.layers[n].self_attn = Mine()", True),
    ("for n in range(len(model.model.layers)):\n    print(model.model.layers[n])", False),
])  # fmt: skip
def test_loops_over_parameters_that_change_nothing(tmp_path: Path, loop: str, refused: bool) -> None:
    loading = (
        "from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
        "reference = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\n"
    )
    found = script(tmp_path, loading + loop, model="model")
    assert any("a loop over the model's parameters" in one for one in found.messages) is refused


def test_early_stopping_with_an_unknown_patience_is_an_error() -> None:
    text = TRAIN.format(before="from transformers import EarlyStoppingCallback\nfrom own import n", length="64",
                        data=f"{ROWS}, callbacks=[EarlyStoppingCallback(n.x())]", model='"a/b"')  # fmt: skip
    assert imported(text, name="train.py").draft.wrong


OWN = """
import argparse
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
def switch(text):
    return text.lower() == "yes"
p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--lr", type=float, default=1e-4)
p.add_argument("--targets", nargs="+", default=["q_proj"])
p.add_argument("--no-pack", action="store_false", dest="pack")
p.add_argument("--liger", type=switch, default=False)
p.add_argument("--data", required=True)
a = p.parse_args()
SFTTrainer(model=a.model, args=SFTConfig("o", max_length=512, learning_rate=a.lr, packing=a.pack,
           use_liger_kernel=a.liger), peft_config=LoraConfig(target_modules=a.targets),
           train_dataset=load_dataset(a.data, split="train")).train()
"""


def launched(folder: Path, command: str, *more: str) -> Imported:
    """Import a shell script that starts `scripts/own.py`."""
    (folder / "scripts").mkdir(exist_ok=True)
    (folder / "scripts" / "own.py").write_text(OWN)
    return imported(command, *more, name="run.sh", root=str(folder))


def test_a_launch_of_the_repositorys_own_script_is_read(tmp_path: Path) -> None:
    command = (
        "DATA=org/rows\ntorchrun --nproc_per_node 2 scripts/own.py Qwen/Qwen2.5-0.5B --lr 3e-5 "
        "--targets q_proj v_proj --data $DATA --no-pack --liger yes\n"
    )
    found = launched(tmp_path, command)
    assert not found.draft.wrong, found.messages
    for one in ("lr = 3e-5", "targets = [q_proj, v_proj]", "hardware 2 x h100-80gb", "liger"):
        assert one in found.text, one
    assert "train Qwen/Qwen2.5-0.5B on org/rows" in found.text
    assert "packing" not in found.text  # `--no-pack` is the default


def test_an_argument_that_the_own_script_lacks_is_an_error(tmp_path: Path) -> None:
    found = launched(tmp_path, "python scripts/own.py a/b --data org/rows --rate 3\n")
    assert any("`scripts/own.py` has no such argument" in one for one in found.messages)


def test_a_variable_of_the_launch_that_is_not_set_is_an_error(tmp_path: Path) -> None:
    found = launched(tmp_path, "python scripts/own.py a/b --data org/rows --lr $RATE\n")
    assert any("does not set $RATE" in one for one in found.messages)
    assert "lr = 3e-5" in launched(tmp_path, "python scripts/own.py a/b --data org/rows --lr $RATE\n", "--set",
                                   "RATE=3e-5").text  # fmt: skip


TOKENS = """
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer
from transformers import TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
def tokens(row):
{body}
rows = load_dataset("org/rows", split="train").map(tokens)
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), args=TrainingArguments("o"),
        train_dataset=rows, data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False)).train()
"""


def test_tokens_that_a_function_sets_as_columns() -> None:
    body = (
        '    made = tokenizer(row["text"], truncation=True, max_length=77, padding="max_length")\n'
        '    row["input_ids"], row["labels"] = made["input_ids"], made["input_ids"].copy()\n    return row'
    )
    found = imported(TOKENS.format(body=body), name="train.py")
    assert not found.draft.wrong, found.messages
    assert "seq = 77" in found.text


@pytest.mark.parametrize(("made", "why"), [
    ('{"input_ids": a + b + b, "labels": [-100] * len(a) + b + b}', "the script computes the tokens itself"),
    ('{"input_ids": tokenizer(row["p"])["input_ids"], "labels": b}', "the script computes the labels itself"),
])  # fmt: skip
def test_tokens_and_labels_of_the_script_are_errors(made: str, why: str) -> None:
    body = f'    a, b = [tokenizer(row[key])["input_ids"] for key in ("p", "a")]\n    return {made}'
    found = imported(TOKENS.format(body=body), name="train.py")
    assert any(why in one for one in found.messages)


def test_added_tokens_of_a_list_are_reported_as_text() -> None:
    text = TRAIN.format(before="from transformers import AutoTokenizer\nt = AutoTokenizer.from_pretrained('a/b')\n"
                        "t.add_tokens(['<a>', '<b>'])", length="64", data=f"{ROWS}, processing_class=t",
                        model='"a/b"')  # fmt: skip
    found = imported(text, "--report", "text", name="train.py")
    assert found.outcomes["add_tokens"] == "mapped"


@pytest.mark.parametrize("line", [
    "rows = accelerator.prepare(rows)",
    "other, rows = accelerator.prepare(1, rows)",
])  # fmt: skip
def test_rows_that_accelerate_prepares_are_read(tmp_path: Path, line: str) -> None:
    before = f"from accelerate import Accelerator\naccelerator = Accelerator()\nrows = {ROWS}\n{line}"
    found = script(tmp_path, before, data="rows")
    assert not found.draft.wrong, found.messages
    assert "on org/rows" in found.text


@pytest.mark.parametrize(("data", "file", "rows"), [
    ("load_from_disk('data/train')", "./data/train.parquet",
     'load_from_disk("data/train").to_parquet("data/train.parquet")'),
    ("load_from_disk('pairs/')['train']", "./pairs-train.parquet",
     '[rows.to_parquet(f"pairs-{key}.parquet") for key, rows in load_from_disk("pairs/").items()]'),
])  # fmt: skip
def test_a_folder_of_arrow_files_is_a_decision_with_the_command_that_exports_it(
    tmp_path: Path, data: str, file: str, rows: str
) -> None:
    found = script(tmp_path, "from datasets import load_from_disk", data=data)
    assert f'on "{file}"' in found.text
    assert len(decisions(found)) == 1
    (decision,) = found.draft.decisions
    assert f"`python -c 'from datasets import load_from_disk; {rows}'`" in decision.help


def test_a_launch_with_redirections_and_a_foreign_path_is_read(tmp_path: Path) -> None:
    command = "python /home/me/repo/scripts/own.py a/b --data org/rows --lr 3e-5 > run.log 2>errors.log < /dev/null\n"
    found = launched(tmp_path, command)
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-5" in found.text
    assert any("a path of another machine" in one for one in found.messages)


def test_the_script_and_its_modules_are_read_and_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import evaluates a script once for each assumption about its conditions. But it reads and parses the script
    and its modules only once.
    """
    parsed: list[str] = []
    opened: list[str] = []
    part, read_file = source._part, nearby.read_file

    def counted_part(text: str, label: str) -> source.Part:
        parsed.append(label)
        return part(text, label)

    def counted_read(path: str, limit: int) -> bytes:
        opened.append(path)
        return read_file(path, limit)

    monkeypatch.setattr(source, "_part", counted_part)
    monkeypatch.setattr(nearby, "read_file", counted_read)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "sizes.py").write_text("# of one test\nSMALL = 96\n")
    nested = RANDOM.replace("size, other = 128, 1", "size, other = SMALL if random.random() > 0.2 else 64, 1")
    found = script(tmp_path, "from sizes import SMALL\n" + nested, "size")
    assert "seq = 96" in found.text
    assert len(decisions(found)) == 2
    assert sorted(parsed) == ["sizes.py", "train.py"]
    assert len(opened) == len(set(opened))


def test_modules_of_a_large_package_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    part = source._part
    monkeypatch.setattr(source, "_part", lambda text, label: parsed.append(label) or part(text, label))
    source.parts.cache_clear()
    (tmp_path / "scripts").mkdir()
    names = [f"module{n}" for n in range(40)]
    for n, one in enumerate(names):
        (tmp_path / "scripts" / f"{one}.py").write_text(f"SIZE = {n}\n")
    found = script(tmp_path, f"import {', '.join(names)}\n{RANDOM}", "size")
    assert "seq = 128" in found.text, "the script is interpreted twice, because a condition is undecided"
    assert len(parsed) == len(set(parsed)) > 40
