"""If a script does not pass an argument, the spec states the argument's default. The default is that of the TRL version
for which the script was written.
"""

from __future__ import annotations

from typing import Any

import pytest
from import_support import HARDWARE, Imported, convert, imported

HEAD = """
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments, Trainer
from transformers import DataCollatorForLanguageModeling
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from unsloth import FastLanguageModel
NAME = "Qwen/Qwen2.5-0.5B"
tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME{})
rows = load_dataset("org/rows", split="train")
"""


def script(body: str, loading: str = "", partial: bool = False) -> Imported:
    """Import a script that loads its model with these additional arguments."""
    return imported(HEAD.format(loading) + body, *(["--partial"] if partial else []), name="train.py")


TRAIN = """
trainer = SFTTrainer(model=model, args={}(output_dir="o"), train_dataset=rows, processing_class=tokenizer)
trainer.train()
"""


def test_training_arguments_have_the_defaults_of_transformers():
    plain = script(TRAIN.format("TrainingArguments")).arguments
    assert plain["learning_rate"] == 5e-5
    assert plain["bf16"] is plain["fp16"] is False
    assert plain["activation_checkpointing"] is False
    assert plain["logging_steps"] == 500
    own = script(TRAIN.format("SFTConfig")).arguments
    assert own["learning_rate"] == 2e-5
    assert own["bf16"] is own["activation_checkpointing"] is True


def test_defaults_of_training_arguments_are_not_said_to_differ_among_versions_of_trl():
    dated = script(TRAIN.format("TrainingArguments")).draft.dated
    assert "learning_rate" not in dated
    assert "bf16" not in dated


GRPO = """
def longer(completions, **kwargs):
    return [float(len(one)) for one in completions]
trainer = GRPOTrainer(model=model, reward_funcs=longer, train_dataset=rows{},
                      args=GRPOConfig(output_dir="o", num_generations=8, per_device_train_batch_size=8))
"""


def test_arguments_of_the_model_and_its_adapter_do_not_date_a_script():
    """Since 0.23, TRL's configuration has an argument `dtype`. But if a script passes `dtype` when it loads its model,
    this is an argument of transformers, which says nothing about the version of TRL.
    """
    for loading in ("", ", torch_dtype=torch.bfloat16"):
        found = script(GRPO.format(", peft_config=LoraConfig(r=4)"), loading, partial=True)
        assert found.draft.fitting[0] == "0.14", loading
        assert "0.04 (trl 0.14 to 0.18)" in found.draft.dated["beta"]
    assert script(GRPO.format(""), ", dtype=torch.bfloat16", partial=True).draft.fitting[0] == "0.23"


@pytest.mark.parametrize(("argument", "last"), [("tokenizer=tokenizer", "0.15"), ("max_seq_length=99", "0.12")])
def test_arguments_that_trainers_no_longer_have_date_a_script(argument: str, last: str):
    found = script(TRAIN.format("TrainingArguments").replace("processing_class=tokenizer", argument))
    assert found.draft.fitting[-1] == last


def source(call: str) -> Any:
    """Import a script whose training rows are the result of this call."""
    body = TRAIN.format("SFTConfig").replace("rows", "data")
    return script(f"data = load_dataset({call})\n" + body, partial=True)


def test_the_first_rows_of_a_file_are_its_limit():
    assert "limit = 100" in source('"json", data_files="x.jsonl", split="train[:100]"').text
    assert "limit" not in source('"json", data_files="x.jsonl", split="train"').text


@pytest.mark.parametrize(("call", "why"), [
    ('"json", data_files="x.jsonl", split="train[:10%]"', "a spec cannot name this part of a file"),
    ('"json", data_files="x.jsonl", split="train[5:10]"', "a spec cannot name this part of a file"),
    ('"quads", "plain", split="train[:10%]"', "it is a hub dataset without its owner"),
    ('"quads"', "it is a hub dataset without its owner"),
])  # fmt: skip
def test_a_part_of_a_file_and_a_name_without_an_owner_are_reported(call: str, why: str):
    assert any(why in one for one in source(call).messages if one.startswith("error"))


def test_well_known_name_without_an_owner_gets_the_owner():
    found = source('"squad", "plain", split="train[:10%]"')
    assert "rajpurkar/squad:plain[train:10%]" in found.text
    assert any("the hub redirects this old name to rajpurkar/squad" in one for one in found.messages)
    text = convert("model_name_or_path: distilgpt2\ndataset_name: imdb\n", *HARDWARE)[1]
    assert "train distilbert/distilgpt2 on stanfordnlp/imdb" in text


UNSLOTH = """
model, tokenizer = FastLanguageModel.from_pretrained(NAME{})
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="o"), train_dataset=rows, processing_class=tokenizer)
"""


@pytest.mark.parametrize(
    ("given", "length"), [("", 2048), (", max_seq_length=None", 2048), (", max_seq_length=99", 99)]
)
def test_unsloth_cuts_rows_at_its_own_length(given: str, length: int):
    assert script(UNSLOTH.format(given)).arguments["max_length"] == length


COLLATED = """
tokenizer.pad_token = tokenizer.{}
rows = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=64))
trainer = Trainer(model=model, args=TrainingArguments(output_dir="o"), train_dataset=rows,
                  data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False))
"""


def test_padding_with_the_end_token_leaves_it_out_of_the_loss_of_transformers_collator():
    assert "pad_token" in script(COLLATED.format("eos_token")).draft.differences
    assert "pad_token" not in script(COLLATED.format("unk_token")).draft.differences


def test_the_duration_stays_in_a_spec_without_data():
    body = TRAIN.format("SFTConfig").replace('output_dir="o"', "max_steps=70").replace("=rows", "=make_rows()")
    head = HEAD.format("").replace('rows = load_dataset("org/rows", split="train")', "")
    found = imported(head + body, "--partial", name="train.py")
    from xpc.compiler.importing import cli as edge
    from xpc.compiler.importing import options, partial
    from xpc.compiler.importing.emit import emit
    from xpc.compiler.importing.source_file import SourceFile

    chosen = options.parse(["train.py", "--partial"])
    partial.apply(found.draft, edge.overrides_of(chosen, SourceFile("train.py", "", ".")))
    assert "# train Qwen/Qwen2.5-0.5B on DATA for 70 steps" in emit(found.draft, "a test.")


FAST = """
from unsloth import FastLanguageModel
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
rows = load_dataset("org/rows", split="train")
def longer(completions, **kwargs):
    return [float(len(one)) for one in completions]
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-0.5B", load_in_4bit=False, max_seq_length=512)
model = FastLanguageModel.get_peft_model(model, r=16)
model = FastLanguageModel.for_training(model)
"""
FAST_SFT = """
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="o"{}), train_dataset=rows)
trainer.train()
"""
FAST_GRPO = """
trainer = GRPOTrainer(model=model, args=GRPOConfig(output_dir="o"{}), train_dataset=rows, reward_funcs=longer)
trainer.train()
"""


def test_unsloth_replaces_the_defaults_of_trl_classes_that_are_imported_after_it():
    found = imported(FAST + FAST_SFT.format(""), name="train.py")
    assert not found.errors
    wanted = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 5e-5,
        "weight_decay": 0.01,
        "optim": "adamw_bnb_8bit",
        "seed": 3407,
        "logging_steps": 1,
        "bf16": True,
    }
    assert {name: found.arguments.get(name) for name in wanted} == wanted
    assert any("Unsloth replaces TRL's defaults" in one for one in found.messages)
    line = "from unsloth import FastLanguageModel\n"
    after = FAST.replace(line, "").replace("rows = load", line + "rows = load")
    later = imported(after + FAST_SFT.format(""), name="train.py")
    assert later.arguments["learning_rate"] == 2e-5
    stated = imported(
        FAST + FAST_SFT.format(", warmup_steps=5, optim='adamw_torch', seed=1"), name="train.py"
    ).arguments
    assert (stated["warmup_steps"], stated["optim"], stated["seed"]) == (5, "adamw_torch", 1)


def test_unsloth_replaces_a_batch_that_the_group_does_not_divide():
    given = ", num_generations=6, per_device_train_batch_size=1, gradient_accumulation_steps=4, loss_type='dapo'"
    found = imported(FAST + FAST_GRPO.format(given), "--rewards", "rewards.py", name="train.py")
    assert found.arguments["per_device_train_batch_size"] == 6
    assert found.arguments["epsilon_high"] == 0.28
    assert found.arguments["mask_truncated_completions"] is True
    fits = given.replace("accumulation_steps=4", "accumulation_steps=6").replace(", loss_type='dapo'", "")
    found = imported(FAST + FAST_GRPO.format(fits), "--rewards", "rewards.py", name="train.py")
    assert found.arguments["per_device_train_batch_size"] == 1
    assert found.arguments["beta"] == 0.001


@pytest.mark.parametrize(("change", "words"), [
    ("lora.r = 64", "rank = 64"),
    ("setattr(lora, 'lora_alpha', 48)", "alpha = 48"),
    ("args = dataclasses.replace(args, num_train_epochs=7)", "for 7 epochs"),
])  # fmt: skip
def test_what_a_script_changes_in_its_configurations_counts(change: str, words: str) -> None:
    found = imported(CHANGED.format(change), name="train.py")
    assert words in found.text
    assert "lr = 7e-5" in found.text
    assert not found.draft.wrong, found.messages


def test_a_method_that_sets_arguments_is_an_error() -> None:
    found = imported(CHANGED.format("args.set_training(learning_rate=1e-3)"), name="train.py")
    assert any("does not read this method" in one for one in found.messages)


CHANGED = """
import dataclasses
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer
lora = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj"], task_type="CAUSAL_LM")
args = SFTConfig("out", learning_rate=7e-5)
{}
SFTTrainer("Qwen/Qwen2.5-0.5B", args, train_dataset=load_dataset("org/rows", split="train"), peft_config=lora).train()
"""


def test_a_loss_on_answers_of_other_rows_is_reported() -> None:
    body = """
from unsloth.chat_templates import train_on_responses_only
trainer = SFTTrainer(model=model, args=SFTConfig("out"), train_dataset=rows)
trainer = train_on_responses_only(trainer, instruction_part="<|im_start|>user", response_part="<|im_start|>assistant")
trainer.train()
"""
    found = imported(HEAD.format("") + body, "--data", "rows.jsonl", name="train.py")
    assert any("the script trains only on answers" in one for one in found.messages), found.messages


def test_all_rows_that_are_selected_are_no_limit():
    body = TRAIN.format("SFTConfig").replace("rows", "data")
    read = 'data = load_dataset("org/rows", split="train")\n'
    every = script(f"{read}data = data.select(range(0, len(data)))\n{body}")
    assert not every.draft.wrong
    assert "limit" not in every.text
    assert script(f"{read}data = data.select(range(5, len(data)))\n{body}").draft.wrong
