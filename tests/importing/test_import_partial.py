"""`xpc import --partial` writes a spec in which known keys are settings, and every other line is a comment. It also
lists the decisions that are left to the user.
"""

from __future__ import annotations

import json

import pytest
from import_support import HEAD

from xpc.compiler.cli import main

SCRIPT = """\
from dataclasses import dataclass, field
import argparse

raise SystemExit("an import executes nothing")


@dataclass
class Arguments:
    reward_type: str = field(default="soft", metadata={"help": "how answers are compared"})


parser = argparse.ArgumentParser()
parser.add_argument("--bonus-scale", type=float, default=0.5, help="weight of the bonus")
print(config["curriculum"])
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def run(*arguments, capsys):
    status = main(["import", "--hardware", "8 x h100-80gb", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_unknown_lines_become_comments_with_what_the_script_declares(here, capsys):
    (here / "r.yaml").write_text(HEAD + "learning_rate: 1e-6\nreward_type: exact\nbonus_scale: 2\ncurriculum: hard\n")
    assert run("r.yaml", capsys=capsys)[0] == 1
    status, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert status == 3
    assert "train Qwen/Qwen2.5-3B on org/rows" in out
    assert "lr = 1e-6" in out
    assert "# r.yaml:4: reward_type: exact" in out.replace('"', "")
    assert "train.py:9 declares it, default 'soft': how answers are compared" in out
    assert "train.py:13 declares it, default 0.5: weight of the bonus" in out
    assert "train.py:14 reads it" in out
    assert "1 decision left" in err
    assert "`reward_type`, `bonus_scale`, `curriculum`" in err


def test_decisions_are_counted_and_short(here, capsys):
    (here / "r.yaml").write_text(HEAD.partition("\n")[0] + "\nlerning_rate: 1\nfp8: true\ntpu_num_cores: 8\n")
    status, out, err = run("r.yaml", "--partial", "-o", "r.xp", capsys=capsys)
    assert (status, out) == (3, "")
    assert "which data the run trains on" in err
    assert "did you mean `learning_rate`?" in err
    assert "# train Qwen/Qwen2.5-3B on DATA" in (here / "r.xp").read_text()
    assert "r.yaml:2: lerning_rate: 1" in (here / "r.xp").read_text()


def test_everything_that_one_variable_decides_is_one_decision(here, capsys):
    (here / "r.sh").write_text(
        'case "$SIZE" in\n  s) M=Qwen/Qwen2.5-3B; D=org/rows; LR=1e-6;;\n'
        "  m) M=Qwen/Qwen2.5-7B; D=org/more; LR=1e-7;;\nesac\n"
        "trl sft --model_name_or_path $M --dataset_name $D --learning_rate $LR\n"
    )
    err = run("r.sh", "--partial", "-o", "r.xp", capsys=capsys)[2]
    assert "1 decision left" in err
    assert "which model is trained, which data the run trains on, `learning_rate`: the script does not set $SIZE" in err
    assert "the script compares it with s, m" in err
    status, out, _ = run("r.sh", "--set", "SIZE=s", capsys=capsys)
    assert status == 0
    assert "train Qwen/Qwen2.5-3B on org/rows" in out


def test_key_that_a_script_declares_is_no_typo(here, capsys):
    (here / "r.yaml").write_text(HEAD + "bonus_scale: 2\nlerning_rate: 1\nuse_pefft: true\n")
    (here / "more.py").write_text("parser.add_argument('--use_pefft')\n")
    err = run("r.yaml", "--partial", "-o", "r.xp", capsys=capsys)[2]
    assert "2 keys of the repository's own script should do: `bonus_scale`, `use_pefft`" in err
    assert "did you mean `learning_rate`?" in err
    assert "did you mean `use_peft`?" not in err


def test_another_word_is_no_typo(here, capsys):
    (here / "r.yaml").write_text(HEAD + "reward_type: exact\n")
    assert "did you mean" not in run("r.yaml", capsys=capsys)[2]


def test_complete_source_is_imported_with_status_0(here, capsys):
    (here / "r.yaml").write_text(HEAD)
    status, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert status == 0
    assert "decision" not in err
    assert "person must decide" not in out


def test_report_has_the_decisions(here, capsys):
    (here / "r.yaml").write_text(HEAD + "reward_type: exact\n")
    status, out, _ = run("r.yaml", "--partial", "--report", "json", capsys=capsys)
    found = json.loads(out)
    assert (status, found["ok"]) == (3, False)
    assert [one["fate"] for one in found["keys"]] == ["mapped", "mapped", "undecided"]
    assert found["decisions"][0]["places"] == ["r.yaml:3"]


def test_secret_is_not_shown(here, capsys):
    (here / "r.yaml").write_text(HEAD + "my_api_token: hf_" + "a" * 34 + "\n")
    _, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert "aaaa" not in out + err


def test_key_that_probably_names_the_data_is_taken_and_asked_about(here, capsys):
    (here / "r.yaml").write_text("model_id: Qwen/Qwen2.5-3B\ndataset_path: org/rows\nlearning_rate: 1e-6\n")
    assert run("r.yaml", capsys=capsys)[0] == 1
    status, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert status == 3
    assert "train Qwen/Qwen2.5-3B on org/rows" in out
    assert "1 decision left" in err
    assert "whether `model_id` and `dataset_path`, keys of the source's own script, name the model and the data" in err


def test_keys_of_trl_are_not_asked_about(here, capsys):
    (here / "r.yaml").write_text(HEAD + "dataset_path: x\n")
    _, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert "on org/rows" in out
    assert "whether" not in err


def test_missing_rewards_are_a_decision(here, capsys):
    (here / "r.yaml").write_text(HEAD + "reward_funcs: [exact_match]\nnum_generations: 8\n")
    status, _, err = run("r.yaml", capsys=capsys)
    assert status == 1, "the spec is written, and `xpc check` refuses it"
    assert "XP114" in err
    status, _, err = run("r.yaml", "--partial", capsys=capsys)
    assert status == 3
    assert "what the reward functions compute, because the file `rewards.py`" in err
    (here / "rewards.py").write_text("def exact_match(completions, **_):\n    return [1.0] * len(completions)\n")
    assert run("r.yaml", "--partial", capsys=capsys)[0] == 0


def test_variables_of_yaml_are_expanded(here, capsys):
    (here / "r.yaml").write_text(HEAD + "hub_model_id: me/x${VERSION}\nlearning_rate: ${LR:-2e-6}\n")
    status, out, _ = run("r.yaml", "--set", "VERSION=-v2", capsys=capsys)
    assert status == 0
    assert "lr = 2e-6" in out
    assert "variable that is not set" in run("r.yaml", capsys=capsys)[2]


def test_arguments_of_loading_are_keys_of_the_file(here, capsys):
    (here / "r.yaml").write_text(HEAD + "model_init_kwargs:\n  attn_implementation: sdpa\n  torch_dtype: bfloat16\n")
    status, out, _ = run("r.yaml", capsys=capsys)
    assert status == 0
    assert "attn = sdpa" in out


def test_rewards_that_the_import_writes_are_no_decision(here, capsys):
    (here / "g.py").write_text(
        "from datasets import load_dataset\nfrom trl import GRPOConfig, GRPOTrainer\n\n\n"
        "def longer(completions, **kwargs):\n    return [float(len(one)) for one in completions]\n\n\n"
        "trainer = GRPOTrainer(model='Qwen/Qwen2.5-3B', reward_funcs=longer, args=GRPOConfig(bf16=True),\n"
        "                      train_dataset=load_dataset('org/rows', split='train'))\ntrainer.train()\n"
    )
    status, _, err = run("g.py", "--partial", "--rewards", "r.py", "-o", "g.xp", capsys=capsys)
    assert status == 0, err
    assert "wrote r.py" in err


OWN = "model_name: Qwen/Qwen2.5-3B\ntrain_path: rows.jsonl\nlearning_rate: 1e-6\n"


def test_adapter_of_a_file_of_the_repositorys_own_script_is_a_decision(here, capsys):
    (here / "r.yaml").write_text(OWN + "lora_r: 8\n")
    (here / "more.py").write_text("rank = config['lora_r']\nSFTTrainer(model)\n")
    err = run("r.yaml", "--partial", "-o", "r.xp", capsys=capsys)[2]
    assert "what 1 key of the repository's own script should do: `lora_r`" in err
    assert "also reads the script that uses them: `more.py`" in err
    assert "without `use_peft: true`, TRL trains no adapter" in run("r.yaml", capsys=capsys)[2]
    (here / "r.yaml").write_text(HEAD + "lora_r: 8\n")
    status, _, err = run("r.yaml", capsys=capsys)
    assert status == 0
    assert "`lora_r`: without `use_peft: true`, TRL trains all weights" in err
    (here / "r.yaml").write_text(HEAD + "lora_r: 8\nuse_peft: false\n")
    assert "lora_r" not in run("r.yaml", capsys=capsys)[2]


def test_file_without_data_is_not_said_to_pass_the_check(here, capsys):
    (here / "r.yaml").write_text(HEAD.partition("\n")[0] + "\n")
    status, _, err = run("r.yaml", "-o", "r.xp", capsys=capsys)
    assert status == 0
    assert "wrote r.xp, which has no model or no data yet" in err
    assert "passes" not in err


@pytest.mark.parametrize("text", [
    OWN + "train_batch_size: 4\noutput_dir: out\n",
    "base_model: Qwen/Qwen2.5-3B\nsampling: {n: 4}\noptim: {lr: 1}\nlora: {r: 8}\nquick: true\n",
])  # fmt: skip
def test_file_of_another_script_is_not_taken_for_deepspeeds_or_axolotls(here, capsys, text):
    (here / "r.yaml").write_text(text)
    status, _, err = run("r.yaml", capsys=capsys)
    assert status == 1
    assert "the imported tool has no such key" in err
    assert "DeepSpeed" not in err
    assert "axolotl" not in err


def test_what_one_argument_of_a_script_decides_is_one_decision(here, capsys):
    (here / "run.py").write_text("""
import argparse, json
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
config = json.load(open(parser.parse_args().config))
SFTTrainer(config["model"], SFTConfig("out", learning_rate=config["lr"], max_steps=config["steps"]),
           train_dataset=load_dataset(config["data"], split="train")).train()
""")
    err = run("run.py", "--partial", "-o", "r.xp", capsys=capsys)[2]
    assert "1 decision left" in err
    assert "which model is trained, which data the run trains on, `learning_rate`, `max_steps`: the script takes" in err


SECTIONS = """\
model:
  name: Qwen/Qwen2.5-3B
  dtype: bfloat16
grpo:
  lr: 2e-6
  num_generations: 4
  curriculum: hard
lora:
  enabled: true
  r: 16
  target_modules: [q_proj]
data:
  train_file: rows.jsonl
  seed: 7
vllm:
  enabled: true
  mode: colocate
train_dataset: null
"""


def test_sections_of_the_repositorys_own_script_are_read_by_names_of_trl(here, capsys):
    (here / "r.yaml").write_text(SECTIONS)
    (here / "rows.jsonl").write_text('{"prompt": "2 + 2"}\n')
    assert run("r.yaml", capsys=capsys)[0] == 1, "a section is read only with --partial"
    status, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert status == 3
    for text in ('train Qwen/Qwen2.5-3B on "rows.jsonl"', "method grpo", "generations = 4", "lr = 2e-6", "rank = 16",
                 "targets = [q_proj]", "mode = colocate", "dtype = bf16"):  # fmt: skip
        assert text in out
    assert "seed 7" not in out, "the seed of the data is not the seed of the run"
    assert (
        "whether `model.name` and `data.train_file`, keys of the source's own script, name the model and the data"
        in err
    )
    assert "whether `model.dtype`, `grpo.lr`, `grpo.num_generations`, `lora.enabled`" in err
    assert " have the same meaning in the source's own script as in TRL" in err
    assert "`grpo.curriculum`, `data.seed`" in err


@pytest.mark.parametrize("mark", ["???", "<model name>", "'{rate}'", '["???"]'])
def test_values_that_the_file_leaves_open_are_one_decision(here, capsys, mark):
    (here / "r.yaml").write_text(HEAD + f"learning_rate: {mark}\nreport_to: {mark}\nmax_length: {mark}\n")
    _, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert "lr = " not in out
    assert "1 decision left" in err
    assert "`learning_rate`, `report_to`, `max_length`: the file has only a placeholder for this value" in err


@pytest.mark.parametrize("section", ["model", "qlora"])
def test_model_of_a_section_is_read_by_its_own_name(here, capsys, section):
    (here / "r.yaml").write_text(
        f"{section}:\n  model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/rows\nlearning_rate: 1e-5\n"
    )
    assert "train Qwen/Qwen2.5-3B on org/rows" in run("r.yaml", "--partial", capsys=capsys)[1]
    (here / "r.yaml").write_text(f"{section}:\n  model_name_or_path: ???\ndataset_name: org/rows\n")
    err = run("r.yaml", "--partial", capsys=capsys)[2]
    assert "which model is trained: the file has only a placeholder for this value" in err
    assert "2 decisions left" in err


NESTED = """\
sft_train:
  model_name: Qwen/Qwen2.5-3B
  dataset: rows.jsonl
  training_args:
    learning_rate: 2e-6
    eval_strategy: epoch
    peft:
      type: lora
      peft_config: {r: 16}
data:
  val_file: test.jsonl
  max_seq_length: 512
"""


def test_sections_inside_of_sections_and_the_rows_of_the_evaluation_are_read(here, capsys):
    (here / "r.yaml").write_text(NESTED)
    status, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert status == 3
    for text in ('train Qwen/Qwen2.5-3B on "rows.jsonl"', "lr = 2e-6", "rank = 16", "seq = 512", 'data = "test.jsonl"'):
        assert text in out
    assert "split =" not in out
    assert "name the model and the data and the evaluation rows" in err
    assert "3 decisions left" in err
    assert "did you mean" not in err


def test_several_sections_with_names_of_methods_need_the_method(here, capsys):
    (here / "r.yaml").write_text(HEAD + "sft:\n  learning_rate: 1e-5\ndpo:\n  learning_rate: 1e-6\n  beta: 0.2\n")
    assert "lr = " not in run("r.yaml", "--partial", capsys=capsys)[1]
    out = run("r.yaml", "--partial", "--method", "dpo", capsys=capsys)[1]
    assert "beta = 0.2" in out
    assert "lr = 1e-6" in out


def test_one_key_of_llamafactory_does_not_make_a_file_llamafactorys(here, capsys):
    (here / "r.yaml").write_text(OWN.replace("train_path", "train_dataset") + "num_generations: 4\nrun_group: a\n")
    _, out, err = run("r.yaml", "--partial", capsys=capsys)
    assert "method grpo" in out
    assert "LLaMA-Factory" not in out + err


def test_stubs_of_an_earlier_import_stay_a_decision(here, capsys):
    (here / "r.yaml").write_text(HEAD + "reward_funcs: [mine]\nnum_generations: 4\n")
    for why in ("is not next to the spec", "has only stubs"):
        status, _, err = run("r.yaml", "--partial", "--force", "-o", "r.xp", capsys=capsys)
        assert status == 3
        assert f"the file `rewards.py` {why}" in err
    (here / "rewards.py").write_text("def mine(completions, **kwargs):\n    return [1.0 for _ in completions]\n")
    assert "decision" not in run("r.yaml", "--partial", "--force", "-o", "r.xp", capsys=capsys)[2]


def test_file_with_keys_of_transformers_is_not_axolotls(here, capsys):
    (here / "r.yaml").write_text(
        "base_model: Qwen/Qwen2.5-3B\nlora_r: 16\nlora_alpha: 32\nlearning_rate: 2e-4\nwarmup_ratio: 0.1\nseed: 0\n"
        "num_train_epochs: 2\nper_device_train_batch_size: 8\nmax_seq_len: 512\ntrain_path: org/rows\n"
    )
    _, out, err = run("r.yaml", "--partial", capsys=capsys)
    for text in ("train Qwen/Qwen2.5-3B on org/rows for 2 epochs", "micro = 8", "seq = 512"):
        assert text in out
    assert "axolotl" not in out + err


def test_rewards_that_are_no_list_are_refused(here, capsys):
    (here / "r.yaml").write_text(HEAD + "reward_funcs: {format: 1.0}\nnum_generations: 4\n")
    status, _, err = run("r.yaml", capsys=capsys)
    assert status == 1
    assert "the value must be a list of names" in err


def test_organization_of_the_hub_is_put_in_front_of_the_name(here, capsys):
    (here / "r.yaml").write_text(HEAD + "push_to_hub: true\npush_to_hub_organization: org\noutput_dir: saves/run/\n")
    assert 'hub(name="org/run")' in run("r.yaml", capsys=capsys)[1]
