"""A command passes arguments to a script, which reads them with typer, click, tyro, hydra, or a loop over a dataclass.
The import finds out what the script does with each argument. In the repository, the script may be at another path than
in the command.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_import_launched_classes import launched

pytestmark = pytest.mark.slow

HEAD = """\
import argparse, dataclasses, inspect, yaml
from dataclasses import dataclass, field, fields
from typing import Annotated
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
"""
CLASS = """
@dataclass
class Settings:
    lr: float = 1e-5
    epochs: int = field(default=2)
"""
TRAIN = """\
    SFTTrainer(model="Qwen/Qwen2.5-3B", args=SFTConfig(output_dir="out", learning_rate=RATE, max_length=512),
               train_dataset=load_dataset("org/rows", split="train")).train()
"""


def rated(folder: Path, script: str, rate: str, command: str) -> None:
    """Check the learning rate of an imported script. It must be 3e-6, which either the script's command or its
    configuration file states.
    """
    found = launched(folder, command, script.replace("TRAIN\n", TRAIN.replace("RATE", rate)))
    assert not found.errors, (found.errors, found.messages)
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text, found.text


@pytest.mark.parametrize(("script", "rate", "command"), [
    ("import typer\napp = typer.Typer()\n@app.command()\ndef train(rate: float = typer.Option(1e-5, '--lr')):\nTRAIN\n"
     "app()\n", "rate", "--lr 3e-6"),
    ("import typer\napp = typer.Typer()\n@app.command()\ndef make(x: str = ''):\n    print(x)\n@app.command('sft')\n"
     "def train(rows: Annotated[str, typer.Argument()], *, lr: Annotated[float, typer.Option('--rate')] = 1e-5):\n"
     "TRAIN\napp()\n", "lr", "sft rows.jsonl --rate 3e-6"),
    ("import typer\ndef train(base: str, lr: float = 1e-5):\nTRAIN\ntyper.run(train)\n", "lr", "x --lr 3e-6"),
    ("import click\n@click.command()\n@click.option('--lr', 'rate', default=1e-5)\n@click.option('--base-model')\n"
     "@click.option('--quiet', is_flag=True)\ndef main(rate, base_model, quiet):\nTRAIN\nmain()\n", "rate",
     "--lr 3e-6 --base-model y --quiet"),
    ("import click\n@click.group()\ndef cli():\n    pass\n@cli.command()\n@click.argument('rows')\n"
     "@click.option('--lr', type=float)\ndef fit(rows, lr):\nTRAIN\ncli()\n", "lr", "fit a.jsonl --lr 3e-6"),
    ("import tyro\ndef train(lr: float = 1e-5):\nTRAIN\ntyro.cli(train)\n", "lr", "--lr 3e-6"),
    (CLASS + "def main():\n    p = argparse.ArgumentParser()\n    for f in fields(Settings):\n"
     "        p.add_argument(f'--{f.name}', type=f.type, default=f.default)\n"
     "    c = Settings(**vars(p.parse_args()))\nTRAIN\nmain()\n", "c.lr", "--lr 3e-6"),
    (CLASS + "import hydra\nfrom hydra.core.config_store import ConfigStore\n"
     "store = ConfigStore.instance()\nstore.store(name='base', node=Settings)\n"
     "@hydra.main(version_base=None, config_name='base')\ndef main(cfg):\nTRAIN\nmain()\n", "cfg.lr", "lr=3e-6"),
    (CLASS + "from omegaconf import OmegaConf\ndef main():\n"
     "    c = OmegaConf.merge(OmegaConf.structured(Settings), OmegaConf.from_cli())\nTRAIN\nmain()\n", "c.lr",
     "lr=3e-6"),
])  # fmt: skip
def test_arguments_of_functions_and_classes_are_read(tmp_path: Path, script: str, rate: str, command: str) -> None:
    rated(tmp_path, HEAD + script, rate, f"python train.py {command}\n")


def test_a_command_with_words_of_its_own_reads_no_command_line(tmp_path: Path) -> None:
    script = "import typer\napp = typer.Typer()\n@app.command()\ndef train(rate: float = typer.Option(1e-5, '--lr')):\n"
    script += TRAIN.replace("RATE", "rate") + "app(['--lr', '3e-6'])\n"
    found = launched(tmp_path, "python train.py --lr 5e-6\n", HEAD + script)
    assert "5e-6" not in found.text
    assert any("`train.py` has no such argument" in one for one in found.messages)


@pytest.mark.parametrize("body", [
    "    kwargs = {}\n    for f in fields(Settings):\n        if f.name in raw:\n"
    "            kwargs[f.name] = raw[f.name]\n"
    "    c = Settings(**kwargs)\n",
    "    names = {f.name for f in dataclasses.fields(Settings)}\n"
    "    c = Settings(**{k: v for k, v in raw.items() if k in names})\n",
    "    c = Settings()\n    for f in fields(c):\n        setattr(c, f.name, raw.get(f.name, f.default))\n",
])  # fmt: skip
def test_a_loop_over_the_fields_of_a_class_is_read(tmp_path: Path, body: str) -> None:
    (tmp_path / "c.yaml").write_text("lr: 3.0e-6\nother: 3\n")
    script = f"{HEAD}{CLASS}def main():\n    raw = yaml.safe_load(open('c.yaml'))\n{body}TRAIN\nmain()\n"
    rated(tmp_path, script, "c.lr", "python train.py\n")


@pytest.mark.parametrize("names", [
    "{f.name for f in fields(SFTConfig)}", "set(inspect.signature(SFTConfig.__init__).parameters.keys())",
])  # fmt: skip
def test_keys_that_no_version_of_a_class_has_are_not_chosen(tmp_path: Path, names: str) -> None:
    (tmp_path / "c.yaml").write_text("learning_rate: 3.0e-6\noutput_dir: out\nother: 3\n")
    script = (
        f"{HEAD}raw = yaml.safe_load(open('c.yaml'))\nnames = {names}\n"
        "SFTTrainer(model='Qwen/Qwen2.5-3B', args=SFTConfig(**{k: v for k, v in raw.items() if k in names}),\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    rated(tmp_path, script, "", "python train.py\n")


@pytest.mark.parametrize("change", [
    "for name in unknown():\n    kwargs[name] = 3\n", "kwargs.update(unknown())\n",
])  # fmt: skip
def test_keys_that_are_not_known_are_no_defaults(tmp_path: Path, change: str) -> None:
    script = (
        f"{HEAD}from elsewhere import unknown\n"
        f"kwargs = {{}}\n{change}"
        "def made(learning_rate=1e-5):\n    return learning_rate\n"
        "SFTTrainer(model='Qwen/Qwen2.5-3B', args=SFTConfig(output_dir='out', learning_rate=made(**kwargs)),\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    found = launched(tmp_path, "python train.py\n", script)
    assert any(one.startswith("error") and "learning_rate" in one for one in found.messages), found.messages
    plain = launched(tmp_path, "python train.py\n", script.replace(change, ""))
    assert not plain.draft.wrong, plain.messages


SCRIPT = HEAD + (
    "p = argparse.ArgumentParser()\np.add_argument('--rate', type=float)\na = p.parse_args()\nif a.rate:\n"
    + TRAIN.replace("RATE", "a.rate")
)


@pytest.mark.parametrize("location", ["training/sft.py", "src/deep/sft.py", "sft.py"])
@pytest.mark.parametrize("root", ["pyproject.toml", "setup.py", ".git/HEAD"])
def test_a_script_that_is_elsewhere_in_the_repository(tmp_path: Path, location: str, root: str) -> None:
    for name, text in {root: "", location: SCRIPT, "jobs/run.sh": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = launched(tmp_path / "jobs", "python sft.py --rate 3e-6\n", "", name="other.py")
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text
    if location != "sft.py":
        assert any("a path that is not here" in one for one in found.messages)


def test_a_name_of_two_scripts_names_none(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "a/sft.py", "b/sft.py", "jobs/run.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SCRIPT if name.endswith(".py") else "")
    found = launched(tmp_path / "jobs", "python sft.py --rate 3e-6\n", "", name="other.py")
    assert found.draft.wrong
    assert "lr = 3e-6" not in found.text


def test_a_script_outside_of_the_repository_is_not_read(tmp_path: Path) -> None:
    for name, text in {"sft.py": SCRIPT, "repo/pyproject.toml": "", "repo/jobs/run.sh": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in ("python sft.py --rate 3e-6\n", "python ../../sft.py --rate 3e-6\n"):
        assert "lr = 3e-6" not in launched(tmp_path / "repo/jobs", command, "", name="other.py").text


NAMED = "python elsewhere.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --output_dir out "


def test_beginnings_of_names_and_own_names_are_read_with_a_warning(tmp_path: Path) -> None:
    command = f"{NAMED}--per_device_train_batch 2 --use_lora --lora_rank 4 --lora_alpha 8 --lr 3e-6 --method sft\n"
    found = launched(tmp_path, command.replace(" --method sft", ""), "", "--method", "sft", name="other.py")
    assert not found.draft.wrong, found.messages
    for line in ("micro = 2", "rank = 4", "lr = 3e-6"):
        assert line in found.text
    assert any(one.startswith("warning") and "which argparse accepts" in one for one in found.messages)
    assert any(one.startswith("warning") and "own name is read as TRL's `lora_r`" in one for one in found.messages)


def test_a_beginning_of_several_names_is_none_of_them(tmp_path: Path) -> None:
    found = launched(tmp_path, f"{NAMED}--per_device 2\n", "", "--method", "sft", name="other.py")
    assert any("per_device" in one and "has no such key" in one for one in found.messages)


def test_dynamo_on_the_launchers_command_line_becomes_compilation(tmp_path: Path) -> None:
    command = "accelerate launch --num_processes 2 --dynamo_backend inductor --dynamo_mode default " + NAMED[7:]
    found = launched(tmp_path, command + "\n", "", "--method", "sft", name="other.py")
    assert not found.draft.wrong, found.messages
    assert found.arguments["torch_compile"] is True
    off = launched(tmp_path, command.replace("inductor", "no") + "\n", "", "--method", "sft", name="other.py")
    assert "torch_compile" not in off.text


def test_a_sites_own_form_of_a_wrapper_is_skipped(tmp_path: Path) -> None:
    found = launched(tmp_path, f"singularity_wrapper exec accelerate launch {NAMED[7:]}\n", "", "--method", "sft")
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows" in found.text


@pytest.mark.parametrize(("body", "line"), [
    ("train = rows.select(range(len(rows) - 50))", "holdout = 50"),
    ("n = int(0.9 * len(rows))\ntrain = rows.select(range(n))\nheld = rows.select(range(n, len(rows)))",
     "holdout = 10%"),
    ("n = int(len(rows) * 0.8)\ntrain = rows.shuffle(seed=3).select(range(0, n))", "holdout = 20%"),
])  # fmt: skip
def test_rows_that_are_held_out_at_the_end(tmp_path: Path, body: str, line: str) -> None:
    held = ", eval_dataset=held" if "held" in body else ""
    script = (
        f"{HEAD}rows = load_dataset('org/rows', split='train')\n{body}\n"
        "SFTTrainer(model='Qwen/Qwen2.5-3B', args=SFTConfig(output_dir='out', max_length=512, eval_strategy='epoch'),\n"
        f"           train_dataset=train{held}).train()\n"
    )
    found = launched(tmp_path, "python train.py\n", script)
    assert not found.draft.wrong, found.messages
    assert line in found.text
    assert any("holds out the last rows" in one for one in found.messages) is ("shuffle" not in body)
    begun = launched(tmp_path, "python train.py\n", script.replace(body, "train = rows.select(range(50, len(rows)))"))
    assert begun.draft.wrong


def test_the_cache_of_a_model_is_no_decision(tmp_path: Path) -> None:
    script = (
        f"{HEAD}from elsewhere import on\n"
        "config = SFTConfig(output_dir='out', max_length=512,\n"
        "                   model_init_kwargs=dict(torch_dtype='bfloat16', use_cache=False if on() else True))\n"
        "SFTTrainer(model='Qwen/Qwen2.5-3B', args=config,\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    assert not launched(tmp_path, "python train.py\n", script).draft.wrong
    other = launched(tmp_path, "python train.py\n", script.replace("use_cache=", "attn_implementation="))
    assert other.draft.wrong


def test_the_newest_checkpoint_of_a_folder_is_the_folder(tmp_path: Path) -> None:
    script = (
        f"{HEAD}import os\n"
        "def newest(folder):\n    found = [one for one in os.listdir(folder) if one.startswith('checkpoint-')]\n"
        "    if not found:\n        return folder\n    found.sort()\n    return os.path.join(folder, found[-1])\n"
        "SFTTrainer(model=newest('Qwen/Qwen2.5-3B'), args=SFTConfig(output_dir='out', max_length=512),\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    found = launched(tmp_path, "python train.py\n", script)
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows" in found.text
    assert any("files in a folder" in one and "assumes that this value is empty" in one for one in found.messages)


@pytest.mark.parametrize("read", [
    "parse_json_file('c.json')", "parse_json_file(json_file=os.path.abspath('c.json'))", "parse_yaml_file('c.yaml')",
    "parse_dict(json.load(open('c.json')))",
    "parse_dict(dict(json.load(open('c.json')), other=1), allow_extra_keys=True)",
])  # fmt: skip
def test_a_parser_that_reads_a_file_or_a_dict(tmp_path: Path, read: str) -> None:
    (tmp_path / "c.json").write_text('{"lr": 3e-6, "output_dir": "out", "num_train_epochs": 2, "max_length": 512}')
    (tmp_path / "c.yaml").write_text("lr: 3.0e-6\noutput_dir: out\nnum_train_epochs: 2\nmax_length: 512\n")
    script = (
        f"{HEAD}{CLASS}import json, os\nfrom transformers import HfArgumentParser\n"
        f"own, config = HfArgumentParser((Settings, SFTConfig)).{read}\nconfig.learning_rate = own.lr\n"
        "SFTTrainer(model='Qwen/Qwen2.5-3B', args=config,\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    found = launched(tmp_path, "accelerate launch train.py\n", script)
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text
    assert "for 2 epochs" in found.text
    lost = launched(
        tmp_path, "accelerate launch train.py\n", script.replace("c.json", "d.json").replace("c.yaml", "d.yaml")
    )
    assert any(one.startswith("error") for one in lost.messages), lost.messages
