"""`xpc import` turns training scripts in Python into specs. It reads values, calls and rows from the syntax tree, and
runs no code of the script.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from import_support import Imported, imported

from xpc.compiler.importing.python.interpreter.source import parts
from xpc.compiler.importing.text.entries import CLASSIFIER, OTHER_HEAD, Unreadable

HEAD = """
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, TrainingArguments, Trainer
from trl import SFTConfig, SFTTrainer, DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer
import argparse, os, json, torch
from dataclasses import dataclass, field
"""
SFT = """
trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig(output_dir="out", learning_rate={}, max_length=512),
                     train_dataset=load_dataset("org/rows", split="train"))
trainer.train()
"""


def script(body: str, *arguments: str) -> Imported:
    """Import a script from memory."""
    return imported(HEAD + body, *arguments, name="train.py")


def rate(before: str, value: str) -> Any:
    """Import a script with the lines `before`, in which the learning rate is the expression `value`. Return the
    learning rate in the bundle.
    """
    return script(before + SFT.format(value)).arguments["learning_rate"]


@pytest.mark.parametrize(("before", "value"), [
    ("", "2e-5"),
    ("LR = 2e-5", "LR"),
    ("LR = 1e-5\nLR *= 2", "LR"),
    ("BASE = 4e-5", "BASE / 2"),
    ("class C:\n    lr = 2e-5", "C.lr"),
    ("@dataclass\nclass C:\n    lr: float = field(default=2e-5)\nc = C()", "c.lr"),
    ("@dataclass\nclass C:\n    lr: float = 1\nc = C(lr=2e-5)", "c.lr"),
    ("p = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=2e-5)\na = p.parse_args()", "a.lr"),
    ("p = argparse.ArgumentParser()\ng = p.add_argument_group('x')\n"
     "g.add_argument('--lr', type=float, default='2e-5')\na, _ = p.parse_known_args()", "a.lr"),
    ("x = {'lr': 2e-5}", "x['lr']"),
    ("x = dict(lr=2e-5)", "x.get('lr', 1)"),
    ("x = {}", "x.get('lr', 2e-5)"),
    ("", "float(os.environ.get('LR', '2e-5'))"),
    ("os.environ['LR'] = '2e-5'", "float(os.environ['LR'])"),
    ("x = None", "x or 2e-5"),
    ("big = False", "1e-4 if big else 2e-5"),
    ("def f(lr=2e-5):\n    return lr", "f()"),
    ("def f(n):\n    if n > 1:\n        return n * 1e-5\n    return 3", "f(2)"),
    ("if torch.cuda.is_available():\n    LR = 2e-5\nelse:\n    LR = 1", "LR"),
    ("try:\n    import unsloth\n    LR = 2e-5\nexcept ImportError:\n    LR = 1", "LR"),
    ("for LR in [1e-5, 2e-5]:\n    pass", "LR"),
    ("xs = [one * 1e-5 for one in (1, 2)]", "xs[-1]"),
    ("x = json.loads", "2e-5"),
])  # fmt: skip
def test_value_of_the_script_is_computed(before: str, value: str) -> None:
    assert rate(before, value) == 2e-5


@pytest.mark.parametrize(("before", "value", "why"), [
    ("import time", "time.time()", "the script computes it"),
    ("import random\nLR = 1e-5 if random.random() > 0.5 else 2e-5", "LR", "condition (1e-05 or 2e-05)"),
    ("import utils", "utils.rate", "a module that the import does not read"),
    ("if os.path.exists('x'):\n    LR = 1e-5\nelse:\n    LR = 2e-5", "LR", "condition"),
    ("p = argparse.ArgumentParser()\np.add_argument('--lr', required=True)\na = p.parse_args()", "a.lr", "`--lr`"),
    ("x = {}\nx[input()] = 1\nx['lr'] = 2e-5\nx[input()] = 3", "x['lr']", "a key that is not known"),
    ("", "float(os.environ['LR'])", "the environment variable LR"),
    ("LR = 9 ** 9 ** 9", "LR", ""),
    ("LR = 10 ** 400", "LR", ""),
])  # fmt: skip
def test_unknown_value_is_an_error_with_its_line(before: str, value: str, why: str) -> None:
    draft = script(before + SFT.format(value)).draft
    found = [one for one in draft.messages if one.severity == "error"]
    assert len(found) == 1
    assert "learning_rate" in found[0].text
    assert why in found[0].text
    line = (HEAD + before + SFT.format(value)).split("\n").index(
        next(one for one in SFT.format(value).split("\n") if "SFTConfig" in one)) + 1  # fmt: skip
    assert found[0].location == f"train.py:{line}"


def test_equal_branches_are_known() -> None:
    assert rate("import x\nif x.y:\n    LR = 2e-5\n    z = 1\nelse:\n    LR = 2e-5\n    z = 2", "LR") == 2e-5


def test_arguments_in_a_dict_land_with_their_lines() -> None:
    found = script("""
common = {"learning_rate": 1e-5, "per_device_train_batch_size": 2}
common.update(num_train_epochs=1)
config = SFTConfig(output_dir="out", gradient_accumulation_steps=4, **common)
config.warmup_steps = 7
trainer = SFTTrainer("Qwen/Qwen2.5-0.5B", config, train_dataset=load_dataset("org/rows", split="train"))
trainer.train()
""")
    got = found.arguments
    assert (got["learning_rate"], got["per_device_train_batch_size"], got["gradient_accumulation_steps"]) == (
        1e-5,
        2,
        4,
    )
    assert (got["num_train_epochs"], got["warmup_steps"], got["output_dir"]) == (1, 7, "out")
    assert found.draft.outcomes["train.py", "learning_rate"].line == 9


def test_quantized_model_with_adapters_becomes_qlora() -> None:
    found = script("""
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16,
                         bnb_4bit_use_double_quant=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", quantization_config=bnb, device_map="auto",
                                             attn_implementation="sdpa", torch_dtype=torch.bfloat16)
model.config.use_cache = False
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
trainer = SFTTrainer(model=model, args=SFTConfig("out", bf16=True, max_length=64), processing_class=tokenizer,
                     train_dataset=load_dataset("json", data_files="rows.jsonl", split="train"))
trainer.train()
model.config.use_cache = True
""")
    assert not found.draft.wrong, found.messages
    text = found.text
    assert "qlora {" in text
    assert "rank = 4" in text
    assert "alpha = 8" in text
    assert "dropout = 0\n" in text
    assert 'train Qwen/Qwen2.5-0.5B on "rows.jsonl"' in text
    assert "double_quant" in text
    assert "checkpointing" in text


def test_fp4_is_the_default_of_transformers() -> None:
    found = script("""
bnb = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", quantization_config=bnb)
SFTTrainer(model=model, args=SFTConfig("out", bf16=True), peft_config=LoraConfig(),
           train_dataset=load_dataset("org/rows", split="train")).train()
""")
    assert not found.draft.wrong, found.messages
    assert "the spec quantizes to nf4" in found.draft.differences["bnb_4bit_quant_type"]


def test_a_script_of_unsloth_is_imported() -> None:
    found = imported("""
from unsloth import FastLanguageModel, is_bfloat16_supported
from trl import SFTTrainer, SFTConfig
from datasets import load_dataset
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Qwen2.5-7B-bnb-4bit", max_seq_length=2048,
                                                     dtype=None, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=16, lora_dropout=0, bias="none", random_state=3407,
                                         use_gradient_checkpointing="unsloth", use_rslora=False, loftq_config=None)
PROMPT = \"\"\"### Instruction:
{}

### Response:
{}\"\"\"
EOS = tokenizer.eos_token
def form(examples):
    texts = []
    for a, b in zip(examples["instruction"], examples["output"]):
        texts.append(PROMPT.format(a, b) + EOS)
    return {"text": texts}
dataset = load_dataset("yahma/alpaca-cleaned", split="train").map(form, batched=True)
trainer = SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=dataset, dataset_text_field="text",
    max_seq_length=2048, args=SFTConfig(per_device_train_batch_size=2, max_steps=60, learning_rate=2e-4,
    fp16=not is_bfloat16_supported(), bf16=is_bfloat16_supported(), optim="adamw_8bit", output_dir="outputs"))
trainer.train()
""", name="train.py")  # fmt: skip
    assert not found.draft.wrong, found.messages
    text = found.text
    assert "train unsloth/Qwen2.5-7B on corpus for 60 steps" in text
    assert "seq = 2048" in text
    assert "qlora {" in text
    assert 'prompt_template = "### Instruction:\\n{{ instruction }}\\n\\n### Response:\\n"' in text
    assert "columns = [instruction, output]" in text
    assert "completion_only = false" in text
    assert "model_name" in found.draft.differences


ROWS = """
from trl import {0}Config, {0}Trainer
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
data = load_dataset("org/rows", split="train")
{1}
{0}Trainer(model="Qwen/Qwen2.5-0.5B", args={0}Config("out"), train_dataset=data, processing_class=tokenizer{2}).train()
"""


@pytest.mark.parametrize(("method", "rows", "lines"), [
    ("SFT", "data = data.map(lambda x: {'text': tokenizer.apply_chat_template(x['messages'], tokenize=False)})",
     ["format = messages"]),
    ("SFT", "data = data.map(lambda x: {'text': tokenizer.apply_chat_template(x['messages'], tokenize=False)"
     ".removeprefix('<bos>')})", ["format = messages"]),
    ("SFT", "data = data.map(lambda x: {'text': tokenizer.apply_chat_template([{'role': 'user', 'content': x['q']}, "
     "{'role': 'assistant', 'content': x['a']}], tokenize=False).replace(tokenizer.bos_token, '')})",
     ["columns = [q, a]", "chat", "completion_only = false"]),
    ("SFT", "data = data.map(lambda x: {'messages': [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', "
     "'content': x['q']}, {'role': 'assistant', 'content': x['a']}]})",
     ["columns = [q, a]", "chat", 'system = "Be brief."', "format = prompt_completion", "completion_only = false"]),
    ("SFT", "def f(x):\n    x['text'] = f\"Q: {x['q']}\\nA: {x['a']}{tokenizer.eos_token}\"\n    return x\n"
     "data = data.map(f)",
     ['prompt_template = "Q: {{ q }}\\nA: "', "columns = [q, a]"]),
    ("SFT", "def f(x):\n    if x['input']:\n        t = f\"{x['q']}\\n{x['input']}\\nA: {x['a']}\"\n    else:\n"
     "        t = f\"{x['q']}\\nA: {x['a']}\"\n    return {'text': t + tokenizer.eos_token}\ndata = data.map(f)",
     ["{% if input %}{{ q }}\\n{{ input }}\\nA: {% else %}{{ q }}\\nA: {% endif %}"]),
    ("SFT", "data = data.map(lambda x: {'prompt': x['q'], 'completion': x['a']})",
     ["columns = [q, a]", "format = prompt_completion"]),
    ("SFT", "data = data.rename_column('body', 'text')", ["columns = [body]", "format = text"]),
    ("SFT", "data = data.shuffle(seed=3).select(range(100)).train_test_split(test_size=0.1)['train']",
     ["take = 100", "holdout = 10%", "seed = 3"]),
    ("DPO", "data = data.map(lambda x: {'prompt': 'Q: ' + x['q'] + ' A:', 'chosen': x['good'], 'rejected': x['bad']})",
     ["columns = [q, good, bad]", 'prompt_template = "Q: {{ q }} A:"', "format = preference"]),
    ("DPO", "data = data.map(lambda x: {'prompt': [{'role': 'user', 'content': x['q']}], 'chosen': [{"
     "'role': 'assistant', 'content': x['good']}], 'rejected': [{'role': 'assistant', 'content': x['bad']}]})",
     ["columns = [q, good, bad]", "chat"]),
    ("KTO", "data = data.rename_column('answer', 'completion')", ["columns = [prompt, answer, label]"]),
])  # fmt: skip
def test_functions_over_rows_become_settings(method: str, rows: str, lines: list[str]) -> None:
    found = script(ROWS.format(method, rows, ""))
    assert not found.draft.wrong, (found.messages, found.text)
    for line in lines:
        assert line in found.text, (line, found.text)


def test_rows_of_a_file_that_a_loop_reads() -> None:
    found = script("""
def load(path):
    rows = []
    with open(path) as f:
        for line in f:
            line = line.strip()
            if not line:
                continue
            row = json.loads(line)
            rows.append({"prompt": row["q"], "completion": row["a"]})
    return Dataset.from_list(rows)
from datasets import Dataset
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=load("data/rows.jsonl")).train()
""")
    assert not found.draft.wrong, found.messages
    assert '"data/rows.jsonl" {' in found.text
    assert "columns = [q, a]" in found.text


@pytest.mark.parametrize(("rows", "word"), [
    ("data = data.filter(lambda x: x['q'])", "select rows by a function"),
    ("data = data.map(lambda x: {'text': x['q'].upper()})", "text"),
    ("data = data.map(lambda x: {'text': x['q'] + x['a'] + ' Goodbye.'})", "a prompt followed by an answer"),
    ("import other\ndata = data.map(other.f)", "not defined in the script"),
    ("data = data.select(range(5, 10))", "first"),
])  # fmt: skip
def test_rows_that_a_spec_cannot_say_are_errors(rows: str, word: str) -> None:
    found = script(ROWS.format("SFT", rows, ""))
    errors = [one for one in found.draft.messages if one.severity == "error"]
    assert len(errors) == 1
    assert word in errors[0].text
    assert errors[0].location.startswith("train.py:")


GRPO = """
SYSTEM = "Think."
def right(completions, answer, **kwargs):
    return [1.0 if one == ANSWER else 0.0 for one in completions]
def helper(x):
    return x
ANSWER = helper("7")
def unused(): pass
data = load_dataset("org/rows", split="train").map(lambda x: {"prompt": [
    {"role": "system", "content": SYSTEM}, {"role": "user", "content": x["question"]}]})
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=[right], args=GRPOConfig("out", reward_weights=[0.5],
            num_generations=4, per_device_train_batch_size=4), train_dataset=data).train()
"""


def test_rewards_are_written_only_on_request() -> None:
    found = script(GRPO, "--rewards", "my_rewards.py")
    assert not found.draft.wrong, found.messages
    written = found.draft.files["my_rewards.py"].decode()
    assert "def right(" in written
    assert "def helper(" in written
    assert 'ANSWER = helper("7")' in written
    assert "unused" not in written
    assert "SYSTEM" not in written
    compile(written, "my_rewards.py", "exec")
    assert 'file("my_rewards.py:right", weight=0.5)' in found.text
    assert "prompt = question" in found.text
    assert 'system = "Think."' in found.text

    refused = script(GRPO)
    assert any("--rewards FILE" in one.help for one in refused.draft.messages)
    assert "raise NotImplementedError" in refused.draft.files["rewards.py"].decode()


TOOLS = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
BOOK = {"apple": "red"}
def search(query: str) -> str:
    \"\"\"Search.

    Args:
        query: What to look for.
    \"\"\"
    return BOOK[query]
class Maze:
    def reset(self, **row): self.steps = 0
    def get_reward(self): return float(self.steps)
GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", tools=[search], environment_factory=Maze,
            args=GRPOConfig("out", num_generations=4, per_device_train_batch_size=4, max_tool_calling_iterations=3),
            train_dataset=load_dataset("org/rows", split="train")).train()
"""


def test_tools_are_written_with_the_rewards() -> None:
    found = script(TOOLS, "--rewards", "own.py")
    assert not found.draft.wrong, found.messages
    written = found.draft.files["own.py"].decode()
    assert all(one in written for one in ("def search(", "class Maze:", 'BOOK = {"apple": "red"}'))
    compile(written, "own.py", "exec")
    assert 'tools = "own.py:search"' in found.text
    assert 'environment = "own.py:Maze"' in found.text
    assert "tool_turns = 3" in found.text
    refused = script(TOOLS)
    assert any("only the script's code computes this" in str(one) for one in refused.draft.messages)


@pytest.mark.parametrize(("body", "sentence"), [
    ("from transformers import AutoModelForSequenceClassification as A\n"
     "m = A.from_pretrained('x')\nTrainer(model=m, args=TrainingArguments('o')).train()", "another head"),
    ("from transformers import AutoModelForImageTextToText as A\n"
     "SFTTrainer(model=A.from_pretrained('x'), args=SFTConfig('o')).train()", "a vision-language model"),
    ("from x import loss\nloss.backward()", "its own training loop"),
    ("x = 1", "no trainer"),
    ("from trl import TrlParser\na, b = TrlParser((SFTConfig, object)).parse_args_and_config()\n"
     "SFTTrainer(model='x', args=a).train()", "command line"),
    (SFT.format("1") + SFT.format("2"), "`--pick N`"),
])  # fmt: skip
def test_script_without_such_training_is_one_sentence(body: str, sentence: str) -> None:
    with pytest.raises(Unreadable) as caught:
        script(body)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("head", "kind"), [("SequenceClassification", CLASSIFIER), ("TokenClassification", OTHER_HEAD)]
)
def test_a_model_with_another_head_is_classified(head: str, kind: str) -> None:
    loaded = f"from transformers import AutoModelFor{head} as A\nm = A.from_pretrained('x')\n"
    with pytest.raises(Unreadable, match="another head") as caught:
        script(loaded + "Trainer(model=m, args=TrainingArguments('o')).train()")
    assert caught.value.kind == kind


def test_own_trainer_and_parameters_are_errors() -> None:
    found = script("""
class Mine(SFTTrainer):
    def compute_loss(self, model, inputs):
        return 0
    def log(self, logs): ...
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
for p in model.parameters():
    p.requires_grad = False
model.config.rope_theta = 5
Mine(model=model, args=SFTConfig("out"), train_dataset=load_dataset("org/rows", split="train")).train()
""")
    errors = " ".join(one for one in found.messages if one.startswith("error"))
    assert "compute_loss" in errors
    assert "Mine.log" not in errors
    assert "parameters" in errors
    assert "rope_theta" in errors


@pytest.mark.parametrize(("returned", "ordered"), [("SequentialSampler(dataset)", True), ("Own(dataset)", False)])
def test_sampler_that_keeps_the_order_of_the_rows_is_a_setting(returned: str, ordered: bool) -> None:
    found = script(f"""
class Mine(SFTTrainer):
    def _get_train_sampler(self, dataset=None):
        return {returned}
    def evaluation_loop(self, *args, **kwargs): ...
Mine(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out"), train_dataset=load_dataset("org/rows", split="train")).train()
""")
    assert ("shuffle = false" in found.text) == ordered
    assert found.draft.wrong != ordered


@pytest.mark.parametrize("given", ["model_init_kwargs=loaded, args=SFTConfig('out')",
                                   "args=SFTConfig('out', model_init_kwargs=loaded)"])  # fmt: skip
def test_quantization_among_the_arguments_of_loading_counts(given: str) -> None:
    found = script(f"""
from transformers import BitsAndBytesConfig
loaded = dict(quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"))
SFTTrainer(model="Qwen/Qwen2.5-0.5B", {given}, peft_config=LoraConfig(r=8),
           train_dataset=load_dataset("org/rows", split="train")).train()
""")
    assert not found.draft.wrong, found.messages
    assert "qlora {" in found.text


def test_a_notebook_is_imported_with_its_cells() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# x"]},
        {"cell_type": "code", "source": ["%%capture\n", "!pip install trl \\\n", "  peft\n", "import os"]},
        {"cell_type": "code", "source": ["%%bash\n", "ls -l |"]},
        {"cell_type": "code", "source": [HEAD]},
        {"cell_type": "code", "source": ["this is no python"]},
        {"cell_type": "code", "source": [SFT.format("2e-5")]},
    ]
    found = imported(json.dumps({"cells": cells}), name="train.ipynb")
    assert found.arguments["learning_rate"] == 2e-5
    assert found.draft.outcomes["train.ipynb cell 5", "learning_rate"].line == 2
    assert any("cell 4 is not Python" in one for one in found.messages)


NESTED = "q = (1,)\n" + "q = (q, q)\n" * 60 + "p = [1]\n" + "p = [p, p]\n" * 60
"""Two nested expressions. Each would have 2 ** 60 parts if its text were written in full."""
LOOPS = "for i in range(250):\n    for j in range(250):\n        "


@pytest.mark.slow
@pytest.mark.parametrize("text", [
    "x = " + "(" * 5_000 + ")" * 5_000,
    "x = " + "[" * 150 + "]" * 150,
    "x = " + "-" * 50_000 + "1",
    "x = 1" + " + 1" * 20_000,
    "x" + ".a" * 20_000,
    "x = 0x" + "f" * 100_000,
    "x = '" + "a" * 100_000 + "'\n" + "x = x + x\n" * 60,
    "x = [1]\n" + "x = [x, x]\n" * 60 + "y = x == x\nz = x in x\nprint(f'{x}')",
    "x = {}\n" + "x = {'a': x, 'b': x}\n" * 60,
    "def f(n):\n    return f(n) + f(n)\nf(1)",
    "".join(f"{' ' * n}for b{n} in range(256):\n" for n in range(9)) + " " * 9 + "pass",
    "while True:\n    pass",
    "x = lambda: x()\nx()",
    "class A(A): pass\nclass B:\n    def __getattr__(self, n): return self.x\nB().y.z",
    "import x\n" + "if x.a:\n    b = 1\nelse:\n    b = 2\n" * 2_000,
    "x = 'a' * 10 ** 9\ny = [0] * 10 ** 9\nz = 1 << 10 ** 9\nw = 10 ** 10 ** 10",
    "x = f'{1:>1000000000}'\ny = '{:>1000000000}'.format(1)\nz = '%1000000000d' % 1",
    "\0",
    "import train\nfrom train import *",
    "x = 'a' * 9000\ny = x.join([x] * 9000)\nz = 'b'.join(['a'] * 9000)",
    "x = round(1, -10 ** 9)\ny = range(1, 2, 3, 4)\nz = round(1, 2, 3)\nw = round(float('nan'))\nv = sum(['a'])",
    "x = ''.splitlines(10 ** 10)",
    "d = load_dataset('x', split='train').train_test_split(test_size=float('inf'))\n"
    "SFTTrainer(model='x', train_dataset=d['train']).train()",
    "x = ('a' * 90000).replace('a', 'b' * 90000, 999999)\ny = f'{1:>1987654321}'\nz = f'{1.5:.1987654321f}'",
    NESTED + "y = {}\ndel y[q]\nm = AutoModelForCausalLM.from_pretrained('x')\nm[q] = 1\nm[p] = 2",
    NESTED + "z = 'a'.replace('a', q)\ny = 'a'.startswith(q)\nx = 'a'.split(q)",
    NESTED + "def f(row):\n    row[q] = 1\n    row[p] = 2\n    return row\nd = load_dataset('x').map(f)",
    "def f(row):\n    return {'text': f\"" + "".join(f"{{'a' if row['{n}'] else 'b'}}" for n in range(40)) + "\"}\n"
    "d = load_dataset('x').map(f)\nSFTTrainer(train_dataset=d)",
    "class A0: pass\nclass B0: pass\n"
    + "".join(f"class A{n}(A{n - 1}, B{n - 1}): pass\nclass B{n}(A{n - 1}, B{n - 1}): pass\n" for n in range(1, 60))
    + "x = A59.x\nclass T(A59, SFTTrainer): pass\ny = T()",
    "class A0: x = 1\n" + "".join(f"class A{n}(A{n - 1}): pass\n" for n in range(1, 3000)) + "x = A2999.y\n",
    "x = 'a' * 99000\nk = []\n" + LOOPS + "k.append(x + 'b')",
    "x = [0] * 9000\nx = x + x + x + x\n" + LOOPS + "y, *z = x",
    "x = [0] * 9000\nx = x + x + x + x\nimport os\n" + LOOPS + "if os.environ['A']: x = x + [1]",
    "import argparse\np = argparse.ArgumentParser()\n" + LOOPS + "p.add_argument('--x')\n" + LOOPS + "p.parse_args()",
    "x = [0] * 9000\nx = x + x + x + x\ndef f(*a): pass\n" + LOOPS + "f(*x)",
    "x = [[0] * 250 for i in range(250)]\nt = SFTTrainer()\nt.x = x\n" + LOOPS + "t.train()",
])  # fmt: skip
def test_hostile_script_ends_with_a_sentence(text: str) -> None:
    started = time.process_time()
    for body in (text, text + SFT.format("x")):
        with suppress(Unreadable):
            imported(HEAD + body, name="train.py")
    assert time.process_time() - started < 30


def test_nothing_is_executed(tmp_path: Any) -> None:
    mark = tmp_path / "mark"
    body = f"open({str(mark)!r}, 'w').write('x')\n__import__('os').system('touch {mark}')\nexec('1/0')\n" + SFT.format(
        "1e-5"
    )
    script(body)
    assert not mark.exists()


def test_library_call_is_not_taken_for_true() -> None:
    found = script("import re\nif re.match('a', input()):\n    LR = 1e-5\nelse:\n    LR = 2e-5\n" + SFT.format("LR"))
    assert any("condition" in one for one in found.messages)


@pytest.mark.parametrize(("value", "init", "iterations"), [
    ('"pissa_niter_16"', "pissa", 16), ('"olora"', "olora", None), ("True", None, None),
    ('"gaussian"', "gaussian", None),
])  # fmt: skip
def test_initial_weights_of_adapters_become_settings(value: str, init: str | None, iterations: int | None) -> None:
    model = f"peft_config=LoraConfig(r=4, lora_alpha=8, target_modules='all-linear', init_lora_weights={value}),"
    found = script(SFT.format("2e-5").replace("train_dataset", f"{model} train_dataset"))
    assert not found.draft.wrong, found.messages
    lora = found.payload["lora"]
    assert (lora.get("init"), lora.get("init_iterations")) == (init, iterations)


@pytest.mark.parametrize(("value", "why"), [("loftq", "over a rounded copy"), ("corda", "over its own data")])
def test_initial_weights_that_are_refused(value: str, why: str) -> None:
    model = f"peft_config=LoraConfig(r=4, target_modules='all-linear', init_lora_weights={value!r}),"
    found = script(SFT.format("2e-5").replace("train_dataset", f"{model} train_dataset"))
    assert any(why in one for one in found.messages), found.messages


@pytest.mark.parametrize(("made", "kind", "shape"), [
    ("peft.VeraConfig(vera_dropout=0.1, target_modules='all-linear')", "vera", (256, None, 0.1)),
    ("peft.VeraConfig(r=64, projection_prng_key=0, target_modules='all-linear')", "vera", (64, None, 0.0)),
    ("peft.LoHaConfig(alpha=16, rank_dropout=0.0, target_modules='all-linear')", "loha", (8, 16.0, 0.0)),
    ("peft.MissConfig(r=32, target_modules='all-linear', task_type=peft.TaskType.CAUSAL_LM)", "miss", (32, None, 0.0)),
])  # fmt: skip
def test_other_kinds_of_adapters_are_imported(made: str, kind: str, shape: tuple[object, ...]) -> None:
    body = "import peft\n" + SFT.format("2e-5").replace("train_dataset", f"peft_config={made}, train_dataset")
    found = script(body)
    assert not found.draft.wrong, found.messages
    lora = found.payload["lora"]
    assert lora["kind"] == kind
    assert (lora["rank"], lora.get("alpha"), lora["dropout"]) == shape


@pytest.mark.parametrize(("made", "why"), [
    ("VeraConfig(projection_prng_key=3, target_modules='all-linear')", "seed, 0"),
    ("VeraConfig(d_initial=0.5, target_modules='all-linear')", "start at 0.1 and 0"),
    ("VeraConfig()", "peft's default modules"),
    ("LoHaConfig(module_dropout=0.1, target_modules='all-linear')", "no dropout"),
    ("MissConfig(init_weights='bat', target_modules='all-linear')", "as PEFT does by default"),
    ("MissConfig(mini_r=2, target_modules='all-linear')", "mini_r"),
    ("BoneConfig(target_modules='all-linear')", "MissConfig"),
])  # fmt: skip
def test_other_adapters_that_are_refused(made: str, why: str) -> None:
    body = "import peft\n" + SFT.format("2e-5").replace("train_dataset", f"peft_config=peft.{made}, train_dataset")
    found = script(body)
    assert found.draft.wrong
    assert any(why in one for one in found.messages), found.messages


@pytest.mark.parametrize(("after", "steps", "streaming"), [
    ("", "max_steps=100", {"shuffle_buffer": None}),
    (".shuffle(seed=3, buffer_size=500)", "max_steps=100", {"shuffle_buffer": 500}),
    (".shuffle(seed=3)", "max_steps=100", {"shuffle_buffer": 1000}),
    (".shuffle(seed=3, buffer_size=500)", "num_train_epochs=1", None),
])  # fmt: skip
def test_a_stream_keeps_its_order_and_its_buffer(after: str, steps: str, streaming: object) -> None:
    found = script(f"""
trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig(output_dir="out", save_steps=50, {steps}),
                     train_dataset=load_dataset("org/rows", split="train", streaming=True){after})
trainer.train()
""")
    assert not found.errors
    assert found.payload["data"].get("streaming") == streaming
    assert found.payload["data"]["shuffle"] is (streaming != {"shuffle_buffer": None})


@pytest.mark.parametrize(
    ("head", "read"),
    [
        ("# -*- coding: utf-7 -*-\n# +AAo-import os\n", False),
        ("\n# vim: set fileencoding=utf-7 :\n", False),
        ("#!/usr/bin/python\n# -*- coding: latin-1 -*-\nx = '\u00e9'\n", False),
        ("# -*- coding: latin-1 -*-\nx = 'e'\n", True),
        ("# -*- coding: utf_8 -*-\nx = '\u00e9'\n", True),
        ("x = 1\n# coding: utf-7\n", True),
    ],
)
def test_a_script_is_read_in_the_encoding_that_it_names(head: str, read: bool) -> None:
    """A comment can declare another encoding of a script than UTF-8. In that encoding, Python may see the end of a line
    inside something that looks like a comment, and run the text after it. So such scripts are refused.
    """
    if read:
        assert parts(head, "x.py")[0]
        return
    with pytest.raises(Unreadable, match="the import reads only UTF-8"):
        parts(head, "x.py")
