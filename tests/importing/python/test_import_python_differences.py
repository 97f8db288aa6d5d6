"""Where a script and its spec would train something else, the spec does the same or the import reports the line."""

from __future__ import annotations

import pytest
from import_support import Imported, imported

HEAD = """
from datasets import load_dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer, GRPOConfig, GRPOTrainer
import os, torch, wandb
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
data = load_dataset("org/rows", split="train")
"""
SFT = """
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"{arguments}), train_dataset=data{more}).train()
"""


def script(body: str, *options: str, arguments: str = "", more: str = "") -> Imported:
    """Import a script whose last lines train sft."""
    return imported(HEAD + body + SFT.format(arguments=arguments, more=more), *options, name="train.py")


def warned(found: Imported, words: str) -> bool:
    """Whether a warning with a line has the words."""
    return any(
        one.severity == "warning" and words in one.text and one.place.startswith("train.py:")
        for one in found.draft.messages
    )


@pytest.mark.parametrize(("rows", "key"), [
    ("data = data.map(lambda x: {'text': tokenizer.apply_chat_template(x['messages'], tokenize=False)})", "text"),
    ("data = data.map(lambda x: {'text': tokenizer.apply_chat_template([{'role': 'user', 'content': x['q']}, "
     "{'role': 'assistant', 'content': x['a']}], tokenize=False)})", "text"),
])  # fmt: skip
def test_rendered_text_that_is_tokenized_as_a_text(rows: str, key: str) -> None:
    found = script(rows)
    assert not found.draft.wrong, found.messages
    assert warned(found, "the spec has each of these tokens once")
    assert key in found.draft.differences


def test_text_that_is_rendered_and_rendered_again_is_an_error() -> None:
    found = script(
        "data = data.map(lambda x: {'text': tokenizer.apply_chat_template(x['messages'], tokenize=False)})\n"
        "data = data.map(lambda x: {'text': tokenizer.apply_chat_template("
        "[{'role': 'user', 'content': x['text']}], tokenize=False)})"
    )
    assert any("the column `text`" in one for one in found.messages)
    assert found.draft.wrong


@pytest.mark.parametrize(("arguments", "more", "differs"), [
    (", max_length=64", "", True),
    ("", ", max_seq_length=64, dataset_text_field='text'", True),
    ("", ", tokenizer=tokenizer, dataset_text_field='text'", True),
    (", max_length=64, completion_only_loss=False", "", False),
])  # fmt: skip
def test_end_token_of_plain_texts(arguments: str, more: str, differs: bool) -> None:
    found = script("data = data.rename_column('body', 'text')", arguments=arguments, more=more)
    assert not found.draft.wrong, found.messages
    assert any("adds no end token" in one for one in found.draft.differences.values()) is differs


def test_end_token_of_rows_that_a_script_tokenizes() -> None:
    body = (
        HEAD
        + """
def tokens(x):
    return tokenizer(x["body"]{end}, truncation=True, max_length=64)
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", torch_dtype=torch.bfloat16),
        args=TrainingArguments("out"), train_dataset=data.map(tokens)).train()
"""
    )
    found = imported(body.replace("{end}", ""), name="train.py")
    assert warned(found, "the script adds no end token")
    assert not warned(imported(body.replace("{end}", " + tokenizer.eos_token"), name="train.py"), "no end token")


def test_text_that_trl_ignores_because_of_its_columns() -> None:
    rows = "data = data.map(lambda x: {{'text': 'Q: ' + x['prompt'] + ' A: ' + x['completion']}}{})"
    assert warned(script(rows.format("")), "trains on these instead of the text")
    assert not warned(script(rows.format(", remove_columns=['prompt', 'completion']")), "instead of the text")


@pytest.mark.parametrize(
    ("dtype", "warns"), [("", True), (", torch_dtype=torch.bfloat16", False), (", dtype='auto'", False)]
)
def test_model_without_a_dtype(dtype: str, warns: bool) -> None:
    body = HEAD + f'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{dtype})\n'
    found = imported(
        body + 'SFTTrainer(model=model, args=SFTConfig("out", max_length=64), train_dataset=data).train()',
        name="train.py",
    )
    assert warned(found, "transformers 5 in the type of the checkpoint") is warns


CONTINUED = """
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), "first"{})
SFTTrainer(model=model, args=SFTConfig("out", max_length=64), train_dataset=data{}).train()
"""


@pytest.mark.parametrize(("keywords", "more", "why"), [
    (", is_trainable=True", "", "the adapter is not here"),
    ("", "", "loads an adapter frozen"),
    (", is_trainable=True", ", peft_config=LoraConfig(r=4)", "trains another one"),
])  # fmt: skip
def test_continued_adapter(keywords: str, more: str, why: str) -> None:
    found = imported(HEAD + CONTINUED.format(keywords, more), name="train.py")
    assert found.draft.wrong is (keywords == "" or more != "")
    assert any(why in one for one in found.messages), found.messages


@pytest.mark.parametrize(("body", "arguments", "lines"), [
    ("wandb.init(project='apples', name='first')", "", ["track wandb", 'project = "apples"', 'name = "first"']),
    ("wandb.init(project='apples')", ", report_to=None", ["track wandb", 'project = "apples"']),
    ("os.environ['WANDB_PROJECT'] = 'apples'", ", report_to='wandb'", ["track wandb", 'project = "apples"']),
    ("wandb.init(project='apples')", ", report_to='none'", []),
    ("wandb.init(project='apples', mode='disabled')", "", []),
])  # fmt: skip
def test_tracker_that_a_script_starts(body: str, arguments: str, lines: list[str]) -> None:
    found = script(body, arguments=arguments)
    assert not found.draft.wrong, found.messages
    for line in lines:
        assert line in found.text, (line, found.text)
    assert ("track wandb" in found.text) is bool(lines)


def test_report_to_none_is_reported() -> None:
    assert warned(script("", arguments=", report_to=None"), "every tracker that is installed")


def test_reward_functions_of_rendered_prompts_get_texts() -> None:
    found = imported(HEAD + """
def right(completions, **kwargs):
    return [1.0 for _ in completions]
data = data.map(lambda x: {"prompt": tokenizer.apply_chat_template([{"role": "user", "content": x["q"]}],
                                                                  tokenize=False, add_generation_prompt=True)})
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=right, args=GRPOConfig("out"), train_dataset=data).train()
""", "--rewards", "r.py", name="train.py")  # fmt: skip
    assert not found.draft.wrong, found.messages
    assert warned(found, "reward functions get completions as texts")
