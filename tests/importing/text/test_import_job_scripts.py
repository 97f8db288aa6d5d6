"""The import reads job scripts: `#SBATCH` lines, commands whose only argument is a configuration file, and commands
that do not state the number of processes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import Imported, imported

pytestmark = pytest.mark.slow

LAUNCH = "accelerate launch --config_file zero.yaml --num_machines $SLURM_NNODES --num_processes $WORLD "
RUN = "sft.py config.yaml $5\n"
FILES = {
    "zero.yaml": "distributed_type: DEEPSPEED\nnum_processes: 1\nnum_machines: 1\ndeepspeed_config:\n  zero_stage: 3\n",
    "config.yaml": "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/rows\nlearning_rate: 3.0e-6\n",
}


OWN = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
rows = load_dataset("org/rows", split="train")
trainer = SFTTrainer("Qwen/Qwen2.5-3B", args=SFTConfig(output_dir="o"), train_dataset=rows)
trainer.train()
"""


def job(folder: Path, text: str) -> Imported:
    for name, one in FILES.items():
        (folder / name).write_text(one)
    return imported(text, name="job.slurm", root=str(folder))


@pytest.mark.parametrize(("lines", "hardware", "nodes"), [
    ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:a100:4\n", "hardware 4 x", "nodes 2"),
    ("#SBATCH -N 2\n#SBATCH --gpus-per-node=4\n", "hardware 4 x", "nodes 2"),
    ("#SBATCH --gres=gpu:2\n", "hardware 2 x", ""),
    ("#SBATCH --gpus=2\n", "hardware 2 x", ""),
])  # fmt: skip
def test_slurms_lines_give_nodes_and_gpus(tmp_path: Path, lines: str, hardware: str, nodes: str) -> None:
    found = job(tmp_path, f"#!/bin/bash\n{lines}WORLD=$(($SLURM_NNODES * $SLURM_GPUS_ON_NODE))\n{LAUNCH}{RUN}")
    assert not found.draft.wrong, found.messages
    assert hardware in found.text
    assert (nodes or "lr = 3e-6") in found.text
    assert bool(nodes) is ("\nnodes " in found.text)


NODES = "N=$(scontrol show hostnames $SLURM_JOB_NODELIST | wc -l)\n"
LISTED = "L=( $(scontrol show hostnames ${SLURM_JOB_NODELIST}) )\nN=${#L[@]}\n"
MAPPED = 'mapfile -t L < <(scontrol show hostnames "$SLURM_JOB_NODELIST")\nN=${#L[@]}\n'


@pytest.mark.parametrize("count", [NODES, LISTED, MAPPED])
@pytest.mark.parametrize("program", ["sft.py", "own.py"])
def test_nodes_are_counted_in_the_list_of_their_names(tmp_path: Path, count: str, program: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    launch = f"accelerate launch --num_processes $((4 * N)) --num_machines $N {program}"
    arguments = "" if program == "own.py" else " --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows"
    found = job(tmp_path, f"#SBATCH --nodes=2\n{count}{launch}{arguments}\n")
    assert "hardware 4 x" in found.text
    assert "\nnodes 2" in found.text


def test_number_of_words_that_a_command_prints_is_not_known(tmp_path: Path) -> None:
    launch = "accelerate launch --num_machines 1 --num_processes"
    found = job(tmp_path, f"GPUS=($(ls /dev/cards))\n{launch} ${{#GPUS[@]}} sft.py --config config.yaml\n")
    assert any("does not set $GPUS" in one for one in found.messages), found.messages


def test_processes_that_nothing_sets_are_not_those_of_the_file(tmp_path: Path) -> None:
    found = job(tmp_path, LAUNCH + RUN)
    assert not found.draft.wrong, found.messages
    assert "hardware 8 x" in found.text
    assert any("does not set $WORLD" in one for one in found.messages)
    assert "hardware 1 x" in job(tmp_path, f"accelerate launch --config_file zero.yaml {RUN}").text


def test_an_argument_that_nothing_gives_is_no_word_next_to_the_file(tmp_path: Path) -> None:
    found = job(tmp_path, f"accelerate launch {RUN}")
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text
    assert any("`$5`" in one and "assumes that it is empty" in one for one in found.messages)


def test_steps_of_the_launcher_that_a_program_reads_are_the_trainers(tmp_path: Path) -> None:
    read = "STEPS=$(grep steps config.yaml | cut -d: -f2)\n"
    found = job(tmp_path, f"{read}accelerate launch --config_file zero.yaml --gradient_accumulation_steps $STEPS {RUN}")
    assert not found.draft.wrong, found.messages
    assert "accum = 1" in found.text


ALPACA = """\
import transformers
from torch.utils.data import Dataset
class Rows(Dataset):
    def __init__(self, path):
        self.rows = open(path).read().split()
parser = transformers.HfArgumentParser((transformers.TrainingArguments,))
args, = parser.parse_args_into_dataclasses()
transformers.Trainer(model="Qwen/Qwen2.5-3B", args=args, train_dataset=Rows("a.json")).train()
"""


def test_data_path_of_a_script_without_conversations_is_not_fastchats(tmp_path: Path) -> None:
    command = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-3B --data_path a.json --lr 3e-6\n"
    chat = "from fastchat.conversation import get_conv_template\nchat = get_conv_template('vicuna')\n"
    rows = "from fastchat.train.train import (\n    ModelArguments,\n    make_supervised_data_module,\n)\n"
    named = "conversation = []  # as in fastchat\n"
    arguments = "from fastchat.train.train import (\n    ModelArguments,\n)\n"
    for more, chats in (("", False), (named, False), (arguments, False), (chat, True), (rows, True)):
        text = ALPACA + more
        (tmp_path / "train.py").write_text(text)
        found = imported(command, "--partial", name="run.sh", root=str(tmp_path))
        assert ("assistant_only" in found.text) is chats
        assert any("`data_path`" in one.text for one in found.draft.decisions) is not chats
        assert "a.json" in found.text


FACTORY = (
    "model_name_or_path: Qwen/Qwen2.5-3B\nstage: sft\ndo_train: true\nfinetuning_type: full\ntemplate: qwen\n"
    "dataset: alpaca_en_demo\nlearning_rate: 3.0e-6\noutput_dir: out\nbf16: true\n"
)


@pytest.mark.parametrize("text", [
    "accelerate launch --num_processes 2 $(which llamafactory-cli) train sft.yaml\n",
    "torchrun --nproc_per_node 2 $(command -v llamafactory-cli) train sft.yaml\n",
    'tmux send-keys -t s "cd . && CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train sft.yaml | tee log" C-m\n',
    "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train sft.yaml\n"
    "export CUDA_VISIBLE_DEVICES=0\naccelerate launch -m lm_eval --model hf --tasks gsm8k\n",
])  # fmt: skip
def test_llamafactory_is_found_through_other_programs(tmp_path: Path, text: str) -> None:
    (tmp_path / "sft.yaml").write_text(FACTORY)
    found = imported(text, name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text
    assert "hardware 2 x" in found.text


def test_a_script_that_starts_llamafactory(tmp_path: Path) -> None:
    (tmp_path / "entry.py").write_text(
        "def main():\n    from llamafactory.train.tuner import run_exp\n    run_exp()\nmain()\n"
    )
    (tmp_path / "sft.yaml").write_text(FACTORY)
    found = imported("torchrun --nproc_per_node 2 entry.py sft.yaml\n", name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text
    assert any("`entry.py` starts LLaMA-Factory" in one for one in found.messages)


def test_arguments_of_the_shell_are_not_the_programs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("lr: 3.0e-6\n")
    (tmp_path / "train.py").write_text(
        "import sys, yaml\nfrom datasets import load_dataset\nfrom trl import SFTConfig, SFTTrainer\n"
        "c = yaml.safe_load(open(sys.argv[1]))\n"
        "SFTTrainer(model='Qwen/Qwen2.5-3B', args=SFTConfig(output_dir='out', learning_rate=c['lr'], max_length=512),\n"
        "           train_dataset=load_dataset('org/rows', split='train')).train()\n"
    )
    found = imported("python train.py $1.yaml\n", "--set", "1=a", name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "lr = 3e-6" in found.text


def test_gpus_that_deepspeed_includes_are_counted(tmp_path: Path) -> None:
    run = "sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --output_dir out\n"
    found = imported(f"GPUS=2,5,7\ndeepspeed --include localhost:$GPUS {run}", name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "hardware 3 x" in found.text
    factory = "--stage sft --do_train --finetuning_type full --dataset alpaca_en_demo --template qwen\n"
    found = imported(f"deepspeed --include localhost:0 src/train.py {run[7:-1]} {factory}".replace(
        "--dataset_name org/rows ", ""), name="run.sh", root=str(tmp_path))  # fmt: skip
    assert "hardware 1 x" in found.text


def test_a_script_that_is_not_read_is_reported_and_its_own_trainer_is_an_error(tmp_path: Path) -> None:
    run = "python sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --output_dir out\n"
    script = (
        "from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser\nfrom own.trainers import SFTTrainer\n"
        "args, config = TrlParser((ModelConfig, SFTConfig)).parse_args_and_config()\n"
        "SFTTrainer(model=args.model_name_or_path, args=config).train()\n"
    )
    (tmp_path / "sft.py").write_text(script)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "trainers.py").write_text("class SFTTrainer:\n    def train(self):\n        pass\n")
    found = imported(run, name="run.sh", root=str(tmp_path))
    assert any(one.startswith("error") and "a trainer of its own" in one for one in found.messages), found.messages
    later = script.replace("from own.trainers import SFTTrainer", "from elsewhere import run")
    (tmp_path / "sft.py").write_text(later.replace("SFTTrainer(model", "run(lambda: SFTTrainer(model")[:-1] + ")\n")
    found = imported(run, name="run.sh", root=str(tmp_path))
    assert any(one.startswith("warning") and "`sft.py` cannot be imported" in one for one in found.messages), (
        found.messages
    )


def test_orpo_as_a_stage_of_an_older_llamafactory_is_read(tmp_path: Path) -> None:
    command = (
        "CUDA_VISIBLE_DEVICES=0 python src/train_bash.py --stage orpo --orpo_beta 0.2 --do_train "
        "--finetuning_type full "
        "--model_name_or_path Qwen/Qwen2.5-3B --dataset comparison_gpt4_en --template qwen --output_dir out\n"
    )
    found = imported(command, name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "method orpo" in found.text
    assert "beta = 0.2" in found.text


def test_abbreviated_options_of_a_launcher_are_read(tmp_path: Path) -> None:
    run = "sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --output_dir out\n"
    found = imported(f"torchrun --nproc_per_node=4 --nnode 2 {run}", name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "hardware 4 x" in found.text
    assert "nodes 2" in found.text


SHORT = """
import argparse, json
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--config", "-c", required=True)
parser.add_argument("-n", "--epochs", type=int, default=3)
args = parser.parse_args()
with open(args.config) as file:
    config = json.load(file)
training = SFTConfig(output_dir="o", learning_rate=config["lr"], num_train_epochs=args.epochs)
rows = load_dataset(config["data"], split="train")
SFTTrainer(config["model"], args=training, train_dataset=rows).train()
"""
JSON = '{"model": "Qwen/Qwen2.5-3B", "data": "org/rows", "lr": 3e-6}'


def test_short_options_and_a_path_with_an_unknown_beginning_are_read(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SHORT)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "british.json").write_text(JSON)
    start = "KIND=${1:?which}\nROOT=/scratch/$USER/repo\n"
    text = f"{start}python $ROOT/own.py -n 2 -c $ROOT/configs/$KIND.json\n"
    found = imported(text, "--set", "1=british", name="job.slurm", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows for 2 epochs" in found.text
    assert "lr = 3e-6" in found.text
    unknown = imported(text, name="job.slurm", root=str(tmp_path))
    assert any("does not set $1" in one or "$1" in one for one in unknown.messages), unknown.messages


SETTINGS = "model_name_or_path: ${MODEL}\ndataset_name: org/rows\nlearning_rate: $LR\n"
START = "export MODEL=Qwen/Qwen2.5-3B LR=3.0e-6\nCONFIG=$(mktemp)\n"


@pytest.mark.parametrize("write", [
    'envsubst < base.yaml > "$CONFIG"',
    "envsubst '$MODEL $LR' <base.yaml >$CONFIG",
    "cat base.yaml | envsubst > $CONFIG",
    'cp config.yaml "$CONFIG"',
    "sed 's/3.0e-5/3.0e-6/' other.yaml > $CONFIG",
    "cp other.yaml $CONFIG\nsed -i -e 's|^learning_rate:.*|learning_rate: 3.0e-6|' $CONFIG",
    "cp other.yaml $CONFIG\nsed -i -E \"s/^(learning_rate:) [0-9.e-]+/\\1 $LR/\" $CONFIG",
    "cp other.yaml $CONFIG\nsed -i 's/^ *learning_rate: .*$/learning_rate: 3.0e-6/; ' $CONFIG",
    "cp other.yaml $CONFIG\nsed -i /learning_rate/d $CONFIG\necho \"learning_rate: $LR\" >> $CONFIG",
    "cp other.yaml $CONFIG\nyq -i '.learning_rate = 3.0e-6' $CONFIG",
    "yq eval \".learning_rate = $LR\" other.yaml > $CONFIG",
    "cat other.yaml | LR=3.0e-6 yq '.learning_rate = env(LR) | .model_name_or_path = strenv(MODEL)' > $CONFIG",
    "echo 'model_name_or_path: Qwen/Qwen2.5-3B' > $CONFIG\n"
    "cat >> $CONFIG <<EOF\ndataset_name: org/rows\nlearning_rate: $LR\nEOF",
])  # fmt: skip
def test_configuration_that_the_script_makes_of_others(tmp_path: Path, write: str) -> None:
    (tmp_path / "base.yaml").write_text(SETTINGS)
    (tmp_path / "other.yaml").write_text(FILES["config.yaml"].replace("e-6", "e-5"))
    found = job(tmp_path, f"{START}{write}\naccelerate launch --num_processes 2 sft.py --config $CONFIG\n")
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows" in found.text
    assert "lr = 3e-6" in found.text


@pytest.mark.parametrize("change", [
    "sed -i 's/[0-9]e-6/1e-5/' config.yaml",
    "yq -i '.learning_rate *= 2' config.yaml",
    "yq -i '.learning_rate = .other' config.yaml",
    "yq -i '.a = 1' -s name config.yaml",
    "python change.py > config.yaml",
])  # fmt: skip
def test_configuration_that_the_script_changes_otherwise_is_an_error(tmp_path: Path, change: str) -> None:
    found = job(tmp_path, f"{change}\naccelerate launch --num_processes 2 sft.py --config config.yaml\n")
    assert any(one.startswith("error") and "the script changes this file with" in one for one in found.messages)


def test_missing_file_of_accelerate_is_read_by_its_name_also_for_a_script_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    launch = "accelerate launch --num_processes 2 --config_file configs"
    found = job(tmp_path, f"{launch}/deepspeed_zero3.yaml own.py\n")
    assert "\nstrategy zero3\n" in found.text
    assert any("takes the ZeRO stage from its name" in one for one in found.messages)
    other = job(tmp_path, f"{launch}/mine.yaml own.py\n")
    assert any(one.startswith("error") and "weights and states are sharded" in one for one in other.messages)


CARDS = "GPUS=$(nvidia-smi -L | wc -l)\nNODES=$(hostname)\n"


def test_gpus_that_the_script_counts_are_those_of_slurm_or_the_option(tmp_path: Path) -> None:
    run = f"{CARDS}torchrun --nproc_per_node $GPUS sft.py --config config.yaml --gradient_accumulation_steps "
    slurm = job(tmp_path, f"#SBATCH --gres=gpu:4\n{run}$((32 / GPUS))\n")
    assert "hardware 4 x" in slurm.text
    assert "accum = 8" in slurm.text
    option = imported(f"{run}$((32 / GPUS))\n", "--hardware", "2 x h100-80gb", name="job.sh", root=str(tmp_path))
    assert "accum = 16" in option.text
    unknown = job(tmp_path, f"{run}$((32 / NODES))\n")
    assert any("the script does not set $NODES" in one for one in unknown.messages), unknown.messages


POSITIONAL = """
import json, sys
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
config = json.load(open(sys.argv[1]))
training = SFTConfig(output_dir="o", learning_rate=config["lr"])
rows = load_dataset(config["data"], split="train")
SFTTrainer(config["model"], args=training, train_dataset=rows).train()
"""


def test_file_that_a_word_names_is_read_by_the_script(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(POSITIONAL)
    (tmp_path / "sft.json").write_text(JSON)
    found = job(tmp_path, "python own.py sft.json\n")
    assert "lr = 3e-6" in found.text
    assert not any("changes nothing" in one for one in found.messages), found.messages


@pytest.mark.parametrize("program", ["sft.py", "own.py"])
def test_comment_after_a_backslash_ends_the_command(tmp_path: Path, program: str) -> None:
    (tmp_path / "own.py").write_text(SHORT)
    first = "--config=config.yaml" if program == "sft.py" else "--config=sft.json"
    (tmp_path / "sft.json").write_text(JSON)
    found = job(tmp_path, f"python {program} {first} \\ # the settings of May\n    --epochs=2\n")
    errors = [one for one in found.messages if one.startswith("error")]
    assert len(errors) == 1, errors
    assert "the command ends here" in errors[0]


GETTER = """
import json
from dataclasses import dataclass
from datasets import Dataset, load_dataset
from transformers import HfArgumentParser
from trl import ModelConfig, SFTConfig, SFTTrainer
@dataclass
class Arguments:
    dataset_name: str = "good"
parser = HfArgumentParser((Arguments, SFTConfig, ModelConfig))
args, training, model = parser.parse_args_into_dataclasses()
rows = {"bad": load_bad, "good": load_good}[args.dataset_name]()
SFTTrainer(model.model_name_or_path, args=training, train_dataset=rows).train()
"""


def test_name_that_only_the_script_knows_is_not_the_data(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(GETTER)
    run = (
        "accelerate launch --num_processes 2 own.py --output_dir o --model_name_or_path Qwen/Qwen2.5-3B --dataset_name"
    )
    found = job(tmp_path, f"{run} other_rows\n")
    assert not found.draft.sources
    assert any("the script builds its rows from" in one for one in found.messages), found.messages
    assert job(tmp_path, f"{run} org/rows\n").draft.sources


def test_rows_that_the_script_holds_out_replace_the_split_of_the_evaluation(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("""
from datasets import load_dataset
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser
parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
args, training, model = parser.parse_args_and_config()
rows = load_dataset(args.dataset_name, split="train").filter(usable).train_test_split(test_size=0.1)
trainer = SFTTrainer(model.model_name_or_path, args=training, train_dataset=rows["train"], eval_dataset=rows["test"])
trainer.train()
""")
    (tmp_path / "eval.yaml").write_text(FILES["config.yaml"] + "eval_strategy: epoch\ndataset_test_split: test\n")
    found = job(tmp_path, "python own.py --config eval.yaml\n")
    assert "holdout = 10%" in found.text
    assert "split = test" not in found.text


INLINE = POSITIONAL.replace("sys.argv[1]", '"$SETTINGS"')


@pytest.mark.parametrize("command", [
    "python -c '" + POSITIONAL.replace("sys.argv[1]", '"sft.json"') + "'\n",
    "python - <<EOF" + INLINE + "EOF\n",
    "CUDA_VISIBLE_DEVICES=0 python3 -u - sft.json <<'EOF'" + POSITIONAL + "EOF\n",
])  # fmt: skip
def test_python_code_in_a_shell_script_is_read(tmp_path: Path, command: str) -> None:
    (tmp_path / "sft.json").write_text(JSON)
    start = "SETTINGS=sft.json\npython -c 'import torch; print(torch.__version__)'\n"
    found = job(tmp_path, start + command)
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows" in found.text
    assert "lr = 3e-6" in found.text


def test_python_code_next_to_a_training_command_is_not_read(tmp_path: Path) -> None:
    code = "python - <<EOF\nfrom trl import SFTTrainer\nprint(SFTTrainer)\nEOF\n"
    found = job(tmp_path, f"{code}accelerate launch --num_processes 2 sft.py --config config.yaml\n")
    assert "lr = 3e-6" in found.text
