"""The import reads training commands and shell scripts: launchers, quotes, variables, and the arguments that the
trainer finally gets.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from import_support import ABSENT, HARDWARE, PUBLISHED, REPOSITORY, WHERE, convert, imported

from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.shell import calls
from xpc.compiler.importing.trl import reader
from xpc.grammar.package_data import read_text

SEED = (
    "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name BAAI/Infinity-Instruct "
    "--dataset_config 0625 --do_train --learning_rate 1e-5 --lr_scheduler_type cosine_with_min_lr "
    "--lr_scheduler_kwargs '{\"min_lr\": 0}' --warmup_steps 40 --weight_decay 0.0 --max_grad_norm 1.0 --adam_beta1 0.9 "
    "--adam_beta2 0.95 --per_device_train_batch_size 11 --gradient_accumulation_steps 6 --gradient_checkpointing "
    "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}' --num_train_epochs 3 --use_liger --report_to wandb "
    "--run_name my-second-sft-exp"
)
DS = """{
  "fp16": {"enabled": false},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "zero_optimization": {"stage": 2, "overlap_comm": false, "allgather_bucket_size": 5e8, "reduce_bucket_size": "auto",
                        "round_robin_gradients": true},
  "train_batch_size": "auto"
}"""


def line(text: str, *arguments: str):
    return imported(text, "--command", text, *arguments, name="--command")


def test_the_seed_recipe_keeps_its_deepspeed_file(tmp_path):
    (tmp_path / "ds.json").write_text(DS)
    found = line(SEED, "--hardware", "8 x v100-32gb", "--deepspeed", str(tmp_path / "ds.json"))
    wanted = {
        "learning_rate": 1e-5, "warmup_steps": 40, "per_device_train_batch_size": 11, "gradient_accumulation_steps": 6,
        "adam_beta2": 0.95, "weight_decay": 0.0, "bf16": False, "report_to": ["wandb"], "run_name": "my-second-sft-exp",
    }  # fmt: skip
    assert {name: found.arguments[name] for name in wanted} == wanted
    assert found.payload["run"]["gbs"] == 528
    assert found.payload["run"]["zero_stage"] == 2
    zero = json.loads(found.files["deepspeed.json"])
    assert zero["zero_optimization"]["allgather_bucket_size"] == 500_000_000
    assert zero["zero_optimization"]["round_robin_gradients"] is True
    assert zero["optimizer"]["type"] == "AdamW"


@pytest.mark.parametrize(
    ("launch", "hardware", "strategy"),
    [
        ("accelerate launch --num_processes 16 --num_machines 2 x/sft.py", "8 x a100-80gb", "ddp"),
        ("accelerate launch --use_deepspeed --zero_stage 3 --num_processes 4 x/sft.py", "4 x a100-80gb", "zero3"),
        ("accelerate launch --use_fsdp --fsdp_version 2 --num_processes=4 x/sft.py", "4 x a100-80gb", "fsdp"),
        ("deepspeed --num_gpus 2 --num_nodes 2 sft.py", "2 x a100-80gb", "ddp"),
        ("python -m torch.distributed.run --nproc-per-node=2 --nnodes=1 sft.py", "2 x a100-80gb", "ddp"),
        ("torchrun --nproc_per_node=8 --nnodes=2 --node_rank=0 --master_addr=h --rdzv_backend c10d sft.py",
         "8 x a100-80gb", "ddp"),
        ("trl sft", "8 x a100-80gb", "ddp"),
    ],
)  # fmt: skip
def test_launchers_decide_hardware_and_strategy(launch, hardware, strategy):
    found = line(f"{launch} --model_name_or_path Qwen/Qwen2.5-3B --dataset_name a/b")
    assert not found.draft.wrong, found.messages
    assert f"strategy {strategy}" in found.text
    assert f"hardware {hardware.replace('a100-80gb', 'h100-80gb')}" in found.text


def test_variables_continuations_and_comments_of_a_script_are_read():
    script = (
        "#!/bin/bash\n#SBATCH --nodes=1\nset -e\nexport MODEL=Qwen/Qwen2.5-3B  # the base\nLR=2e-5\n"
        'WANDB_PROJECT=mine torchrun --nproc_per_node=4 \\\n  dpo.py \\\n  --model_name_or_path "$MODEL" \\\n'
        "  --dataset_name a/b --learning_rate ${LR} --report_to wandb --beta 0.2\n"
        "  echo done\n"
    )
    found = imported(script, name="run.sh")
    assert found.draft.method == "dpo"
    assert found.arguments["learning_rate"] == 2e-5
    assert found.arguments["beta"] == 0.2
    assert "project = " in found.text
    lines = {one.key: one.line for one in found.draft.outcomes.values()}
    assert (lines["model_name_or_path"], lines["learning_rate"]) == (8, 9)


@pytest.mark.parametrize(
    ("variables", "tracker", "lines"),
    [
        ("MLFLOW_EXPERIMENT_NAME=mine", "mlflow", ['project = "mine"']),
        ("SWANLAB_PROJECT=mine", "swanlab", ['project = "mine"']),
        ("CLEARML_PROJECT=mine CLEARML_TASK=first", "clearml", ['project = "mine"', 'name = "first"']),
        ("MLFLOW_EXPERIMENT_NAME=mine", "swanlab", []),
    ],
)
def test_the_variables_of_a_tracker_become_settings(variables: str, tracker: str, lines: list[str]):
    found = imported(
        f"{variables} torchrun --nproc_per_node=4 sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name a/b "
        f"--report_to {tracker}\n",
        name="run.sh",
    )
    assert not found.errors
    assert found.arguments["report_to"] == [tracker]
    assert [one for one in lines if one not in found.text] == []
    assert lines or "mine" not in found.text


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("echo hello", "no training command"),
        ("torchrun a.py --x 1\ntorchrun b.py --x 1", "2 training commands"),
        ("torchrun a.py --x 'open", "a quote is not closed"),
        ("python -m verl.trainer.main_ppo --config-name=ppo data.train_batch_size=8", "is a program of verl"),
        ("read -r -d '' all <<EOF\nopenrlhf.cli.train_dpo \\\n --bf16\nEOF\ndeepspeed --module $all", "of openrlhf"),
        ("accelerate launch -m axolotl.cli.train a.yml", "import `a.yml` instead"),
    ],
)
def test_what_cannot_be_read(text, output):
    with pytest.raises(Unreadable, match=output):
        convert(text, "--command", text, name="--command")


def test_an_unset_variable_is_an_error():
    found = line("torchrun --nproc_per_node=1 sft.py --model_name_or_path $BASE --dataset_name a/b")
    assert any("does not set $BASE" in one for one in found.messages)


def test_a_configuration_and_what_overrides_it(tmp_path):
    (tmp_path / "c.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: a/b\nlearning_rate: 1.0e-5\n")
    text = f"accelerate launch --num_processes 8 sft.py --config {tmp_path / 'c.yaml'} --learning_rate 3e-5"
    found = line(text)
    assert found.arguments["learning_rate"] == 3e-5
    assert any(one.outcome == "irrelevant" and one.key == "learning_rate" for one in found.draft.outcomes.values())


def test_the_line_of_trls_own_page_for_dpo_is_imported():
    """`--no_KEY` turns off a boolean that is on by default. The import knows
    `examples/accelerate_configs/deepspeed_zero3.yaml`, which is a file of TRL's repository.
    """
    dpo = "trl/scripts/dpo.py --model_name_or_path Qwen/Qwen2-0.5B --dataset_name trl-lib/ultrafeedback_binarized"
    reported = f"{dpo} --no_remove_unused_columns --no-dataloader-pin-memory --bf16"
    found = line(f"accelerate launch --config_file examples/accelerate_configs/deepspeed_zero3.yaml {reported}")
    assert found.arguments["remove_unused_columns"] is False
    assert found.outcomes["dataloader_pin_memory"] == "irrelevant"
    assert "strategy zero3\n" in found.text
    assert "config_file" in found.draft.differences
    assert any("no such key" in one for one in line(f"accelerate launch {dpo} --no_such_thing").messages)
    lost = line(f"accelerate launch --config_file multi_gpu.yaml {dpo}")
    assert any("the file does not exist" in one for one in lost.messages)


@pytest.mark.parametrize("value", ["true", "false"])
def test_arguments_that_the_machine_decides_are_read(value):
    text = f"python sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name a/b --use_cache {value}"
    found = line(f"{text} --dataloader_pin_memory {value}")
    assert {found.outcomes[one] for one in ("dataloader_pin_memory", "use_cache")} == {"irrelevant"}


def test_fastchat_masks_questions_with_a_template_of_its_own():
    found = line(
        "torchrun --nproc_per_node=4 fastchat/train/train_mem.py --model_name_or_path lmsys/vicuna-7b-v1.5 "
        "--data_path data/x.json --bf16 True --evaluation_strategy no --fsdp 'full_shard auto_wrap' "
        "--fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer --tf32 True --model_max_length 2048 "
        "--gradient_checkpointing True --lazy_preprocess True --learning_rate 2e-5",
        "--hardware", "4 x a100-80gb",
    )  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert found.arguments["assistant_only_loss"] is True
    assert found.arguments["optim"] == "adamw_torch"
    assert found.payload["data"]["sources"][0]["shape"] == "conversations"
    with open(os.path.join(REPOSITORY, "specs", "templates", "vicuna.jinja"), encoding="utf-8") as handle:
        assert handle.read() == read_text(reader.__file__, "vicuna.jinja")


def test_words_of_a_shell_are_split_and_expanded():
    (call,) = calls("A=1 run 'a b' \"c $A ${B:-d}\" e\\ f # no\n")
    assert [one.text for one in call.words] == ["run", "a b", "c $A d", "e f"]
    assert [one.text for one in call.environment] == ["A=1"]
    known = calls("A=x\nrun $A ${A}y '$A'\n")[-1]
    assert [one.text for one in known.words] == ["run", "x", "xy", "$A"]


@pytest.mark.skipif(ABSENT, reason=WHERE)
def test_every_published_command_has_a_place_for_every_word(tmp_path):
    for folder in ("seed", "fastchat"):
        with open(os.path.join(PUBLISHED, folder, "commands.json"), encoding="utf-8") as handle:
            commands = json.load(handle)
        for argv in commands.values():
            text = shlex.join(argv)
            extra = ["--data", "./rows.json"] if "$DATA_PATH" in argv else []
            if "--deepspeed" in argv:
                (tmp_path / "ds.json").write_text(DS if folder == "seed" else '{"zero_optimization": {"stage": 2}}')
                extra += ["--deepspeed", str(tmp_path / "ds.json")]
            draft, _ = convert(text, "--command", text, *extra, name="--command")
            keys = {key.partition(".")[0] for _, key in draft.outcomes}
            for word in argv:
                if word.startswith("--"):
                    assert word[2:].partition("=")[0] in keys | {"deepspeed"}, (word, keys)
            assert not draft.wrong, draft.messages


FACTORY = (
    "--stage sft --do_train True --model_name_or_path Qwen/Qwen2.5-7B-Instruct --finetuning_type lora --template qwen "
    "--dataset alpaca_en_demo --learning_rate 5e-05 --per_device_train_batch_size 2 --output_dir saves/x --bf16 True"
)


@pytest.mark.parametrize(
    ("words", "hardware"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train", "2 x h100-80gb"),
        ("NPROC_PER_NODE=4 llamafactory-cli train", "4 x h100-80gb"),
        ("llamafactory-cli train", "8 x h100-80gb"),
        ("python src/train_bash.py", "1 x h100-80gb"),
        ("torchrun --nproc_per_node 4 --master_port 2900 src/train.py", "4 x h100-80gb"),
    ],
)
def test_llamafactorys_keys_are_read_from_options(words: str, hardware: str) -> None:
    found = imported(f"{words} {FACTORY}\nllamafactory-cli export merge.yaml\n", name="train.sh")
    assert not found.draft.wrong, found.messages
    assert not found.errors, found.errors
    assert found.draft.settings["hardware"].text == hardware
    assert found.arguments["learning_rate"] == 5e-5
    assert found.payload["lora"]["rank"] == 8
    assert "checkpointing(reentrant=true)" in found.text


def test_llamafactorys_command_states_the_number_of_gpus_that_hardware_leaves_open() -> None:
    text = f"NPROC_PER_NODE=4 llamafactory-cli train {FACTORY}\n"
    found = [imported(text, "--hardware", one, name="train.sh") for one in ("a100-80gb", "2 x a100-80gb")]
    assert [one.draft.settings["hardware"].text for one in found] == ["4 x a100-80gb", "2 x a100-80gb"]


def test_values_of_the_command_replace_those_of_llamafactorys_file(tmp_path: Path) -> None:
    keys = FACTORY.split("--")[1:]
    text = "".join(f"{key.split()[0]}: {key.split()[1]}\n" for key in keys)
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    found = imported(
        "llamafactory-cli train run.yaml learning_rate=1e-6\n", *HARDWARE, name="train.sh", root=str(tmp_path)
    )
    assert not found.draft.wrong, found.messages
    assert found.arguments["learning_rate"] == 1e-6
    assert found.arguments["per_device_train_batch_size"] == 2
    with pytest.raises(Unreadable, match="is not `key=value`"):
        imported("llamafactory-cli train run.yaml again\n", *HARDWARE, name="train.sh", root=str(tmp_path))
    with pytest.raises(Unreadable, match="no training command"):
        imported("llamafactory-cli export run.yaml\n", *HARDWARE, name="train.sh", root=str(tmp_path))


def test_wrappers_are_followed_in_linear_time_and_through_many_options(tmp_path: Path) -> None:
    options = " ".join(f"--env A{n}={n}" for n in range(40))
    inner = "python train.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --num_train_epochs 2"
    for wrapper in (f"apptainer exec {options} image.sif", "./scripts/with_gpu.sh", "env " * 60):
        found = imported(f"{wrapper} {inner}\n", *HARDWARE, "--method", "sft", name="run.sh", root=str(tmp_path))
        assert "train Qwen/Qwen2.5-3B on org/rows for 2 epochs" in found.text
    with pytest.raises(Unreadable, match="no training command"):
        imported("env " * 60 + "foo\n", *HARDWARE, name="run.sh", root=str(tmp_path))


def test_a_script_that_states_values_itself_and_is_not_read_is_an_error(tmp_path: Path) -> None:
    body = "from trl import SFTConfig, SFTTrainer\nfor name in open('a'):\n    pass\n"
    train = "SFTTrainer('Qwen/Qwen2.5-3B', SFTConfig('out', packing=True), train_dataset=1).train()\n"
    (tmp_path / "train.py").write_text(body + 2 * train)
    command = "python train.py --model_name_or_path Qwen/Qwen2.5-3B\n"
    found = imported(command, *HARDWARE, name="run.sh", root=str(tmp_path))
    assert found.draft.wrong
    assert any("it trains 2 times" in one and one.startswith("error") for one in found.messages), found.messages


def test_a_sourced_file_may_return_and_a_command_that_does_not_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text('if [[ -z "${ROOT:-}" ]]; then\n  return 1 2>/dev/null || exit 1\nfi\nL=1e-6\n')
    command = "trl sft --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --learning_rate $L\n"
    found = imported("source common.sh\n" + command, *HARDWARE, name="run.sh", root=str(tmp_path))
    assert "lr = 1e-6" in found.text
    (tmp_path / "common.sh").write_text("L=1e-7\nreturn\nL=1e-6\n")
    found = imported("source common.sh\n" + command, *HARDWARE, name="run.sh", root=str(tmp_path))
    assert "lr = 1e-7" in found.text
    text = 'case "${1:-help}" in\n  help) echo python train.py;;\n  train) python train.py --lr 1;;\nesac\n'
    with pytest.raises(Unreadable, match="the command on line 3 does not run"):
        imported(text, *HARDWARE, name="run.sh", root=str(tmp_path))


def test_two_dashes_end_the_options_of_the_launcher() -> None:
    found = imported("accelerate launch --num_processes 8 sft.py -- --model_name_or_path Qwen/Qwen2.5-3B "
                     "--dataset_name org/rows\n", *HARDWARE, name="run.sh")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows" in found.text


def test_lines_of_a_here_document_continue_after_a_backslash() -> None:
    text = """\
read -r -d '' words <<EOF
sft.py \\
   --model_name_or_path Qwen/Qwen2.5-3B \\
   --bf16 \\
   --dataset_name org/rows
EOF
deepspeed --num_gpus 2 $words
"""
    found = imported(text, *HARDWARE, name="run.sh")
    assert not found.draft.wrong, found.messages
    assert "train Qwen/Qwen2.5-3B on org/rows" in found.text


def test_fastchat_s_script_is_not_looked_for_by_its_name(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "train.py").write_text("loss = model(rows)\nloss.backward()\n")
    words = "--model_name_or_path lmsys/vicuna-7b-v1.5 --data_path chats.json --bf16 True --output_dir out"
    command = f"torchrun --nproc_per_node=2 /code/fastchat/train/train.py {words}\n"
    found = imported(command, *HARDWARE, name="run.sh", root=str(tmp_path))
    assert not found.draft.wrong, found.messages
    assert "format = conversations" in found.text


def test_file_of_a_command_that_is_not_yaml_is_named(tmp_path) -> None:
    (tmp_path / "c.yaml").write_text("learning_rate: 1e-5\n<<<<<<< HEAD:c.yaml\nseed: 1\n")
    with pytest.raises(Unreadable, match=r"`c.yaml:\d`: it is not YAML"):
        imported("accelerate launch sft.py c.yaml\n", name="run.sh", root=str(tmp_path))
