"""A script may build rows of tokens itself: it joins the tokens of a question, of an answer, and the end token, and
only the answer has a loss. The import turns such rows into prompts with completions.
"""

from __future__ import annotations

import pytest
from import_support import imported
from test_import_python import script

FUNCTION = """\
from transformers import DataCollatorForSeq2Seq
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
MAX = 384

def process(example):
    question = example['instruction'] + example['input']
    asked = tokenizer(f"<|im_start|>user\\n{question}<|im_end|>\\n<|im_start|>assistant\\n", add_special_tokens=False)
    told = tokenizer(f"{example['output']}", add_special_tokens=False)
    input_ids = asked["input_ids"] + told["input_ids"] + [tokenizer.eos_token_id]
    attention_mask = asked["attention_mask"] + told["attention_mask"] + [1]
    labels = [-100] * len(asked["input_ids"]) + told["input_ids"] + [tokenizer.eos_token_id]
    if len(input_ids) > MAX:
        input_ids = input_ids[:MAX]
        attention_mask = attention_mask[:MAX]
        labels = labels[:MAX]
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}

rows = load_dataset("org/rows", split="train")
rows = rows.map(process, remove_columns=rows.column_names)
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), args=TrainingArguments(output_dir="out"),
        train_dataset=rows, data_collator=DataCollatorForSeq2Seq(tokenizer=tokenizer)).train()
"""


def test_question_and_answer_become_a_prompt_with_its_completion() -> None:
    found = script(FUNCTION)
    assert not found.draft.wrong, found.messages
    source = found.payload["data"]["sources"][0]
    assert (source["shape"], source["columns"]) == ("prompt_completion", ["instruction", "output"])
    assert "{{ instruction }}{{ input }}<|im_end|>" in found.text
    assert found.arguments["max_length"] == 384
    assert any("tokenizes the question and the answer separately" in one for one in found.messages)
    assert not any("ends an answer with" in one for one in found.messages)


BATCH = """
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")

def process(batch):
    ids, masks = [], []
    for question, answer in zip(batch["q"], batch["a"]):
        text = question + " " + answer.strip() + tokenizer.eos_token
        row = tokenizer(text, truncation=True, max_length=96)["input_ids"]
        labels = row.copy()
        for n in range(len(tokenizer(question + " ")["input_ids"])):
            labels[n] = -100
        ids.append(row)
        masks.append(labels)
    return {"input_ids": ids, "labels": masks}

rows = load_dataset("org/rows", split="train")
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), args=TrainingArguments(output_dir="out"),
        train_dataset=rows.map(process, batched=True, remove_columns=rows.column_names)).train()
"""


def test_rows_that_a_loop_over_a_batch_collects_become_columns() -> None:
    found = script(BATCH)
    assert not found.draft.wrong, found.messages
    source = found.payload["data"]["sources"][0]
    assert (source["shape"], source["columns"]) == ("prompt_completion", ["q", "a"])
    assert found.arguments["max_length"] == 96
    assert "strips white space from the answers" in found.draft.differences["completion"]


def test_tokens_that_are_doubled_many_times_end_with_a_sentence() -> None:
    doubled = "    for _ in range(60):\n        input_ids = input_ids + input_ids\n"
    found = script(FUNCTION.replace("    if len(input_ids) > MAX:\n", doubled + "    if len(input_ids) > MAX:\n"))
    assert found.draft.wrong


def test_a_collator_that_makes_new_labels_trains_on_the_question_too() -> None:
    assert "completion_only = false" not in script(FUNCTION).text
    other = FUNCTION.replace("DataCollatorForSeq2Seq", "DataCollatorForLanguageModeling")
    found = script(other.replace("(tokenizer=tokenizer)", "(tokenizer=tokenizer, mlm=False)"))
    assert not found.draft.wrong, found.messages
    assert "completion_only = false" in found.text


@pytest.mark.parametrize(("old", "new", "end"), [
    ("eos_token_id", "pad_token_id", "the padding token"), (" + [tokenizer.eos_token_id]", "", "no token"),
])  # fmt: skip
def test_another_end_of_the_answer_is_a_difference(old: str, new: str, end: str) -> None:
    found = script(FUNCTION.replace(old, new))
    assert not found.draft.wrong, found.messages
    assert any(f"the script ends an answer with {end}" in one for one in found.messages)


@pytest.mark.parametrize(("old", "new"), [
    ('told = tokenizer(f"{example[\'output\']}", add_special_tokens=False)',
     'told = {"input_ids": tokenizer.encode(example["output"]), "attention_mask": []}'),
    ("[-100]", "[IGNORED]"),
    ("rows = rows.map(process, remove_columns=rows.column_names)",
     "rows = rows.map(process)\nrows = rows.map(remove_columns=['a']).filter(lambda x: len(x['input_ids']) <= MAX)"),
])  # fmt: skip
def test_other_ways_of_writing_it_are_read(old: str, new: str) -> None:
    assert old in FUNCTION
    found = script("IGNORED = -100\n" + FUNCTION.replace(old, new))
    assert not found.draft.wrong, found.messages
    assert "format = prompt_completion" in found.text


@pytest.mark.parametrize(("old", "new"), [
    ("[-100]", "[0]"),
    ("add_special_tokens=False)", "truncation=True, max_length=64)"),
    ("[-100] * len(asked", "[-100] * len(told"),
    ("labels = [-100] * len(asked[\"input_ids\"])", "labels = asked[\"input_ids\"]"),
    ("labels = labels[:MAX]\n", "labels = labels[1:]\n"),
    ("rows = rows.map(process, remove_columns=rows.column_names)",
     "rows = rows.map(process).filter(lambda x: len(x['input_ids']) <= 100)"),
])  # fmt: skip
def test_other_rows_are_not_taken_for_it(old: str, new: str) -> None:
    assert old in FUNCTION
    assert script(FUNCTION.replace(old, new)).draft.wrong


LABELS = """\
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")

def process(example):
    row = tokenizer(example["text"], truncation=True, max_length=384)
    labels = list(row["input_ids"])
    {change}
    row["labels"] = labels
    return row

rows = load_dataset("org/rows", split="train").map(process, remove_columns=["text"])
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), args=TrainingArguments(output_dir="out"),
        train_dataset=rows).train()
"""


@pytest.mark.parametrize("change", [
    "for i in range(len(tokenizer(example['text'].split('Answer:')[0])['input_ids'])): labels[i] = -100",
    "labels[0] = -100",
])  # fmt: skip
def test_labels_with_an_item_of_the_script_are_not_the_tokens(change: str) -> None:
    found = script(LABELS.format(change=change))
    assert any("the script computes the labels itself" in one for one in found.messages)


@pytest.mark.parametrize("change", ["print(labels[0])", "labels[labels == tokenizer.pad_token_id] = -100"])
def test_labels_without_the_padding_are_the_tokens(change: str) -> None:
    found = script(LABELS.format(change=change))
    assert not found.draft.wrong, found.messages


TOKENS = """
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
rows = [json.loads(line) for line in open("train.jsonl")]
ids, labels = [], []
for row in rows:
    one = tokenizer(row["text"], return_tensors="pt")["input_ids"].squeeze(0)
    own = one.clone()
    own[:3] = -100
    ids.append(one)
    labels.append(own)
data = Dataset.from_dict({"input_ids": ids, "labels": labels})
"""
TABLE = """
data = pd.read_csv("train.csv")
data["input_ids"] = data.apply(lambda row: asked(row["question"]), axis=1)
data["labels"] = data.apply(lambda row: answered(row["answer"]), axis=1)
data = Dataset.from_pandas(data)
"""


@pytest.mark.parametrize("rows", [TOKENS, TABLE])
def test_tokens_outside_of_a_map_are_an_error(rows: str) -> None:
    args = 'args=TrainingArguments(output_dir="out"), train_dataset=data'
    model = 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")'
    found = script(f"import json\nimport pandas as pd\n{rows}\nTrainer(model={model}, {args}).train()\n")
    assert any("`dataset.input_ids" in one for one in found.messages), found.messages


@pytest.mark.parametrize(("label", "ended", "reads"), [
    ("    if label:\n        text = f'{text}{label}'\n", "row['input_ids'].append(tokenizer.eos_token_id)", True),
    ("    if label:\n        text = f'{text}{label}'\n", "pass", True),
    ("    if label:\n        text = f'{text} -> {label}'\n", "pass", False),
])  # fmt: skip
def test_a_text_to_which_a_condition_adds_the_answer(label: str, ended: str, reads: bool) -> None:
    text = f"""
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-3B")
def build(question, note, label=None):
    if note:
        text = f"Q: {{question}}\\nN: {{note}}\\nA: "
    else:
        text = f"Q: {{question}}\\nA: "
{label}    return text
def tokens(one):
    row = tokenizer(build(one["question"], one["note"], one["answer"]), truncation=True, max_length=256)
    if row["input_ids"][-1] != tokenizer.eos_token_id and len(row["input_ids"]) < 256:
        {ended}
    row["labels"] = row["input_ids"].copy()
    return row
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", dtype="bfloat16"),
        args=TrainingArguments("out"), data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
        train_dataset=load_dataset("org/rows", split="train").map(tokens)).train()
"""
    found = imported(text, name="train.py")
    assert found.draft.wrong != reads, found.messages
    if reads:
        assert "columns = [question, answer]" in found.text
        assert "{% if note %}" in found.text
        assert ("adds no eos token" in "".join(found.messages)) == (ended == "pass")


@pytest.mark.parametrize(("length", "start", "reads"), [
    ("asked", "asked", True), ("asked", "asked - 1", False), ("len(row['input_ids'])", "asked", False),
])  # fmt: skip
def test_labels_that_begin_with_a_mask_for_the_tokens_of_the_question(length: str, start: str, reads: bool) -> None:
    text = f"""
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-3B")
def tokenize(prompt, end=True):
    row = tokenizer(prompt, truncation=True, max_length=256, padding=False, return_tensors=None)
    if row["input_ids"][-1] != tokenizer.eos_token_id and end:
        row["input_ids"].append(tokenizer.eos_token_id)
    row["labels"] = row["input_ids"].copy()
    return row
def tokens(one):
    row = tokenize(f"Q: {{one['question']}} A: {{one['answer']}}")
    asked = len(tokenize(f"Q: {{one['question']}} A: ", end=False)["input_ids"])
    row["labels"] = [-100] * {length} + row["labels"][{start}:]
    return row
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", dtype="bfloat16"),
        args=TrainingArguments("out"), data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
        train_dataset=load_dataset("org/rows", split="train").map(tokens)).train()
"""
    found = imported(text, name="train.py")
    assert found.draft.wrong != reads, found.messages
    assert ("columns = [question, answer]" in found.text) == reads
    assert not reads or "completion_only = false" not in found.text


RENDERED = """
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
rows = load_dataset("org/rows", split="train")
rows = rows.map(lambda x: {{"messages": [{{"role": "user", "content": x["q"]}},
                                         {{"role": "assistant", "content": x["a"]}}]}})

def process(batch):
    texts = [{} for one in batch["messages"]]
    out = tokenizer(texts, truncation=True, max_length=512)
    out["labels"] = out["input_ids"].copy()
    return out

Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"), args=TrainingArguments(output_dir="out"),
        train_dataset=rows.map(process, batched=True)).train()
"""


def test_batch_of_conversations_that_the_script_made_is_read_row_by_row() -> None:
    found = script(RENDERED.format("tokenizer.apply_chat_template(one, tokenize=False)"))
    assert not found.draft.wrong, found.messages
    assert "columns = [q, a]" in found.text
    assert any("the spec has each special token once" in one for one in found.messages)


def test_text_that_is_not_the_conversation_of_the_row_is_an_error() -> None:
    found = script(RENDERED.format("one[0]['content'].upper()"))
    assert any("the column `text`" in one for one in found.messages)
    assert found.draft.wrong
