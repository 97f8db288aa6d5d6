"""A command starts a script that parses the command's arguments into TRL's classes. The import reads the script to find
out what it does with each argument.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import HARDWARE, Imported, imported

from xpc.compiler.importing.text.entries import Unreadable

pytestmark = pytest.mark.slow

HEAD = """\
from dataclasses import dataclass, field
from typing import Optional
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config
"""
SCRIPT = (
    HEAD
    + """
@dataclass
class Arguments:
    base: str = field(default="Qwen/Qwen2.5-3B")
    rows: Optional[str] = field(default="org/rows", metadata={"help": "the data"})
    lr: float = field(default=1e-5)
    batch_size: int = field(default=4)
    rank: int = field(default=16)
    unused: str = field(default="")

def main():
    args, config = HfArgumentParser((Arguments, SFTConfig)).parse_args_into_dataclasses()
    config.learning_rate = args.lr
    config.per_device_train_batch_size = args.batch_size
    trainer = SFTTrainer(model=args.base, args=config, train_dataset=load_dataset(args.rows, split="train"),
                         peft_config=LoraConfig(r=args.rank, lora_alpha=32, target_modules="all-linear"))
    trainer.train()

if __name__ == "__main__":
    main()
"""
)


def launched(folder: Path, command: str, script: str = SCRIPT, *arguments: str, name: str = "train.py") -> Imported:
    location = folder / name
    location.parent.mkdir(parents=True, exist_ok=True)
    location.write_text(script)
    return imported(command, *HARDWARE, *arguments, name="run.sh", root=str(folder))


def test_own_arguments_reach_the_settings_that_the_script_gives_them(tmp_path: Path) -> None:
    command = (
        "python -u train.py --lr 3e-6 --batch_size 8 --rank 64 --num_train_epochs 2 --output_dir out --bf16 True\n"
    )
    found = launched(tmp_path, command)
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows for 2 epochs" in found.text
    for line in ("lr = 3e-6", "micro = 8", "rank = 64", 'save "out"'):
        assert line in found.text
    assert "run.sh" in {one.file for one in found.draft.outcomes.values() if one.key == "num_train_epochs"}


def test_defaults_of_the_script_are_those_of_its_class(tmp_path: Path) -> None:
    found = launched(tmp_path, "python train.py --output_dir out\n")
    assert "lr = 1e-5" in found.text
    assert "micro = 4" in found.text


def test_abbreviated_arguments_are_read_and_undeclared_ones_reported(tmp_path: Path) -> None:
    found = launched(tmp_path, "python train.py --output_dir out --batch_si 2 --no_such 3\n")
    assert "micro = 2" in found.text
    assert any("`no_such: 3`" in one and "has no such argument" in one for one in found.messages)


def test_module_is_read_with_accelerates_file(tmp_path: Path) -> None:
    (tmp_path / "zero.yaml").write_text("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n")
    command = "accelerate launch --config_file zero.yaml --num_processes 8 -m pkg.train --lr 2e-6 --output_dir out\n"
    found = launched(tmp_path, command, name="pkg/train.py")
    assert "strategy zero3" in found.text
    assert "lr = 2e-6" in found.text


TRL = (
    HEAD
    + """
@dataclass
class Arguments:
    rows: str = "org/rows"

args, config, model = TrlParser((Arguments, SFTConfig, ModelConfig)).parse_args_and_config()
trainer = SFTTrainer(model=model.model_name_or_path, args=config, peft_config=get_peft_config(model),
                     train_dataset=load_dataset(args.rows, split="train"))
trainer.train()
"""
)


@pytest.mark.parametrize(("words", "adapter"), [("--use_peft --lora_r 8", True), ("", False)])
def test_configuration_of_trls_parser_and_its_helpers_is_read(tmp_path: Path, words: str, adapter: bool) -> None:
    (tmp_path / "c.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-3B\nlearning_rate: 4e-6\nunread_key: 1\n")
    found = launched(tmp_path, f"python train.py --config c.yaml --rows org/other --output_dir out {words}\n", TRL)
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/other" in found.text
    assert "lr = 4e-6" in found.text
    assert ("rank = 8" in found.text) is adapter
    assert any("unread_key" in one and "changes nothing" in one for one in found.messages)


def test_data_that_the_script_has_in_its_text_decides(tmp_path: Path) -> None:
    """The command passes `--dataset_name org/named`, but the script always loads `org/fixed`. So the imported spec must
    have `org/fixed`.
    """
    script = TRL.replace("load_dataset(args.rows", 'load_dataset("org/fixed"')
    command = "python train.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/named --output_dir out\n"
    found = launched(tmp_path, command, script.replace("(Arguments,", "(ScriptArguments,").replace(
        "import ModelConfig", "import ModelConfig, ScriptArguments"))  # fmt: skip
    assert "on org/fixed" in found.text


def test_what_the_script_does_beyond_trls_arguments_is_a_warning(tmp_path: Path) -> None:
    script = TRL.replace('split="train")', 'split="train").filter(lambda row: len(row["text"]) > 3)')
    script = script.replace("args.rows", "args.dataset_name").replace("(Arguments,", "(ScriptArguments,")
    command = "python train.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --output_dir out\n"
    found = launched(tmp_path, command, script.replace("import ModelConfig", "import ModelConfig, ScriptArguments"))
    assert "on org/rows" in found.text
    assert any("more than its arguments state" in one for one in found.messages)


def test_fire_passes_the_arguments_to_a_function(tmp_path: Path) -> None:
    body = (
        SCRIPT.partition("@dataclass")[0]
        + """
import fire
from peft import LoraConfig

def train(base: str = "Qwen/Qwen2.5-3B", lr: float = 1e-5, targets: list[str] = ["k_proj"]):
    SFTTrainer(model=base, args=SFTConfig(learning_rate=lr, output_dir="out"),
               peft_config=LoraConfig(target_modules=targets),
               train_dataset=load_dataset("org/rows", split="train")).train()

fire.Fire(train)
"""
    )
    found = launched(tmp_path, "python train.py --lr 3e-5 --targets '[q_proj, v_proj]'\n", body)
    assert "lr = 3e-5" in found.text
    assert "targets = [q_proj, v_proj]" in found.text
    given = imported(body, *HARDWARE, "--set", "lr=3e-6", name="train.py", root=str(tmp_path))
    assert "lr = 3e-6" in given.text
    assert "train Qwen/Qwen2.5-3B on" in given.text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("from trl import PPOTrainer\nPPOTrainer(1).train()\n", "PPO, which xpc does not have"),
        ("from transformers import HfArgumentParser\nprint(HfArgumentParser(int))\n", "constructs no trainer"),
    ],
)
def test_script_that_trains_nothing_is_refused(tmp_path: Path, body: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        launched(tmp_path, "python train.py --model_name_or_path a/b --dataset_name c/d\n", body)


def test_command_that_trains_is_found_among_others(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_text("print('rows')\n")
    found = launched(tmp_path, "python prepare.py --rows x\npython train.py --lr 2e-6 --output_dir out\n")
    assert "lr = 2e-6" in found.text
    assert "train Qwen/Qwen2.5-3B" in launched(tmp_path, "srun python3 train.py\n").text


def test_files_of_another_machine_are_read_in_the_repository(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "c.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-3B\nlearning_rate: 4e-6\n")
    found = launched(tmp_path, "python train.py --config /home/me/repo/configs/c.yaml --output_dir out\n", TRL)
    assert "lr = 4e-6" in found.text
    assert any("a path of another machine" in one for one in found.messages)


def test_adapter_that_the_script_may_continue(tmp_path: Path) -> None:
    script = SCRIPT.replace('    unused: str = field(default="")', '    resume_adapter: str = ""')
    found = launched(tmp_path, "python train.py --output_dir out --resume_adapter out/sft\n", script)
    assert any("trains a new adapter" in one for one in found.messages)


CHANGED = (
    HEAD
    + """
@dataclass
class Config(SFTConfig):
    learning_rate: float = field(default=5e-6)
    num_train_epochs: float = 7

def main():
    args, config = TrlParser((ModelConfig, Config)).parse_args_and_config()
    config.per_device_train_batch_size = 3
    rows = load_dataset("org/rows", split="train")
    FILTER
    SFTTrainer(model=args.model_name_or_path, args=config, train_dataset=rows).train()

main()
"""
)
NAMED = "python train.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --output_dir out\n"


@pytest.mark.parametrize("unread", ["", "rows = rows.filter(keep)"])
def test_values_that_a_script_changes_count_although_the_command_has_only_names_of_trl(
    tmp_path: Path, unread: str
) -> None:
    script = CHANGED.replace("FILTER", unread)
    script = script.replace("SFTConfig, SFTTrainer", "ScriptArguments, SFTConfig, SFTTrainer")
    script = script.replace(
        "args, config = TrlParser((ModelConfig,", "_, args, config = TrlParser((ScriptArguments, ModelConfig,"
    )
    found = launched(tmp_path, NAMED, script)
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows for 7 epochs" in found.text
    assert "lr = 5e-6" in found.text
    assert "micro = 3" in found.text
    assert any("does more than its arguments state" in one for one in found.messages) == bool(unread)
    assert any("the script sets it, and the spec has its value: batch.micro = 3" in one for one in found.messages) == (
        bool(unread)
    )


def test_a_reward_that_a_class_of_the_script_names_by_default(tmp_path: Path) -> None:
    script = (
        HEAD.replace("SFTConfig, SFTTrainer", "GRPOConfig, GRPOTrainer, ScriptArguments")
        + """
from rewards import FUNCTIONS
@dataclass
class Script(ScriptArguments):
    reward_funcs: list[str] = field(default_factory=lambda: ["accuracy", "format"])

args, config, model = TrlParser((Script, GRPOConfig, ModelConfig)).parse_args_and_config()
GRPOTrainer(model=model.model_name_or_path, args=config, reward_funcs=[FUNCTIONS[one] for one in args.reward_funcs],
            train_dataset=load_dataset(args.dataset_name, split="train")).train()
"""
    )
    command = NAMED.replace("train.py", "grpo.py").replace("\n", " --num_generations 8\n")
    found = launched(tmp_path, command, script, name="grpo.py")
    assert "rewards = [accuracy, format]" in found.text


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("from trl import OnlineDPOTrainer\nOnlineDPOTrainer(model='a/b').train()\n", "online DPO"),
        ("from trl import PPOTrainer\nPPOTrainer(model='a/b').train()\n", "PPO"),
        ("from transformers import AutoModelForSequenceClassification as M, Trainer\n"
         "Trainer(model=M.from_pretrained('a/b')).train()\n", "another head"),
    ],
)  # fmt: skip
def test_a_training_that_no_spec_has_is_refused(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason) as error:
        launched(tmp_path, NAMED, script)
    assert error.value.kind


def test_commands_that_only_prepare_data_are_no_trainings(tmp_path: Path) -> None:
    for name in ("pairs.py", "merge_pairs.py"):
        (tmp_path / name).write_text("import argparse\nprint(argparse)\n")
    command = f"python pairs.py --out a.jsonl\npython merge_pairs.py --out b.jsonl\n{NAMED}"
    found = launched(tmp_path, command, CHANGED.replace("FILTER", ""))
    assert "train Qwen/Qwen2.5-3B on org/rows" in found.text
    with pytest.raises(Unreadable, match="it has 2 training commands: 1 on line 3"):
        launched(tmp_path, command + NAMED.replace("out", "again"), CHANGED.replace("FILTER", ""))


@pytest.mark.parametrize(
    ("command", "lr"),
    [
        ("RATE=3e-5 python train.py\n", "3e-5"),
        ("export RATE=3e-5\npython train.py\n", "3e-5"),
        ("RATE=3e-5\nexport RATE\npython train.py\n", "3e-5"),
        ("RATE=3e-5\npython train.py\n", "1e-5"),  # not exported, so the script does not see RATE
        ("RATE=4e-5 python other.py --x\nexport RATE=3e-5\npython train.py\nexport RATE=2e-5\n", "3e-5"),
    ],
)
def test_a_script_sees_the_environment_of_its_command(tmp_path: Path, command: str, lr: str) -> None:
    script = HEAD.replace("TrlParser", "setup_chat_format") + (
        "import os\nconfig = SFTConfig('out', max_length=64, learning_rate=float(os.environ.get('RATE', '1e-5')))\n"
        "rows = load_dataset('org/rows', split='train')\n"
        "SFTTrainer(model='Qwen/Qwen2.5-3B', args=config, train_dataset=rows).train()\n"
    )
    (tmp_path / "other.py").write_text("print(1)\n")
    found = launched(tmp_path, command, script)
    assert not found.draft.wrong, found.messages
    assert f"lr = {lr}" in found.text


@pytest.mark.parametrize(
    ("model", "template"), [("Qwen/Qwen2.5-3B-Instruct", False), ("meta-llama/Llama-2-7b-hf", True)]
)
def test_whether_a_registered_model_ships_a_chat_template_is_known(tmp_path: Path, model: str, template: bool) -> None:
    script = HEAD + (
        f"tokenizer = AutoTokenizer.from_pretrained('{model}')\n"
        "if tokenizer.chat_template is None:\n    tokenizer.chat_template = 'OWN {{ messages }}'\n"
        f"SFTTrainer(model='{model}', args=SFTConfig('out', max_length=64), processing_class=tokenizer,\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    found = launched(tmp_path, "python train.py\n", script)
    assert not found.draft.wrong, found.messages
    assert ("chat_template = " in found.text) is template


def test_prompts_that_a_script_makes_count_although_its_trainer_is_its_own(tmp_path: Path) -> None:
    script = (
        HEAD.replace("SFTConfig, SFTTrainer", "GRPOConfig, GRPOTrainer, ScriptArguments")
        + """
class Own(GRPOTrainer):
    def compute_loss(self, *args, **kwargs):
        return 0

def conversation(row):
    return {"prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": row["problem"]}]}

def length(completions, **kwargs):
    return [len(one) for one in completions]

args, config, model = TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()
rows = load_dataset(args.dataset_name, split="train").map(conversation)
Own(model=model.model_name_or_path, args=config, reward_funcs=[length], train_dataset=rows).train()
"""
    )
    command = NAMED.replace("train.py", "grpo.py").replace("\n", " --num_generations 8 --reward_funcs accuracy\n")
    found = launched(tmp_path, command, script, name="grpo.py")
    assert "prompt = problem" in found.text
    assert 'system = "Think."' in found.text or found.draft.files
    assert "rewards = [accuracy]" in found.text
    assert any(one.startswith("error") and "compute_loss" in one and "its own method" in one for one in found.messages)


def test_default_of_the_scripts_own_class_for_another_method_is_for_its_own_code(tmp_path: Path) -> None:
    script = HEAD + (
        "from dataclasses import dataclass\n@dataclass\nclass Arguments:\n"
        "    dataset: str = 'org/rows'\n    temperature: float = 0.7\n    weight_decay: float = 0.25\n"
        "own, args, config = TrlParser((Arguments, ModelConfig, SFTConfig)).parse_args_and_config()\n"
        "SFTTrainer(model=args.model_name_or_path, args=config, train_dataset=read(own.dataset)).train()\n"
    )
    found = launched(tmp_path, NAMED, script, "--partial")
    assert found.outcomes["temperature"] == "irrelevant"
    assert not any("temperature" in one.text for one in found.draft.messages)
    command = NAMED.replace("\n", " --temperature 0.5\n")
    assert any("sft has no such setting" in one for one in launched(tmp_path, command, script).messages)


def test_defaults_of_the_scripts_own_class_do_not_date_the_command(tmp_path: Path) -> None:
    script = HEAD.replace("SFTConfig, SFTTrainer", "GRPOConfig, GRPOTrainer, ScriptArguments") + (
        "from dataclasses import dataclass, field\n@dataclass\nclass Config(GRPOConfig):\n"
        "    benchmarks: list = field(default_factory=list)\n    overwrite_hub_revision: bool = False\n"
        "    hub_model_revision: str = 'main'\n    callbacks: list = field(default_factory=list)\n"
        "args, config, model = TrlParser((ScriptArguments, Config, ModelConfig)).parse_args_and_config()\n"
        "rows = load_dataset(args.dataset_name, split='train').filter(lambda row: keep(row))\n"
        "GRPOTrainer(model=model.model_name_or_path, args=config, reward_funcs=known(args),\n"
        "            train_dataset=rows).train()\n"
    )
    more = " --num_generations 8 --reward_funcs accuracy --importance_sampling_level token\n"
    found = launched(tmp_path, NAMED.replace("\n", more).replace("train.py", "grpo.py"), script, name="grpo.py")
    assert "level = token" in found.text
    assert min(float(one) for one in found.draft.fitting) >= 0.20


def test_a_trainer_that_is_not_in_the_repository_is_an_error(tmp_path: Path) -> None:
    script = HEAD + (
        "from pairs import PairTrainer\nargs, config = TrlParser((ModelConfig, SFTConfig)).parse_args_and_config()\n"
        "PairTrainer(model=args.model_name_or_path, args=config).train()\n"
    )
    found = launched(tmp_path, NAMED, script, "--partial")
    assert any("the script trains with a trainer of its own; the spec uses TRL's sft" in one.why
               for one in found.draft.messages)  # fmt: skip


REWARDS = """
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
OWN
@dataclass
class Arguments:
    base_model: str = field(default="google/gemma-2b-it")
    dataset: str = field(default="org/rows")
args, config = HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForSequenceClassification.from_pretrained(args.base_model, num_labels=1)
PairRewardTrainer(model=model, args=config, train_dataset=load_dataset(args.dataset, split="train")).train()
"""


@pytest.mark.parametrize(
    "own",
    [
        "from pairs import PairRewardTrainer",
        "class PairRewardTrainer(Trainer):\n    def compute_loss(self, model, inputs):\n        pass",
    ],
)
def test_a_reward_model_with_a_trainer_of_its_own_is_an_error_and_its_model_is_asked_for(
    tmp_path: Path, own: str
) -> None:
    """`base_model` is an argument of the script itself. It is no abbreviation of TRL's argument
    `base_model_attribute_name`.
    """
    command = "python train_rm.py --base_model Qwen/Qwen2.5-3B --dataset org/pairs --learning_rate 1e-5\n"
    script = HEAD + REWARDS.replace("OWN", own)
    found = launched(tmp_path, command, script, "--partial", name="train_rm.py")
    assert any("a trainer of its own" in one.why for one in found.draft.messages), found.messages
    assert found.draft.model == "Qwen/Qwen2.5-3B"
    assert not any("base_model_attribute_name" in one for one in found.messages)
    assert any("`base_model` and `dataset`, keys of the source's own" in one.text for one in found.draft.decisions)


def test_the_branch_for_a_tokenizer_of_another_family_is_not_taken(tmp_path: Path) -> None:
    script = HEAD + (
        "from transformers import LlamaTokenizer, GPT2Tokenizer, OPTForCausalLM\n"
        "args, config = TrlParser((ModelConfig, SFTConfig)).parse_args_and_config()\n"
        "tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)\n"
        "model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)\n"
        "if isinstance(tokenizer, LlamaTokenizer):\n"
        "    tokenizer.add_special_tokens({'unk_token': '<unk>'})\n"
        "elif isinstance(tokenizer, GPT2Tokenizer) and isinstance(model, OPTForCausalLM):\n"
        "    tokenizer.add_special_tokens({'bos_token': '<s>'})\n"
        "SFTTrainer(model=model, args=config, processing_class=tokenizer,\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    found = launched(tmp_path, NAMED.replace("--dataset_name org/rows ", ""), script)
    assert not found.draft.wrong, found.messages
    assert "model.tokens" not in found.draft.settings
    llama = launched(tmp_path, "python train.py --model_name_or_path me/Llama-2-7b --output_dir out\n", script)
    assert any("add_special_tokens" in one or "tokens" in one for one in llama.messages), llama.messages


def test_the_dtype_of_trls_own_scripts_may_be_left_out(tmp_path: Path) -> None:
    script = HEAD + (
        "import torch\nargs, config = TrlParser((ModelConfig, SFTConfig)).parse_args_and_config()\n"
        "dtype = args.dtype if args.dtype in ['auto', None] else getattr(torch, args.dtype)\n"
        "model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, dtype=dtype)\n"
        "SFTTrainer(model=model, args=config, train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    command = NAMED.replace("--dataset_name org/rows ", "")
    found = launched(tmp_path, command, script)
    assert not found.draft.wrong, found.messages
    assert "dtype = bf16" not in found.text
    stated = launched(tmp_path, command.replace("--output_dir", "--dtype bfloat16 --output_dir"), script)
    assert not stated.draft.wrong, stated.messages
    assert "dtype = bf16" in stated.text


def test_arguments_of_the_model_that_are_assigned_to_the_configuration(tmp_path: Path) -> None:
    script = HEAD + (
        "args, config = TrlParser((ModelConfig, SFTConfig)).parse_args_and_config()\n"
        "config.model_init_kwargs = dict(attn_implementation=args.attn_implementation, revision='abc')\n"
        "SFTTrainer(model=args.model_name_or_path, args=config,\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    command = NAMED.replace("--dataset_name org/rows", "--attn_implementation flash_attention_2")
    found = launched(tmp_path, command, script)
    assert not found.draft.wrong, found.messages
    assert "attn = flash2" in found.text
    assert "revision" in found.text


def test_pick_takes_a_command_and_no_training_of_the_script_that_it_starts(tmp_path: Path) -> None:
    script = HEAD + (
        "import sys\nfor name in ('org/a', 'org/b'):\n"
        "    SFTTrainer(model='Qwen/Qwen2.5-3B', args=SFTConfig(output_dir=sys.argv[1]),\n"
        "               train_dataset=load_dataset(name, split='train')).train()\n"
    )
    found = launched(tmp_path, "python train.py a\npython train.py b\n", script, "--pick", "2", "--partial")
    assert any("trains 2 times" in one.why or "trains 2 times" in one.text for one in found.draft.messages)
