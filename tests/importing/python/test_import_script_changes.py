"""Scripts may change their settings, labels, model and training. The import either imports such a change, or names it
in one sentence.
"""

from __future__ import annotations

import pytest
from import_support import HARDWARE, Imported, imported

HEAD = """\
import argparse
from datasets import interleave_datasets, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer
"""
ROWS = 'rows = load_dataset("org/rows", split="train")\n'
TRAINER = 'trainer = SFTTrainer("Qwen/Qwen2.5-0.5B", args=args, train_dataset=rows)\n'


def script(text: str, *arguments: str) -> Imported:
    """Import a script after some usual imports."""
    return imported(HEAD + text, *HARDWARE, *arguments, name="train.py")


def setting(found: Imported, path: str) -> str | None:
    one = found.draft.settings.get(path)
    return None if one is None else one.text


@pytest.mark.parametrize("change", [
    "args.__dict__.update(learning_rate=3e-5)",
    "args.__dict__.update({'learning_rate': 3e-5})",
    "args.__dict__['learning_rate'] = 3e-5",
    "vars(args)['learning_rate'] = 3e-5",
    "vars(args).update(learning_rate=3e-5)",
])  # fmt: skip
@pytest.mark.parametrize("made", [
    "args = SFTConfig('out', learning_rate=1e-4)\n{change}\n",
    "parser = argparse.ArgumentParser()\nparser.add_argument('--learning_rate', type=float, default=1e-4)\n"
    "args = parser.parse_args()\n{change}\nargs = SFTConfig('out', learning_rate=args.learning_rate)\n",
])  # fmt: skip
def test_dict_of_an_object_has_its_attributes(made: str, change: str) -> None:
    found = script(made.replace("{change}", change) + ROWS + TRAINER + "trainer.train()\n")
    assert not found.draft.wrong, found.messages
    assert setting(found, "optimizer.lr") == "3e-5"


@pytest.mark.parametrize(
    "copied", ["copy.deepcopy(vars(args))", "dict(vars(args))", "args.__dict__.copy()", "{**vars(args)}"]
)
def test_copy_of_the_dict_of_an_object_is_a_dict(copied: str) -> None:
    made = (
        f"import copy\nargs = SFTConfig('out', learning_rate=1e-4)\nother = {copied}\nother['learning_rate'] = 3e-5\n"
    )
    found = script(made + ROWS + TRAINER + "trainer.train()\n")
    assert not found.draft.wrong, found.messages
    assert setting(found, "optimizer.lr") == "1e-4"


def test_dict_that_is_updated_with_unknown_values_is_an_error() -> None:
    made = "import own\nargs = SFTConfig('out', learning_rate=1e-4)\nargs.__dict__.update(own.settings())\n"
    assert script(made + ROWS + TRAINER + "trainer.train()\n").draft.wrong


@pytest.mark.parametrize(("arguments", "shares", "end"), [
    ("[a, b], probabilities=[0.7, 0.3], seed=42", ["70%", "30%"], "stop"),
    ("[a, b], probabilities=[0.7, 0.3], stopping_strategy='all_exhausted'", ["70%", "30%"], "repeat"),
    ("datasets=[a, b]", ["50%", "50%"], "stop"),
    ("[a, b], probabilities=[0.7, 0.7]", [], ""),
    ("[a, b], [0.7, own.share()]", [], ""),
    ("[a, b], stopping_strategy='all_exhausted_without_replacement'", [], ""),
])  # fmt: skip
def test_interleaved_data_sets_are_a_mixture(arguments: str, shares: list[str], end: str) -> None:
    text = f"""
import own
a, b = load_dataset("org/a", split="train"), load_dataset("org/b", split="train")
rows = interleave_datasets({arguments})
args = SFTConfig("out", max_steps=100)
"""
    found = script(text + TRAINER + "trainer.train()\n")
    assert found.draft.wrong is not bool(shares), found.messages
    if shares:
        assert [line.split(" = ")[1] for line in found.text.splitlines() if " share = " in line] == shares
        assert setting(found, "data.exhausted") == end
        assert ("exact" in "".join(found.messages)) == ("probabilities" in arguments)


@pytest.mark.parametrize(("train", "how"), [
    ("trainer.train()\n", ""),
    ("trainer.train()\ntrainer.train()\n", "2 times"),
    ("for n in range(3):\n    trainer.train()\n", "3 times"),
    ("for n in range(int(args.extra)):\n    trainer.train()\n", "in a loop"),
    ("while True:\n    trainer.train()\n", "in a loop"),
    ("for n in range(3):\n    trainer.train()\n    break\n", ""),
    ("while True:\n    trainer.train()\n    break\n", ""),
    ("if own.resumes():\n    trainer.train('last')\nelse:\n    trainer.train()\n", ""),
    ("try:\n    trainer.train('last')\nexcept ValueError:\n    trainer.train()\n", ""),
    ("for n in own.all():\n    trainer = SFTTrainer('a/b', args=args, train_dataset=rows)\n    trainer.train()\n", ""),
])  # fmt: skip
def test_trainer_that_trains_again_is_named(train: str, how: str) -> None:
    found = script("import own\nargs = SFTConfig('out')\n" + ROWS + TRAINER + train)
    named = [one for one in found.messages if "the script calls `train`" in one]
    assert len(named) == bool(how), found.messages
    assert not how or f"`train` {how}" in named[0]


@pytest.mark.parametrize("change", [
    "list(map(lambda p: p.requires_grad_(False), model.model.embed_tokens.parameters()))",
    "[p.requires_grad_(False) for p in model.parameters()]",
    "def freeze(p):\n    p.requires_grad = False\nlist(map(freeze, model.parameters()))",
])  # fmt: skip
def test_frozen_parameters_are_named(change: str) -> None:
    model = 'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
    train = 'SFTTrainer(model, args=SFTConfig("out"), train_dataset=rows).train()\n'
    found = script(model + change + "\n" + ROWS + train)
    assert any("parameters or modules changes them" in one for one in found.messages), found.messages
    assert not script(model + "print(list(map(lambda p: p.shape, model.parameters())))\n" + ROWS + train).draft.wrong


@pytest.mark.parametrize(("frozen", "named"), [("reference", False), ("model", True)])
def test_only_the_reference_may_be_frozen(frozen: str, named: bool) -> None:
    found = script(f"""
from trl import DPOConfig, DPOTrainer
def load(name):
    return AutoModelForCausalLM.from_pretrained(name)
model, reference = load("Qwen/Qwen2.5-0.5B"), load("Qwen/Qwen2.5-0.5B")
for one in {frozen}.parameters():
    one.requires_grad = False
{ROWS}
DPOTrainer(model, ref_model=reference, args=DPOConfig("out"), train_dataset=rows).train()
""")
    assert any("parameters or modules changes them" in one for one in found.messages) is named, found.messages


@pytest.mark.parametrize(("mask", "reads"), [
    ("labels[:len(asked)] = [-100] * len(asked)", True),
    ("for i in range(len(asked)):\n        labels[i] = -100", True),
    ("for i in range(0, len(asked)):\n        labels[i] = -100", True),
    ("for i in range(len(labels)):\n        if i < len(asked):\n            labels[i] = -100", True),
    ("for i in range(min(len(asked), len(labels))):\n        labels[i] = -100", True),
    ("for i in range(min(len(labels), len(asked))):\n        labels[i] = -100", False),
    ("for i in range(1, len(asked)):\n        labels[i] = -100", False),
    ("for i in range(len(asked)):\n        labels[i] = 0", False),
    ("for i in range(len(asked)):\n        labels[i + 1] = -100", False),
    ("for i in range(len(labels)):\n        if i > len(asked):\n            labels[i] = -100", False),
])  # fmt: skip
def test_labels_that_a_loop_masks_become_columns(mask: str, reads: bool) -> None:
    text = f"""
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-3B")
def tokens(one):
    row = tokenizer(f"Q: {{one['question']}} A: {{one['answer']}}", truncation=True, max_length=256)
    asked = tokenizer(f"Q: {{one['question']}} A: ")["input_ids"]
    labels = row["input_ids"].copy()
    {mask}
    row["labels"] = labels
    return row
Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", dtype="bfloat16"),
        args=TrainingArguments("out"), data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
        train_dataset=load_dataset("org/rows", split="train").map(tokens)).train()
"""
    found = script(text)
    assert found.draft.wrong is not reads, found.messages
    assert ("columns = [question, answer]" in found.text and "completion_only = false" not in found.text) is reads


@pytest.mark.parametrize("command", [
    "python train.py model=qwen trainer.lr=1e-4", "accelerate launch train.py +trainer.lr=1e-4 model=qwen",
])  # fmt: skip
def test_values_for_hydra_are_named(command: str) -> None:
    found = imported(command + "\n", *HARDWARE, name="run.sh")
    named = [one for one in found.messages if "it overrides a Hydra configuration" in one]
    assert len(named) == 2, found.messages


@pytest.mark.parametrize(("text", "wrong"), [
    ("A note: {one['note']}", True), ("{one['title']}: {one['note']}", False), ("{one['note']}", False),
])  # fmt: skip
def test_text_with_a_beginning_of_no_column_is_an_error(text: str, wrong: bool) -> None:
    rows = ROWS + f'rows = rows.map(lambda one: {{"text": f"{text}"}})\nargs = SFTConfig("out")\n'
    found = script(rows + TRAINER + "trainer.train()\n")
    assert any("its prompt has no column" in one for one in found.messages) is wrong, found.messages
    assert wrong or not found.errors


@pytest.mark.parametrize(("end", "spaces"), [("", False), ("\\n", True), (" \\n\\n", True), ("\\nEnd", None)])
def test_white_space_after_the_answer_is_a_difference(end: str, spaces: bool | None) -> None:
    rows = ROWS + f"""rows = rows.map(lambda x: {{"text": f"Q: {{x['q']}} A: {{x['a']}}{end}"}})\n"""
    found = script(rows + 'args = SFTConfig("out")\n' + TRAINER + "trainer.train()\n")
    assert found.draft.wrong is (spaces is None), found.messages
    assert any("end with white space" in one for one in found.messages) is bool(spaces)
    assert spaces is None or not found.errors
    assert spaces is None or any("adds no eos token" in one for one in found.messages)


@pytest.mark.parametrize(("column", "reads"), [
    ("[build(row) for row in rows]", True),
    ("[build(row) for row in other]", False),
    ("[build(row) for row in rows.shuffle()]", False),
    ("own.texts(rows)", False),
    ("['same' for row in rows]", False),
])  # fmt: skip
@pytest.mark.parametrize("before", ["", "rows = rows.map(lambda row: {'q': row['q'] + '?'})\n"])
def test_column_that_is_made_from_the_same_rows(before: str, column: str, reads: bool) -> None:
    text = f"""
import own
def build(row):
    return f"Q: {{row['q']}} A: {{row['a']}}"
{ROWS}{before}other = load_dataset("org/other", split="train")
rows = rows.add_column("made", {column}).shuffle(seed=1)
args = SFTConfig("out", dataset_text_field="made")
"""
    found = script(text + TRAINER + "trainer.train()\n")
    assert found.draft.wrong is not (reads and not before), found.messages
    if reads and not before:
        assert 'prompt_template = "Q: {{ q }} A: "' in found.text
        assert "columns = [q, a]" in found.text
