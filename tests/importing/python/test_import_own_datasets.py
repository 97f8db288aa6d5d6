"""A script may make its rows by its own class, as Stanford Alpaca does, or by TRL's ConstantLengthDataset."""

from __future__ import annotations

import pytest
from import_support import Imported, imported

HEAD = """\
import copy, io, json
import torch
from datasets import load_dataset
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from trl import SFTTrainer
from trl.trainer import ConstantLengthDataset
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B", model_max_length=256)
args = TrainingArguments(output_dir="out", bf16=True)
class Rows(Dataset):
    def __init__(self, path, cut=512):
        {init}
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        {item}
"""
TAIL = 'Trainer(model=model, args=args, train_dataset=Rows("a.json")).train()\n'
LOADED = "self.rows, self.cut = json.load(open(path)), cut"
LINES = "self.rows, self.cut = [json.loads(line) for line in open(path)], cut"
ROW = """row = self.rows[i]
        question = tokenizer(f"Q: {row['question']}\\nA: ", add_special_tokens=False)["input_ids"]
        answer = tokenizer(row["answer"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        ids, labels = (question + answer)[:self.cut], ([-100] * len(question) + answer)[:self.cut]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels)}"""
TEXT = """row = self.rows[i]
        text = f"Q: {row['question']}\\nA: {row['answer']}{tokenizer.eos_token}"
        found = tokenizer(text, truncation=True, max_length=self.cut, padding="max_length", return_tensors="pt")
        labels = found["input_ids"].squeeze(0).clone()
        labels[labels == tokenizer.pad_token_id] = -100
        return {"input_ids": found["input_ids"].squeeze(0), "labels": labels}"""


def script(init: str, item: str, tail: str = TAIL) -> Imported:
    return imported(HEAD.replace("{init}", init).replace("{item}", item) + tail, name="train.py")


@pytest.mark.parametrize(("init", "item", "whole"), [
    (LOADED, ROW, False), (LINES, ROW, False), (LOADED, TEXT, True),
    (LOADED, TEXT.replace("        labels[labels == tokenizer.pad_token_id] = -100\n", "")
     .replace(', padding="max_length"', ""), True),
])  # fmt: skip
def test_rows_of_the_scripts_own_class_are_read(init: str, item: str, whole: bool) -> None:
    found = script(init, item)
    assert not found.draft.wrong, found.messages
    assert '"a.json" {\n    columns = [question, answer]' in found.text
    assert 'prompt_template = "Q: {{ question }}\\nA: "' in found.text
    assert "seq = 512" in found.text
    assert ("completion_only = false" in found.text) is whole


def test_an_unread_class_is_an_error() -> None:
    for item in ("return other(self.rows[i])", TEXT.replace("labels[labels == tokenizer.pad_token_id]", "labels[3]")):
        assert script(LOADED, item).draft.wrong


ALPACA = """with open(path) as file:
            rows = json.load(file)
        full, short = "I: {instruction}\\n{input}\\nR:", "I: {instruction}\\nR:"
        asked = [full.format_map(one) if one.get("input", "") != "" else short.format_map(one) for one in rows]
        told = [f"{one['output']}{tokenizer.eos_token}" for one in rows]
        made = preprocess(asked, told)
        self.input_ids, self.labels = made["input_ids"], made["labels"]"""
FUNCTIONS = """
def tokenized(texts):
    found = [tokenizer(one, return_tensors="pt", padding="longest", max_length=tokenizer.model_max_length,
                       truncation=True) for one in texts]
    ids = [one.input_ids[0] for one in found]
    return ids, [one.input_ids.ne(tokenizer.pad_token_id).sum().item() for one in found]
def preprocess(asked, told):
    (ids, _), (_, counts) = [tokenized(one) for one in ([a + b for a, b in zip(asked, told)], asked)]
    labels = copy.deepcopy(ids)
    for label, count in zip(labels, counts):
        label[:count] = -100
    return dict(input_ids=ids, labels=labels)
class Collator:
    def __call__(self, instances):
        ids, labels = tuple([one[key] for one in instances] for key in ("input_ids", "labels"))
        ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
        labels = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        return dict(input_ids=ids, labels=labels, attention_mask=ids.ne(tokenizer.pad_token_id))
Trainer(model=model, args=args, train_dataset=Rows("a.json"), data_collator=Collator()).train()
"""
ITEM = "return dict(input_ids=self.input_ids[i], labels=self.labels[i])"


def test_the_rows_of_stanford_alpaca_are_read() -> None:
    found = script(ALPACA, ITEM, FUNCTIONS)
    assert not found.draft.wrong, found.messages
    template = "{% if input %}I: {{ instruction }}\\n{{ input }}\\nR:{% else %}I: {{ instruction }}\\nR:{% endif %}"
    assert f'prompt_template = "{template}"' in found.text
    assert "columns = [instruction, output]" in found.text
    assert "seq = 256" in found.text
    assert "completion_only = false" not in found.text


@pytest.mark.parametrize(
    "change",
    [
        ("label[:count] = -100", "label[:count - 1] = -100"),
        ("label[:count] = -100", "label[:count] = label[0]"),
        ("label[:count] = -100", "label[:5] = -100"),
        ("zip(asked, told)], asked)", "zip(asked, told)], told)"),
        ("padding_value=-100", "padding_value=0"),
    ],
)
def test_other_labels_than_those_of_alpaca_are_an_error(change: tuple[str, str]) -> None:
    assert change[0] in FUNCTIONS
    assert script(ALPACA, ITEM, FUNCTIONS.replace(*change)).draft.wrong


PACKED = """
def text(row):
    return f"Q: {row['question']}\\nA: {row['answer']}"
rows = load_dataset("org/rows", split="train").train_test_split(test_size=0.1, seed=1)
packed = [ConstantLengthDataset(tokenizer, rows[one], formatting_func=text, infinite=True, seq_length=2048)
          for one in ("train", "test")]
args = TrainingArguments(output_dir="out", bf16=True, max_steps=100)
SFTTrainer(model=model, args=args, train_dataset=packed[0], eval_dataset=packed[1]).train()
"""


def test_constant_length_dataset_becomes_packing() -> None:
    found = script(LOADED, ROW, PACKED)
    assert not found.draft.wrong, found.messages
    assert "org/rows {\n    columns = [question, answer]" in found.text
    assert "seq = 2048\n  packing(strategy=wrapped)" in found.text
    assert "holdout = 10%" in found.text
    assert not any("adds no eos token" in one for one in found.messages), "the texts are joined by the end token"


def test_a_folder_of_a_data_set_is_an_error() -> None:
    rows = PACKED.replace('split="train")', 'split="train", data_dir="data/a")')
    assert any("reads one folder of the dataset" in one for one in script(LOADED, ROW, rows).messages)


CHANGED = """
def changed(row):
    {change}
    return row
rows = load_dataset("org/rows", split="train").map(changed)
SFTTrainer(model=model, args=args, train_dataset=rows{more}).train()
"""


@pytest.mark.parametrize("change", [
    'row["messages"][0]["content"] = "other"',
    'row["messages"].insert(0, {"role": "system", "content": "be brief"})',
    'row["chosen"][0] = row["rejected"][0]',
])  # fmt: skip
def test_a_function_that_changes_a_part_of_a_column_is_an_error(change: str) -> None:
    found = script(LOADED, ROW, CHANGED.format(change=change, more=""))
    assert any(one.startswith("error") and "changes a part of a column" in one for one in found.messages)
    assert not script(LOADED, ROW, CHANGED.format(change='print(row["messages"][0])', more="")).draft.wrong


def test_a_length_that_only_some_versions_get_is_reported() -> None:
    test = "import inspect\nmore = {}\nif 'max_seq_length' in inspect.signature(SFTTrainer.__init__).parameters:\n"
    test += "    more['max_seq_length'] = 4096\n"
    found = script(LOADED, ROW, test + CHANGED.format(change="pass", more=", **more"))
    assert any("only to versions of TRL that have it" in one for one in found.messages)


TURNS = """
def row(example):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": example["question"]},
             {"role": "assistant", "content": example["answer"]}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    asked = tokenizer.apply_chat_template(turns[:-1], tokenize=False, add_generation_prompt=True)
    found = tokenizer(text, truncation=True, max_length=512)
    count = len(tokenizer(asked)["input_ids"])
    labels = found["input_ids"].copy()
    labels[:count] = [-100] * count
    return {"input_ids": found["input_ids"], "labels": labels}
rows = load_dataset("org/rows", split="train").map(row)
Trainer(model=model, args=args, train_dataset=rows).train()
"""


def test_a_rendered_conversation_whose_question_is_masked() -> None:
    found = script(LOADED, ROW, TURNS)
    assert not found.draft.wrong, found.messages
    assert "columns = [question, answer]" in found.text
    assert 'system = "Be brief."' in found.text
    assert "\n  chat\n" in found.text
    assert "repeat the template's bos token" in found.draft.differences["prompt"]
    other = TURNS.replace("turns[:-1]", "turns[:-2]")
    assert script(LOADED, ROW, other).draft.wrong


NAMED = """
def row(example):
    return {"whole": f"Q: {example['question']} A: {example['answer']}"}
rows = load_dataset("org/rows", split="train").map(row)
SFTTrainer(model=model, args=args, train_dataset=rows, dataset_text_field="whole").train()
"""


def test_a_text_column_of_two_columns_is_their_format() -> None:
    found = script(LOADED, ROW, NAMED)
    assert not found.draft.wrong, found.messages
    assert "format = prompt_completion" in found.text


def test_a_trainer_given_by_name_and_mxfp4_that_is_dequantized() -> None:
    head = "from transformers import Mxfp4Config\nfrom unsloth.chat_templates import train_on_responses_only\n"
    head += "model = AutoModelForCausalLM.from_pretrained('org/m', quantization_config=Mxfp4Config(dequantize=True))\n"
    tail = NAMED.replace("SFTTrainer(", "one = SFTTrainer(").replace(".train()\n", "\n")
    tail += "train_on_responses_only(trainer=one, response_part='A:').train()\n"
    found = script(LOADED, ROW, head + tail)
    assert not found.draft.wrong, found.messages
    assert "completion_only = false" not in found.text
