"""Modules and files of a script's repository are read: absolute and relative imports, configurations, command lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_support import Imported, imported

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
    """The learning rate of the spec's bundle."""
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
def test_value_of_another_file(tmp_path: Path, files: dict[str, str], before: str, value: str) -> None:
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


def test_module_with_the_name_of_a_library_is_not_read(tmp_path: Path) -> None:
    repository(tmp_path, {"trl/__init__.py": "SFTConfig = None", "datasets.py": "load_dataset = None"})
    assert rate(script(tmp_path, "", "2e-5")) == 2e-5


def test_hydra(tmp_path: Path) -> None:
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
