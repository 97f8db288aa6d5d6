"""The import reads other modules and files of a script's repository: absolute and relative imports, configurations,
command lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_support import Imported, imported

from xpc.compiler.importing.nearby import reader

TRAIN = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
{before}
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out", max_length=64, learning_rate={value}),
           train_dataset=load_dataset("org/rows", split="train")).train()
"""


def repository(folder: Path, files: dict[str, str], git: bool = True) -> None:
    """Write the files of a repository."""
    if git:
        (folder / ".git").mkdir()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def script(folder: Path, before: str, value: str, *options: str) -> Imported:
    """Import `scripts/train.py` of a repository."""
    (folder / "scripts").mkdir(exist_ok=True)
    text = TRAIN.format(before=before, value=value)
    return imported(text, *options, name="train.py", root=str(folder / "scripts"))


def rate(found: Imported) -> Any:
    """The learning rate in the bundle of an imported script."""
    assert not found.draft.wrong, found.messages
    return found.arguments["learning_rate"]


@pytest.mark.parametrize(("files", "before", "value"), [
    ({"config.py": "LR = 2e-5"}, "from config import LR", "LR"),
    ({"scripts/config.py": "LR = 2e-5", "config.py": "LR = 1"}, "from config import LR", "LR"),
    ({"src/app/config.py": "LR = 2e-5"}, "from app.config import LR", "LR"),
    ({"src/app/config.py": "LR = 2e-5"}, "from src.app.config import LR", "LR"),
    ({"scripts/config.py": "LR = 2e-5"}, "from .config import LR", "LR"),
    ({"config.py": "LR = 2e-5"}, "from ..config import LR", "LR"),
    ({"app/__init__.py": "from .inner.rates import LR", "app/inner/rates.py": "LR = 2e-5"}, "from app import LR", "LR"),
    ({"configs/a.yaml": "lr: 2.0e-5"}, "import yaml\nc = yaml.safe_load(open('configs/a.yaml'))", "c['lr']"),
    ({"configs/a.yaml": "lr: 2.0e-5"},
     "import yaml\nfrom pathlib import Path\nROOT = Path(__file__).resolve().parents[1]\n"
     "c = yaml.safe_load((ROOT / 'configs' / 'a.yaml').read_text())", "c['lr']"),
    ({"a.yaml": "train:\n  lr: 2.0e-5"}, "from omegaconf import OmegaConf\nc = OmegaConf.load('a.yaml')", "c.train.lr"),
    ({"a.yaml": "train:\n  lr: 2.0e-5"},
     "import yaml\nfrom pydantic import BaseModel\nclass Train(BaseModel):\n    lr: float = 1\n"
     "class All(BaseModel):\n    train: Train\nc = All(**yaml.safe_load(open('a.yaml')))", "c.train.lr"),
    ({"a.yaml": "lr: 2.0e-5"},
     "import yaml\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    lr: float = 1\n    @classmethod\n"
     "    def read(cls, path):\n        return cls(**yaml.safe_load(open(path)))\nc = C.read('a.yaml')", "c.lr"),
])  # fmt: skip
def test_value_of_another_file_is_found(tmp_path: Path, files: dict[str, str], before: str, value: str) -> None:
    repository(tmp_path, files)
    assert rate(script(tmp_path, before, value)) == 2e-5


def test_folders_above_are_read_in_a_repository_only(tmp_path: Path) -> None:
    repository(tmp_path, {"config.py": "LR = 2e-5"}, git=False)
    assert script(tmp_path, "from config import LR", "LR").draft.wrong


def test_files_outside_the_repository_and_hidden_ones_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("LR = 2e-5")
    inner = tmp_path / "repository"
    inner.mkdir()
    repository(inner, {".secret/a.yaml": "lr: 2.0e-5"})
    assert script(inner, "from ...outside import LR", "LR").draft.wrong
    before = "import yaml\nc = yaml.safe_load(open('../.secret/a.yaml'))"
    assert script(inner, before, "c['lr']").draft.wrong
    for name, wrong in ((tmp_path / "mine.json", True), (inner / "own.json", False)):
        name.write_text('{"lr": 2e-5}')
        found = script(inner, f"import json\nc = json.load(open({str(name)!r}))", "c['lr']")
        assert bool(found.draft.wrong) is wrong, name
    assert reader(str(inner), f"trl sft --config {tmp_path}/mine.json")(f"{tmp_path}/mine.json") is not None


def test_module_with_the_name_of_a_library_is_not_read(tmp_path: Path) -> None:
    repository(tmp_path, {"trl/__init__.py": "SFTConfig = None", "datasets.py": "load_dataset = None"})
    assert rate(script(tmp_path, "", "2e-5")) == 2e-5


def test_configuration_of_hydra_is_read(tmp_path: Path) -> None:
    repository(tmp_path, {
        "scripts/conf/train.yaml": "defaults: [model: small, _self_]\ntrain:\n  lr: 2.0e-5\n  rate: ${train.lr}\n",
        "scripts/conf/model/small.yaml": "name: Qwen/Qwen2.5-0.5B\n",
    })  # fmt: skip
    text = """
import hydra
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
@hydra.main(config_path="conf", config_name="train", version_base=None)
def main(cfg):
    SFTTrainer(model=cfg.model.name, args=SFTConfig("out", max_length=64, learning_rate=cfg.train.rate),
               train_dataset=load_dataset("org/rows", split="train")).train()
main()
"""
    assert rate(imported(text, name="train.py", root=str(tmp_path / "scripts"))) == 2e-5


COMPOSED = """
import hydra
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
@hydra.main(config_path="conf", config_name="train")
def main(cfg):
    SFTTrainer(model=cfg.model.name, args=SFTConfig("out", max_length=64, learning_rate=cfg.train.lr),
               train_dataset=load_dataset(cfg.data, split="train")).train()
main()
"""


@pytest.mark.parametrize(
    ("command", "model", "rows", "lr"),
    [
        ("python train.py", "Qwen/Qwen2.5-0.5B", "org/rows", 2e-5),
        ("python train.py train.lr=3e-5 ++data=org/more", "Qwen/Qwen2.5-0.5B", "org/more", 3e-5),
        ("accelerate launch train.py model=large", "Qwen/Qwen2.5-3B", "org/rows", 2e-5),
        ("python train.py --config-name=other train.lr=3e-5", "Qwen/Qwen2.5-0.5B", "org/other", 3e-5),
        ("python train.py --config-name other +setting=fast", "Qwen/Qwen2.5-0.5B", "org/other", 4e-5),
    ],
)
def test_words_of_a_command_change_the_configuration_of_hydra(
    tmp_path: Path, command: str, model: str, rows: str, lr: float
) -> None:
    repository(tmp_path, {
        "conf/train.yaml": "defaults: [model: small, _self_]\ndata: org/rows\ntrain:\n  lr: 2.0e-5\n",
        "conf/other.yaml": "defaults: [model: small, _self_]\ndata: org/other\ntrain:\n  lr: 2.0e-5\n",
        "conf/model/small.yaml": "name: Qwen/Qwen2.5-0.5B\n",
        "conf/model/large.yaml": "name: Qwen/Qwen2.5-3B\n",
        "conf/setting/fast.yaml": "# @package _global_\ntrain:\n  lr: 4.0e-5\n",
        "train.py": COMPOSED,
    })  # fmt: skip
    found = imported(f"{command}\n", name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert f"train {model} on {rows}" in found.text
    assert rate(found) == lr


def test_words_of_a_command_that_omegaconf_reads(tmp_path: Path) -> None:
    script_ = COMPOSED.replace('@hydra.main(config_path="conf", config_name="train")', "").replace(
        "main()\n", 'main(OmegaConf.merge(OmegaConf.load("conf/train.yaml"), OmegaConf.from_cli()))\n'
    )
    repository(tmp_path, {
        "conf/train.yaml": "data: org/rows\nmodel:\n  name: Qwen/Qwen2.5-3B\ntrain:\n  lr: 2.0e-5\n",
        "train.py": script_.replace("import hydra", "from omegaconf import OmegaConf"),
    })  # fmt: skip
    found = imported("python train.py train.lr=3e-5\n", name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert rate(found) == 3e-5


def test_a_word_that_the_script_does_not_read_is_an_error(tmp_path: Path) -> None:
    text = COMPOSED.replace('@hydra.main(config_path="conf", config_name="train")', "")
    text = (
        text.replace("cfg.model.name", '"Qwen/Qwen2.5-3B"').replace("cfg.train.lr", "2e-5").replace("cfg.data", '"a/b"')
    )
    repository(tmp_path, {"train.py": text.replace("main(cfg)", "main()")})
    found = imported("accelerate launch train.py lr=3e-5\n", name="run.sh", root=str(tmp_path))
    assert any("`train.py` ignores this positional word" in one for one in found.messages)


SPLITS = """
from datasets import DatasetDict, load_dataset
from trl import SFTConfig, SFTTrainer
rows = DatasetDict()
for split in "train,test".split(","):
    part = load_dataset("org/rows", split=split)
    if "train" in split:
        rows["train"] = part
    elif "test" in split:
        rows["test"] = part
rows = rows.map(lambda row: {"text": row["body"]}, remove_columns=rows["train"].column_names)
trainer = SFTTrainer(model="Qwen/Qwen2.5-3B", args=SFTConfig("out", max_length=64, eval_strategy="epoch"),
                     train_dataset=rows["train"], eval_dataset=rows["test"])
trainer.train()
"""


def test_a_dict_of_splits_keeps_both_splits(tmp_path: Path) -> None:
    found = imported(SPLITS, name="train.py", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "org/rows {" in found.text
    assert "columns = [body]" in found.text
    assert "split = test" in found.text


ARGUMENTS = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, required=True)
p.add_argument("--flag", action="store_true")
a = p.parse_args()
"""


def test_set_gives_an_argument_of_the_command_line(tmp_path: Path) -> None:
    repository(tmp_path, {})
    found = script(tmp_path, ARGUMENTS, "a.lr")
    assert any("`--set lr=VALUE`" in one for one in found.messages)
    assert rate(script(tmp_path, ARGUMENTS, "a.lr", "--set", "lr=2e-5")) == 2e-5
    assert rate(script(tmp_path, ARGUMENTS, "2e-5 if a.flag else 1", "--set", "lr=1", "--set", "flag=true")) == 2e-5


TRAINS = """
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
def train(rate):
    {kind}Trainer(model="Qwen/Qwen2.5-0.5B", args={kind}Config("out", learning_rate=rate),
                  train_dataset=load_dataset("org/rows", split="train")).train()
"""
BOTH = """
from tasks import first, second
if __name__ == "__main__":
    first(1e-5)
    second(2e-5)
"""


def test_a_module_that_a_package_passes_on_is_imported_with_its_own_training(tmp_path: Path):
    passed = "from .first import train as first\nfrom .second import train as second\n"
    sft, dpo = TRAINS.format(kind="SFT"), TRAINS.format(kind="DPO")
    files = {"run.py": BOTH, "tasks/__init__.py": passed, "tasks/first.py": sft, "tasks/second.py": dpo}
    repository(tmp_path, files)
    found = imported(dpo, name="tasks/second.py", root=str(tmp_path / "tasks"))
    assert found.draft.method == "dpo"
    assert rate(found) == 2e-5
    assert rate(imported(sft, name="tasks/first.py", root=str(tmp_path / "tasks"))) == 1e-5


FAST = """
from datasets import load_dataset
{imports}
def train():
    model, tokenizer = FastLanguageModel.from_pretrained("Qwen/Qwen2.5-0.5B", load_in_4bit=False)
    model = FastLanguageModel.get_peft_model(model)
    SFTTrainer(model=model, args=SFTConfig("out"), train_dataset=load_dataset("org/rows", split="train")).train()
"""
ORDER = ("from unsloth import FastLanguageModel", "from trl import SFTConfig, SFTTrainer")


def test_unsloths_defaults_follow_the_order_in_which_modules_import(tmp_path: Path):
    run = "from training import train\ntrain()\n"
    for name, lines, value in (("a", ORDER, 5e-5), ("b", ORDER[::-1], 2e-5)):
        folder = tmp_path / name
        folder.mkdir()
        repository(folder, {"training.py": FAST.format(imports="\n".join(lines))})
        assert rate(imported(run, name="train.py", root=str(folder))) == value
