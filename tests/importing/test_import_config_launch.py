"""A YAML file is read as the script reads it that a command of the repository starts with the file."""

from __future__ import annotations

import pytest
from import_support import HEAD

from xpc.compiler.cli import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, capsys):
    status = main(["import", "--hardware", "8 x h100-80gb", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


READS = """\
import argparse, yaml
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--steps", type=int, default=7)
options = parser.parse_args()
c = yaml.safe_load(open(options.config))
SFTTrainer(
    model=c["base"], args=SFTConfig(learning_rate=c["speed"], max_steps=options.steps),
    train_dataset=load_dataset(c["rows"], split="train"),
).train()
"""
OWN_KEYS = "base: Qwen/Qwen2.5-3B\nrows: org/rows\nspeed: 3.0e-6\noutput_dir: out\n"


@pytest.mark.parametrize(
    ("page", "command", "more"),
    [
        (
            "README.md",
            "Run this:\n```bash\ntorchrun --nproc_per_node 8 \\\n  code/fit.py --config cfg/r.yaml\n```\n",
            "",
        ),
        ("run.sh", "C=cfg/r.yaml\naccelerate launch code/fit.py --config $C\n", ""),
        ("train.py", '"""Usage: `python -m code.fit --config cfg/r.yaml`."""\n', ""),
        ("README.md", "python code/fit.py --config cfg/r.yaml --steps 9\n", '`code/fit.py: "--steps"`'),
    ],
)
def test_file_is_read_as_the_script_of_its_command_reads_it(here, capsys, page, command, more):
    for folder in (".git", "cfg", "code"):
        (here / folder).mkdir()
    (here / "code" / "fit.py").write_text(READS)
    (here / page).write_text(command)
    for name in ("cfg/r.yaml", "cfg/s.yaml"):
        (here / name).write_text(OWN_KEYS)
    status, out, err = run("cfg/r.yaml", *(["--partial"] if more else []), capsys=capsys)
    for text in ("train Qwen/Qwen2.5-3B on org/rows", "lr = 3e-6", "for 9 steps" if more else "for 7 steps"):
        assert text in out, err
    assert status == (3 if more else 0)
    assert more in err
    assert run("cfg/r.yaml" if more else "cfg/s.yaml", capsys=capsys)[0] == 1  # no command names this file alone


GRPO_SCRIPT = """\
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser
from datasets import load_dataset

def short(completions, **kwargs):
    return [-len(one) for one in completions]

arguments, training, model = TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()
GRPOTrainer(
    model=model.model_name_or_path, reward_funcs=[short], args=training,
    train_dataset=load_dataset(arguments.dataset_name, split="train"),
).train()
"""


def test_missing_rewards_are_those_of_the_only_script_with_the_trainer(here, capsys):
    for folder in (".git", "recipes", "src"):
        (here / folder).mkdir()
    (here / "src" / "run.py").write_text(GRPO_SCRIPT)
    (here / "recipes" / "r.yaml").write_text(HEAD + "num_generations: 4\n")
    arguments = ("recipes/r.yaml", "--partial", "-o", "r.xp", "--force")
    run(*arguments, "--rewards", "mine.py", capsys=capsys)
    assert 'rewards = ["mine.py:short"]' in (here / "r.xp").read_text()
    (here / "src" / "other.py").write_text(GRPO_SCRIPT)
    assert "which reward functions score the completions" in run(*arguments, capsys=capsys)[2]


def test_trainer_of_the_command_that_reads_a_complete_file_is_a_decision(here, capsys):
    own = "class Own(GRPOTrainer):\n    def compute_loss(self, model, inputs):\n        return 0\n"
    (here / ".git").mkdir()
    (here / "fit.py").write_text(
        GRPO_SCRIPT.replace("def short", own + "def short").replace("\nGRPOTrainer(", "\nOwn(")
    )
    (here / "r.yaml").write_text(HEAD + "num_generations: 4\nreward_funcs: [accuracy]\n")
    assert run("r.yaml", capsys=capsys)[0] == 0
    (here / "run.sh").write_text("accelerate launch fit.py --config r.yaml\n")
    assert run("r.yaml", capsys=capsys)[0] == 1
    assert "`Own.compute_loss" in run("r.yaml", "--partial", capsys=capsys)[2]
