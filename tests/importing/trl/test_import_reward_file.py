"""The reward functions of a TRL file. `--rewards FILE` says which file has them, and `--partial` writes stubs of
missing ones. If a file has no `reward_funcs`, this is a decision for the user. `--prompt` replaces the column that the
file names.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from import_support import HARDWARE, imported

from xpc.compiler.cli import main

FILE = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: org/rows
dataset_prompt_column: problem
num_generations: 8
max_completion_length: 256
per_device_train_batch_size: 8
"""
REWARDS = "import re\n\n\ndef clean(text):\n    return text\n\n\ndef mine(completions, **kwargs):\n    return [0.0]\n"


def written(folder: Path, text: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Import a GRPO file. Return the exit status and the report."""
    (folder / "grpo.yaml").write_text(text)
    out = ["-o", str(folder / "x.xp"), "--force", "--report", "json", *HARDWARE]
    status = main(["import", str(folder / "grpo.yaml"), *out, *arguments])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("line", ["reward_funcs: [accuracy, mine]\n", ""])
def test_option_names_the_file_of_the_functions(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.py").write_text(REWARDS)
    status, report = written(tmp_path, FILE + line, capsys, "--rewards", "scores.py")
    assert status == 0, report
    accuracy = "accuracy, " if line else ""
    assert f'rewards = [{accuracy}"scores.py:mine"]' in report["spec"]


def test_weights_of_the_functions_of_a_file_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.py").write_text(REWARDS)
    status, report = written(tmp_path, FILE + "reward_weights: [0.5]\n", capsys, "--rewards", "scores.py")
    assert status == 0, report
    assert 'rewards = [file("scores.py:mine", weight=0.5)]' in report["spec"]
    assert written(tmp_path, FILE + "reward_weights: [0.5, 1]\n", capsys, "--rewards", "scores.py")[0] == 1


@pytest.mark.parametrize(("line", "name", "decision"), [
    ("reward_funcs: [accuracy, mine]\n", "mine", "what the reward functions compute"),
    ("", "reward", "which reward functions score the completions"),
])  # fmt: skip
@pytest.mark.parametrize("options", [(), ("--rewards", "scores.py")])
def test_missing_functions_are_stubs_and_one_decision(
    line: str, name: str, decision: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = written(tmp_path, FILE + line, capsys, "--partial", *options)
    file = options[-1] if options else "rewards.py"
    assert status == 3
    assert not report["check"], "the spec compiles with the stubs"
    assert f'"{file}:{name}"' in report["spec"]
    assert [one["text"].startswith(decision) for one in report["decisions"]] == [True], report["decisions"]
    assert f"def {name}(completions, **kwargs):\n    raise NotImplementedError" in (tmp_path / file).read_text()


SCRIPT = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
def mine(completions, **kwargs):
    return [0.0]
rows = load_dataset("org/rows", split="train").map(lambda x: {"prompt": x["question"]})
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=[mine], args=GRPOConfig("out"), train_dataset=rows).train()
"""


@pytest.mark.parametrize(("text", "name", "ours"), [
    (FILE + "reward_funcs: [accuracy]\n", "grpo.yaml", "problem"),
    (SCRIPT, "train.py", "question"),
])  # fmt: skip
def test_option_overrules_the_prompt_column_of_the_source(text: str, name: str, ours: str) -> None:
    options = (*HARDWARE, *(("--rewards", "scores.py") if name == "train.py" else ()))
    assert imported(text, *options, name=name).draft.settings["data.prompt"].text.strip(chr(34)) == ours
    found = imported(text, *options, "--prompt", "task", name=name)
    assert found.draft.settings["data.prompt"].text.strip(chr(34)) == "task"
    assert not found.draft.wrong, found.messages
