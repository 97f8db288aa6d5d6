"""The wheel contains everything that the commands need: it is installed in an empty environment, and its commands are
run outside of the repository.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv

import pytest

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SENTENCE = "train qwen2.5-3b on infinity-instruct with zero2 gbs=528 bf16 liger\n"

SOURCES = {
    "axolotl.yaml": """
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 1
learning_rate: 1e-5
optimizer: adamw_torch
lr_scheduler: cosine
bf16: true
""",
    "llamafactory.yaml": """
stage: sft
do_train: true
model_name_or_path: Qwen/Qwen2.5-0.5B
finetuning_type: full
dataset: alpaca_en
template: qwen
cutoff_len: 2048
per_device_train_batch_size: 2
learning_rate: 1.0e-5
num_train_epochs: 1
output_dir: out
bf16: true
""",
    "torchtune.yaml": """
model:
  _component_: torchtune.models.qwen2_5.qwen2_5_0_5b
tokenizer:
  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer
  max_seq_len: 2048
dataset:
  _component_: torchtune.datasets.alpaca_dataset
optimizer:
  _component_: torch.optim.AdamW
  lr: 2e-5
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
batch_size: 2
epochs: 1
gradient_accumulation_steps: 8
dtype: bf16
""",
    "trl.yaml": """
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/Capybara
learning_rate: 1.0e-5
num_train_epochs: 1
bf16: true
output_dir: out
""",
    "train.py": """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    model="Qwen/Qwen2.5-0.5B",
    args=SFTConfig(output_dir="out", learning_rate=1e-5),
    train_dataset=load_dataset("trl-lib/Capybara", split="train"),
)
trainer.train()
""",
    "train.sh": """
accelerate launch --num_processes 8 sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara
""",
    "accelerate.yaml": """
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 8
""",
    "deepspeed.json": '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
}
"""Maps the name of a small file of each tool that `xpc import` reads to the file's content."""
MODEL = ("--model", "qwen2.5-0.5b")
MORE = {
    "torchtune.yaml": MODEL,
    "accelerate.yaml": (*MODEL, "--data", "capybara"),
    "deepspeed.json": (*MODEL, "--data", "capybara"),
}
"""Maps files to the options of `xpc import` that they need, because they do not state the model or the data."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The path of `xpc` in an environment that has only the wheel and the packages on which the wheel depends."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # The wheel is built from the files in the working tree, whether they are staged or not. It contains files that git
    # does not track yet, and no deleted files.
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in map(os.fsdecode, filter(None, names)):
        wanted = name.startswith(("compiler/", "grammar/", "runtime/", "specs/")) or os.sep not in name
        if wanted and os.path.isfile(os.path.join(ROOT, name)):
            os.makedirs(source / os.path.dirname(name), exist_ok=True)
            shutil.copy(os.path.join(ROOT, name), source / name)
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(source)]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "env" / "bin" / "xpc"


def add_extra(installed, extra):
    """Install the packages of an optional dependency, such as "import", next to the wheel."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as handle:
        (needed,) = tomllib.load(handle)["project"]["optional-dependencies"][extra]
    command = [os.path.join(os.path.dirname(installed), "python"), "-m", "pip", "install", "--quiet", needed]
    subprocess.run(command, check=True)


def completed(program, *words, cwd, **more):
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), **more}
    return subprocess.run([program, *words], cwd=cwd, capture_output=True, text=True, check=False, env=environment)


def test_every_command_works_outside_of_the_clone(installed, tmp_path):
    (tmp_path / "sentence.xp").write_text(SENTENCE)
    for words in (
        ("check", "sentence.xp"),
        ("compile", "sentence.xp"),
        ("explain", "XP301"),
        ("explain", "sentence.xp:accum"),
        ("fmt", "--check", "sentence.xp"),
        ("list", "models", "qwen2.5"),
        ("list", "recipes"),
        ("new", "mine", "--from", "smollm3-3b-sft-64xh100"),
        ("check", "mine.xp"),
        ("compile", "mine.xp"),
        ("schema",),
        ("plan", "sentence.xp"),
        ("diff", "sentence.xp", "mine.xp"),
        ("verify", "sentence.bundle"),
        ("upgrade", "sentence.xp", "--target", "trl-0.24"),
        ("list", "advisories"),
        ("completion", "zsh"),
        (
            "import",
            "--command",
            "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name a/b",
        ),
    ):
        done = completed(installed, *words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr


def test_a_file_of_each_source_is_imported(installed, tmp_path):
    add_extra(installed, "import")
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text.lstrip("\n"))
        words = MORE.get(name, ())
        done = completed(installed, "import", name, "-o", "imported.xp", "--force", *words, cwd=tmp_path)
        assert done.returncode == 0, (name, done.stderr)
        assert completed(installed, "check", "imported.xp", cwd=tmp_path).returncode == 0, name


def test_a_misspelt_setting_gets_a_suggestion(installed, tmp_path):
    (tmp_path / "a.xp").write_text("train qwen2.5-3b on infinity-instruct with per_device_train_batch_size=4\n")
    done = completed(installed, "check", "a.xp", cwd=tmp_path)
    assert (done.returncode, "help: write `micro`" in done.stdout) == (1, True), done.stdout


def test_what_it_compiles_is_what_the_clone_compiles(installed, tmp_path):
    (tmp_path / "sentence.xp").write_text(SENTENCE)
    assert completed(installed, "compile", "sentence.xp", "-o", "wheel.bundle", cwd=tmp_path).returncode == 0
    here = os.path.join(os.path.dirname(sys.executable), "xpc")
    assert completed(here, "compile", "sentence.xp", "-o", "clone.bundle", cwd=tmp_path).returncode == 0
    assert subprocess.run(["diff", "-r", "wheel.bundle", "clone.bundle"], cwd=tmp_path, check=False).returncode == 0


def test_without_a_home_and_on_a_file_system_that_cannot_be_written(installed, tmp_path):
    (tmp_path / "sentence.xp").write_text(SENTENCE)
    for home in ("/nonexistent", "/proc"):
        done = completed(installed, "check", "sentence.xp", cwd=tmp_path, HOME=home)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_language_server_says_what_it_needs_and_answers_once_it_is_there(installed, tmp_path):
    done = completed(installed, "lsp", cwd=tmp_path)
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as handle:
        (needed,) = tomllib.load(handle)["project"]["optional-dependencies"]["lsp"]
    assert (done.returncode, f"pip install '{needed}'" in done.stderr) == (2, True), done.stderr
    add_extra(installed, "lsp")
    requested = (
        {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
        {"id": 2, "method": "shutdown"},
        {"method": "exit"},
    )
    texts = [json.dumps({"jsonrpc": "2.0", **one}) for one in requested]
    reported = "".join(f"Content-Length: {len(text)}\r\n\r\n{text}" for text in texts)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [installed, "lsp"], input=reported, capture_output=True, text=True, env=environment, check=False
    )
    assert '"hoverProvider"' in done.stdout, done.stderr
