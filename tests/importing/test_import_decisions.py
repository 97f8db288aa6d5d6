"""The decisions that `--partial` lists: if several lines have the same cause, they make one decision. A warning about a
decision says what the script does.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from import_support import HARDWARE, imported

from xpc.compiler.cli import main
from xpc.compiler.importing.accelerate.deepspeed import IGNORED
from xpc.compiler.stacks import DEFAULT

SCRIPT = """\
import argparse
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
"""


def decisions(folder: Path, text: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Import a script with `--partial`; return the decisions that the import leaves to its user."""
    (folder / "train.py").write_text(text)
    out = ["-o", str(folder / "x.xp"), "--force", "--report", "json"]
    assert main(["import", str(folder / "train.py"), "--partial", *out, *arguments]) in (0, 3)
    found = json.loads(capsys.readouterr().out)["decisions"]
    return [f"{one['text']} {one['places']}" for one in found]


def test_reasons_why_the_data_are_missing_are_one_decision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SCRIPT + (
        "rows = load_dataset(fetch(), split='train').add_column('x', fetch())\n"
        'trainer = SFTTrainer(model="Qwen/Qwen2.5-3B", train_dataset=rows, args=SFTConfig(output_dir="out"))\n'
        "trainer.train()\n")  # fmt: skip
    found = decisions(tmp_path, text, capsys)
    assert len(found) == 1, found
    assert found[0].startswith("which data the run trains on: ")
    assert "train.py:4" in found[0]
    assert not decisions(tmp_path, text, capsys, "--data", "org/rows")


OWN = (
    SCRIPT
    + """
parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--data", required=True)
args = parser.parse_args()
rows = load_dataset("json", data_files=args.data, split="train")
SFTTrainer(args.model, args=SFTConfig(output_dir="out"), train_dataset=rows).train()
"""
)
LAUNCHES = ["python train.py --model $MODEL --data $2\n",
            "accelerate launch missing.py --model_name_or_path $MODEL --dataset_name $2\n"]  # fmt: skip


@pytest.mark.parametrize("launch", LAUNCHES)
def test_arguments_of_a_shell_script_are_named_by_their_decisions(
    launch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(OWN)
    (tmp_path / "run.sh").write_text(f"MODEL=$1\n{launch}")
    command = ["import", str(tmp_path / "run.sh"), "-o", str(tmp_path / "x.xp"), "--force"]
    assert main([*command, "--partial", "--report", "json"]) == 3
    found = json.loads(capsys.readouterr().out)["decisions"]
    assert [one["text"].partition(":")[0] for one in found] == [
        "which model is trained",
        "which data the run trains on",
    ]
    for n, one in enumerate(found, 1):
        assert f"the script does not set ${n}" in one["text"]
        assert one["help"].startswith(f"`--set {n}=VALUE` sets it")
    main([*command, "--set", "1=Qwen/Qwen3-0.6B", "--set", "2=d.jsonl"])
    assert 'train Qwen/Qwen3-0.6B on "d.jsonl" for 3 epochs' in (tmp_path / "x.xp").read_text()


def test_columns_with_one_reason_are_one_decision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        SCRIPT
        + """
def build(row):
    return {"prompt": row["question"], "first": fetch(row), "second": fetch(row)}
def good(completions, **rest):
    return [1.0 for one in completions]
rows = load_dataset("org/rows", split="train").map(build)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-3B", reward_funcs=good, train_dataset=rows, args=GRPOConfig(output_dir="out"))
trainer.train()
"""
    )
    columns = [one for one in decisions(tmp_path, text, capsys, "--rewards", "r.py") if "rows." in one]
    assert len(columns) == 1, columns
    assert "`rows.first`, `rows.second`" in columns[0]


def test_warnings_about_a_script_are_grouped_with_those_about_rows_first(tmp_path: Path) -> None:
    methods = "".join(f"    def own{n}(self):\n        pass\n" for n in range(9))
    (tmp_path / "sft.py").write_text(
        "from datasets import load_dataset\n"
        "from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser\n"
        f"class Own(SFTTrainer):\n{methods}"
        "script, config, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config()\n"
        "def build(row):\n    return {'text': fetch(row)}\n"
        "rows = load_dataset(script.dataset_name, split='train').filter(keep).filter(keep).map(build)\n"
        "Own(model=model.model_name_or_path, args=config, train_dataset=rows).train()\n")  # fmt: skip
    command = "python sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --output_dir out\n"
    found = imported(command, *HARDWARE, name="run.sh", root=str(tmp_path))
    more = [one for one in found.messages if "the script does more than its arguments state" in one]
    assert len(more) == 2, found.messages
    assert "rows.text" in "".join(more)
    assert "(also `dataset.filter`)" in "".join(more)
    own = [one for one in found.messages if one.startswith("error") and "its own method" in one]
    assert len(own) == 9, found.messages


@pytest.mark.parametrize("key", ["zero_optimization", "train_batch_size", "bf16", "steps_per_print", "overlap_comm"])
def test_key_of_a_deepspeed_file_has_no_effect_in_accelerates(key: str) -> None:
    assert key in IGNORED
    text = f"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  {key}: 3\nnum_processes: 4\n"
    found = imported(text, name="accelerate.yaml")
    assert not found.draft.wrong, found.messages
    assert "strategy zero2" in found.text
    assert any("accelerate does not pass this key on to DeepSpeed" in one for one in found.messages)


def test_keys_that_accelerate_reads_are_not_ignored() -> None:
    block = "deepspeed_config:\n  zero_stage: 3\n  gradient_clipping: 0.5\n  zero_stages: 2\n"
    text = f"distributed_type: DEEPSPEED\n{block}"
    found = imported(text, name="accelerate.yaml")
    assert "clip = 0.5" in found.text
    assert found.outcomes["deepspeed_config.zero_stages"] == "error"


@pytest.mark.parametrize("attention", ["", "attn_implementation: flash_attention_2\n"])
def test_packing_of_an_older_trl_is_one_stream_also_without_flash_attention(attention: str) -> None:
    head = "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/rows\nlearning_rate: 1e-5\n"
    settings = f"{head}bf16: true\npacking: true\nmax_length: 512\n{attention}"
    found = imported(settings, *HARDWARE, "--method", "sft", "--trl", "0.18", "--target", DEFAULT)
    assert "packing(strategy=wrapped)" in found.text
    assert found.arguments["packing_strategy"] == "wrapped"
    assert "isolate" not in found.text
