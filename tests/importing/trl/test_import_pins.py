"""If a script or its repository pins a TRL version, the import assumes this version, unless the script uses names that
are not in this version.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import imported

from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.trl import pins, versions

SCRIPT = """
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer
rows = load_dataset("org/rows", split="train")
DPOTrainer(model="Qwen/Qwen2.5-0.5B", args=DPOConfig("out"{0}), train_dataset=rows{1})
"""


@pytest.mark.parametrize(("stated", "first", "last"), [
    ("trl==0.12.0", "0.12", "0.12"), ("trl[peft]==0.14.1", "0.14", "0.14"), ("trl>=0.9,<0.13", "0.9", "0.12"),
    ("trl<=0.10.1", "0.9", "0.10"), ("trl~=0.11.2", "0.11", "0.11"), ("trl~=0.20", "0.20", "0.29"),
    ("trl==0.7.4", "0.9", "0.9"), ("- trl=0.15", "0.15", "0.15"), ('trl = "^0.11.4"', "0.11", "0.11"),
    ('"trl==1.6.0",', "1.6", "1.6"), ('name = "trl"\nversion = "0.16.1"', "0.16", "0.16"),
    ("trl<0.9.6,>=0.9", "0.9", "0.9"),
    ("trl", "0.9", "1.16"), ("mytrl==0.12.0", "0.9", "1.16"), ("ctrl-trl==0.12.0", "0.9", "1.16"),
])  # fmt: skip
def test_a_requirement_limits_the_versions(stated: str, first: str, last: str) -> None:
    def read(name: str) -> bytes | None:
        return f"torch\n{stated}\n".encode() if name == "requirements.txt" else None

    allowed, location = pins.stated("", "train.py", Overrides(read=read))
    found = [one for one in versions.numbers() if one in allowed]
    assert (found[0], found[-1]) == (first, last)
    assert location in ("", "requirements.txt:2")


@pytest.mark.parametrize(
    "line", ["# dependencies = ['trl==0.13.0']", "!pip install -q trl==0.13.0", "%pip install trl==0.13"]
)
def test_the_script_itself_states_the_version(line: str) -> None:
    found = imported(line + SCRIPT.format("", ""), name="train.py")
    assert found.draft.fitting == ("0.13",)
    assert not any("may be for several versions" in one for one in found.messages)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-cu121.txt", "requirements_dpo.txt"])
def test_requirements_of_the_repository_pin_the_version(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("torch\ntrl==0.22.1\n")
    found = imported(SCRIPT.format("", ""), name="train.py", root=str(tmp_path))
    assert (found.draft.trl, found.draft.pinned) == ("0.22", f"{name}:2")
    assert found.outcomes["trl"] == "mapped"


def test_requirement_that_the_names_contradict_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==1.6.0\n")
    found = imported(SCRIPT.format("", ", tokenizer=None"), name="train.py", root=str(tmp_path))
    assert found.draft.fitting[-1] == "0.15"
    assert not found.draft.pinned


def test_processing_class_is_newer_than_0_11() -> None:
    assert imported(SCRIPT.format("", ", processing_class=None"), name="train.py").draft.fitting[0] == "0.12"


def test_a_new_family_is_for_a_new_version() -> None:
    text = SCRIPT.format(", warmup_ratio=0.1", "").replace("Qwen2.5-0.5B", "Qwen3.5-2B")
    assert imported(text, name="train.py").draft.stack.name == "trl-1.16"


COMMANDS = """
from trl.commands.cli_utils import SFTScriptArguments, TrlParser
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import ModelConfig, SFTConfig, SFTTrainer
args, training, model = TrlParser((SFTScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config()
tokenizer = AutoTokenizer.from_pretrained(model.model_name_or_path)
tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
rows = load_dataset(args.dataset_name)
SFTTrainer(model.model_name_or_path, args=training, train_dataset=rows["train"], tokenizer=tokenizer, packing=True,
           **other()).train()
"""


def test_a_module_that_trl_no_longer_has_dates_a_launched_script(tmp_path: Path) -> None:
    (tmp_path / "sft.py").write_text(COMMANDS)
    command = "python sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name org/rows --learning_rate 1e-5\n"
    found = imported(command, name="run.sh", root=str(tmp_path))
    assert found.draft.trl == "0.12"
    assert not any("several versions" in one for one in found.messages)
    assert "checkpointing = false" in found.text, "trl 0.12 does not recompute"
    assert "packing(strategy=wrapped)" in found.text
    assert "chat_template = file(" in found.text, "the script sets the value, whatever its arguments are"


ARGUMENTS_OF_THE_TRAINER = """
from datasets import load_dataset
from transformers import HfArgumentParser, TrainingArguments
from trl import ModelConfig, ScriptArguments, SFTTrainer
script, args, model = HfArgumentParser((ScriptArguments, TrainingArguments, ModelConfig)).parse_args_into_dataclasses()
rows = load_dataset(script.dataset_name, split="train").filter(unknown)
SFTTrainer(model.model_name_or_path, args=args, train_dataset=rows, max_seq_length=512, packing=True).train()
"""


@pytest.mark.parametrize("more", ["", "--attn_implementation flash_attention_2 --hub_revision main --push_to_hub true"])
def test_arguments_of_the_trainer_date_a_launched_script(tmp_path: Path, more: str) -> None:
    (tmp_path / "sft.py").write_text(ARGUMENTS_OF_THE_TRAINER)
    command = f"python sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name org/rows {more}\n"
    found = imported(command, name="run.sh", root=str(tmp_path))
    assert found.draft.fitting[-1] == "0.12", "only the trainer of this version accepts `max_seq_length`"
    assert "mean = local_tokens" in found.text
    assert "packing(strategy=wrapped)" in found.text
