"""A spec must not silently train differently from its script. Either the spec states what the script does, or the
import reports the difference with the line of the script.
"""

from __future__ import annotations

import pytest
from import_support import Imported, imported

from xpc.compiler.importing.report import as_text

pytestmark = pytest.mark.slow

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
    """Import a script that ends with these lines and trains by sft."""
    return imported(HEAD + body + SFT.format(arguments=arguments, more=more), *options, name="train.py")


def warned(found: Imported, words: str) -> bool:
    """Whether a warning contains these words and a line number."""
    return any(
        one.severity == "warning" and words in one.text and one.location.startswith("train.py:")
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
    assert warned(found, "the spec has each special token once")
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
    assert any("adds no eos token" in one for one in found.draft.differences.values()) is differs


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
    assert warned(found, "the script adds no eos token")
    assert not warned(imported(body.replace("{end}", " + tokenizer.eos_token"), name="train.py"), "no eos token")


def test_text_that_trl_ignores_because_of_its_columns() -> None:
    rows = "data = data.map(lambda x: {{'text': 'Q: ' + x['prompt'] + ' A: ' + x['completion']}}{})"
    assert warned(script(rows.format("")), "trains on these instead of the text")
    assert not warned(script(rows.format(", remove_columns=['prompt', 'completion']")), "instead of the text")


@pytest.mark.parametrize(
    ("dtype", "warns"), [("", True), (", torch_dtype=torch.bfloat16", False), (", dtype='auto'", False)]
)
def test_model_without_a_dtype_is_warned_about(dtype: str, warns: bool) -> None:
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
    (", is_trainable=True", "", "the adapter's folder does not exist"),
    ("", "", "PEFT freezes the loaded adapter"),
    (", is_trainable=True", ", peft_config=LoraConfig(r=4)", "an adapter and trains another"),
])  # fmt: skip
def test_continued_adapter_is_imported_if_it_is_trained(keywords: str, more: str, why: str) -> None:
    found = imported(HEAD + CONTINUED.format(keywords, more), name="train.py")
    assert found.draft.wrong is (keywords == "" or more != "")
    assert any(why in one for one in found.messages), found.messages


@pytest.mark.parametrize(("body", "arguments", "lines"), [
    ("wandb.init(project='apples', name='first')", "", ["track wandb", 'project = "apples"', 'name = "first"']),
    ("wandb.init(project='apples')", ", report_to=None", ["track wandb", 'project = "apples"']),
    ("os.environ['WANDB_PROJECT'] = 'apples'", ", report_to='wandb'", ["track wandb", 'project = "apples"']),
    ("import mlflow\nmlflow.set_experiment('apples')\nmlflow.start_run(run_name='first')", "",
     ["track mlflow", 'project = "apples"', 'name = "first"']),
    ("import swanlab\nswanlab.init(project='apples', experiment_name='first')", "",
     ["track swanlab", 'project = "apples"', 'name = "first"']),
    ("from clearml import Task\nTask.init('apples', 'first')", "",
     ["track clearml", 'project = "apples"', 'name = "first"']),
    ("os.environ['MLFLOW_EXPERIMENT_NAME'] = 'apples'", ", report_to='mlflow'",
     ["track mlflow", 'project = "apples"']),
    ("wandb.init(project='apples')", ", report_to='none'", []),
    ("wandb.init(project='apples', mode='disabled')", "", []),
])  # fmt: skip
def test_tracker_that_a_script_starts(body: str, arguments: str, lines: list[str]) -> None:
    found = script(body, arguments=arguments)
    assert not found.draft.wrong, found.messages
    for line in lines:
        assert line in found.text, (line, found.text)
    trackers = ("wandb", "mlflow", "swanlab", "clearml")
    assert any(f"track {one}" in found.text for one in trackers) is bool(lines)


def test_report_to_none_is_reported() -> None:
    assert warned(script("", arguments=", report_to=None"), "every installed tracker")


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


def test_prompt_that_begins_the_answer_is_an_error() -> None:
    found = imported(HEAD + """
def right(completions, **kwargs):
    return [1.0 for _ in completions]
data = data.map(lambda x: {"prompt": tokenizer.apply_chat_template([{"role": "user", "content": x["q"]},
    {"role": "assistant", "content": "Let me think.\\n<think>"}], tokenize=False, add_generation_prompt=True)})
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=right, args=GRPOConfig("out"), train_dataset=data).train()
""", "--rewards", "r.py", name="train.py")  # fmt: skip
    assert any("the column `prompt`" in one for one in found.messages)
    assert found.draft.wrong


def test_default_of_trackers_is_in_the_report() -> None:
    lines = as_text(script("").draft, every=True)
    assert "default: track = none (not set: transformers 4 reports to every installed tracker" in lines


def test_report_lists_only_defaults_that_the_spec_has() -> None:
    found = script("", arguments=", num_train_epochs=1, learning_rate=1e-5")
    stated = {path for path, one in found.draft.settings.items() if one.entry is not None}
    listed = [
        one.split(" ", 2)[1] for one in as_text(found.draft, every=True).split("\n") if one.startswith("default: ")
    ]
    assert listed
    assert not stated & set(listed)
    assert len(listed) == len(set(listed))


FILES = """
files = load_dataset("json", data_files={"train": "a.jsonl", "validation": "b.jsonl"})
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig("out", max_length=64, eval_strategy="steps", eval_steps=7),
           train_dataset=files["train"], eval_dataset=files["validation"]).train()
"""


def test_evaluation_file_of_a_dict_is_imported() -> None:
    text = imported(HEAD + FILES, name="train.py").text
    assert 'train Qwen/Qwen2.5-0.5B on "a.jsonl"' in text
    assert 'data = "b.jsonl"' in text
    assert "every = 7" in text
    assert "split" not in text


@pytest.mark.parametrize(("arguments", "wrong"), [("", False), (", load_best_model_at_end=True", True)])
def test_evaluation_that_is_not_known_is_left_out_unless_it_chooses_weights(arguments: str, wrong: bool) -> None:
    found = script(
        "import other\nrows = other.rows()",
        arguments=f", max_length=64, eval_strategy='steps', eval_steps=7, save_strategy='steps'{arguments}",
        more=", eval_dataset=rows",
    )
    assert found.draft.wrong is wrong
    assert any("the rows of the evaluation are not known" in one.text for one in found.draft.messages)


def test_script_that_trains_on_answers_gets_a_stack_that_masks() -> None:
    found = imported("""
from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template, train_on_responses_only, standardize_sharegpt
from trl import SFTTrainer
from transformers import TrainingArguments
from datasets import load_dataset
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B-Instruct", max_seq_length=64)
model = FastLanguageModel.get_peft_model(model, r=16)
tokenizer = get_chat_template(tokenizer, chat_template="llama-3.1")
data = standardize_sharegpt(load_dataset("org/rows", split="train"))
data = data.map(lambda x: {"text": [tokenizer.apply_chat_template(one, tokenize=False) for one in x["conversations"]]},
                batched=True)
trainer = SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=data, dataset_text_field="text",
                     max_seq_length=64, args=TrainingArguments("out", evaluation_strategy="no"))
trainer = train_on_responses_only(trainer, instruction_part="user", response_part="assistant")
trainer.train()
""", name="train.py")  # fmt: skip
    assert "assistant_only" in found.text
    assert not found.errors, (found.errors, found.text)


def test_answers_in_a_text_are_an_error() -> None:
    found = script(
        "from trl import DataCollatorForCompletionOnlyLM\ndata = data.rename_column('body', 'text')",
        more=", data_collator=DataCollatorForCompletionOnlyLM('### Answer:', tokenizer=tokenizer)",
    )
    assert any("cannot find the answer in a text" in one for one in found.messages)


def test_rows_that_a_script_prepares_itself_are_an_error() -> None:
    found = script("", more=", dataset_kwargs={'skip_prepare_dataset': True}")
    assert found.draft.wrong


def test_several_visible_gpus_are_reported() -> None:
    found = script("os.environ['CUDA_VISIBLE_DEVICES'] = '0,1,2,3'")
    assert warned(found, "one process uses several GPUs")


def test_a_try_is_taken_to_succeed_with_a_warning() -> None:
    found = script(
        "try:\n    data = load_dataset('org/first', split='train')\nexcept Exception:\n"
        "    data = load_dataset('org/second', split='train')"
    )
    assert "org/first" in found.text
    assert warned(found, "assumes that this `try` block succeeds")


def test_a_script_that_asks_for_the_names_of_its_library() -> None:
    found = script(
        "import inspect\nnames = inspect.signature(SFTConfig.__init__).parameters\n"
        "key = 'max_length' if 'max_length' in names else 'max_seq_length'",
        arguments=", **{key: 77}",
    )
    assert found.arguments["max_length"] == 77


def test_rows_that_a_script_writes_out() -> None:
    found = script(
        "from datasets import Dataset\n"
        "data = Dataset.from_list([{'prompt': 'a', 'completion': str(n)} for n in range(3)])",
        arguments=", max_length=64",
    )
    assert not found.draft.wrong, found.messages
    assert 'on "train.rows.jsonl"' in found.text
    assert found.draft.files["train.rows.jsonl"].count(b"\n") == 3


@pytest.mark.parametrize(("body", "why"), [
    ("data = concatenate_datasets([data.filter(len), load_dataset('org/more', split='train')])", "rows by a function"),
    ("data = concatenate_datasets([data, load_dataset('org/more', split='train')]).select(range(9))", "several joined"),
])  # fmt: skip
def test_steps_of_several_data_sets(body: str, why: str) -> None:
    found = script("from datasets import concatenate_datasets\n" + body, arguments=", max_length=64")
    assert any(why in one for one in found.messages if one.startswith("error")), found.messages


def test_end_token_that_a_script_writes_out() -> None:
    found = script("data = data.map(lambda x: {'text': 'Q: ' + x['q'] + ' A: ' + x['a'] + '<|im_end|>\\n'})")
    assert not found.draft.wrong, found.messages
    assert warned(found, "ends its texts with `<|im_end|>`")
    assert "columns = [q, a]" in found.text


def test_end_token_of_the_tokenizer() -> None:
    found = script(
        "tokenizer.eos_token = '<|im_end|>'", arguments=", max_length=64", more=", processing_class=tokenizer"
    )
    assert not found.draft.wrong, found.messages
    assert 'eos = "<|im_end|>"' in found.text


OWN_COLLATOR = """
from datasets import load_dataset
from transformers import AutoTokenizer, DataCollatorForLanguageModeling
from trl import SFTConfig, SFTTrainer
class Masking(DataCollatorForLanguageModeling):
    def {}(self, *examples):
        return super().torch_call(*examples)
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
trainer = SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=SFTConfig(output_dir="o"), processing_class=tokenizer,
                     train_dataset=load_dataset("org/rows", split="train"),
                     data_collator=Masking(tokenizer, mlm=False))
trainer.train()
"""


def test_a_collator_with_methods_of_the_script_is_an_error():
    assert any("its own collator" in one for one in imported(OWN_COLLATOR.format("torch_call"), name="t.py").messages)
    plain = imported(OWN_COLLATOR.format("__init__"), name="t.py").messages
    assert not any("its own collator" in one for one in plain)


@pytest.mark.parametrize(("body", "more", "words"), [
    ("schedule = torch.optim.lr_scheduler.ExponentialLR(None, gamma=0.9)", ", optimizers=(None, schedule)",
     "creates its own optimizer"),
    ("from other import own", ", optimizers=(own(), None)", "creates its own optimizer"),
    ("def loss(*given):\n    return 0", ", compute_loss_func=loss", "its own loss"),
    ("from other import loss", ", compute_loss_func=loss", "its own loss"),
    ("from peft import LoraConfig\nfrom other import kind",
     ", peft_config=LoraConfig(r=8, target_modules=['q_proj'], bias=kind())", "its value is not known"),
])  # fmt: skip
def test_an_argument_of_an_unknown_value_is_not_taken_for_off(body: str, more: str, words: str) -> None:
    found = script(body, more=more)
    assert any(words in one for one in found.messages), found.messages
    assert found.draft.wrong


def test_optimizers_of_none_are_off() -> None:
    found = script("", more=", optimizers=(None, None), compute_loss_func=None")
    assert not found.draft.wrong, found.messages


@pytest.mark.parametrize("mapped", ["", "data = data.map(lambda row: {'text': row['a'] + row['b']})\n"])
def test_rows_of_a_split_that_the_script_sets_count_also_after_map(mapped: str) -> None:
    body = "data = load_dataset('org/rows')\ndata['train'] = data['train'].select(range(0, 2000))\n" + mapped
    found = script(f"{body}data = data['train']\n")
    assert not found.draft.wrong, found.messages
    assert "limit = 2000" in found.text
    assert script(f"{body}data = data['test']\n").text.count("limit") == 0


def test_a_function_with_arguments_given_by_partial_makes_the_columns() -> None:
    found = script(
        "from functools import partial\n"
        "def build(row, settings, tokenizer):\n"
        "    return {'text': settings['first'] + row['q'] + ' A: ' + row['a'] + tokenizer.eos_token}\n"
        "data = data.map(partial(build, settings={'first': 'Q: '}, tokenizer=tokenizer))\n"
    )
    assert not found.draft.wrong, found.messages
    assert 'prompt_template = "Q: {{ q }} A:' in found.text


@pytest.mark.parametrize("made", [
    "{'prompt': [{'role': 'user', 'content': x['q'].strip()}], "
    "'completion': [{'role': 'assistant', 'content': x['a'].strip()}]}",
    "{'messages': [{'role': 'user', 'content': x['q']}, {'role': 'assistant', 'content': x['a'].strip()}]}",
    "{'text': 'Q: ' + x['q'] + ' A: ' + x['a'].rstrip()}",
])  # fmt: skip
def test_an_answer_that_the_script_strips_is_trained_as_it_is_with_a_warning(made: str) -> None:
    found = script(f"data = data.map(lambda x: {made})\n")
    assert not found.draft.wrong, found.messages
    assert warned(found, "strips white space from the answers")
    assert ", a]" in found.text


@pytest.mark.parametrize(("first", "second", "reported"), [
    ("data = data.select(range(1000))\n", "", False),
    ("", ".select(range(20))", True),
])  # fmt: skip
def test_rows_that_are_selected_before_a_split_do_not_shorten_the_evaluation(
    first: str, second: str, reported: bool
) -> None:
    body = f"{first}parts = data.train_test_split(test_size=0.1)\ndata, held = parts['train'], parts['test']{second}\n"
    found = script(body, arguments=", eval_strategy='epoch'", more=", eval_dataset=held")
    assert warned(found, "the spec evaluates on all of them") == reported


@pytest.mark.parametrize(("first", "seed", "reported"), [
    ("", ", seed=7", True),
    (".shuffle(seed=3)", ", seed=7", True),
    (".shuffle(seed=7)", ", seed=7", False),
    ("", "", False),
])  # fmt: skip
def test_held_out_rows_that_a_bundle_draws_otherwise_are_reported(first: str, seed: str, reported: bool) -> None:
    """A bundle shuffles the rows with its seed, and then splits them with the same seed, as the handbook's script."""
    body = f"parts = data{first}.train_test_split(test_size=0.1{seed})\ndata, held = parts['train'], parts['test']\n"
    found = script(body, arguments=", eval_strategy='epoch'", more=", eval_dataset=held")
    assert warned(found, "the spec holds out other rows") == reported


UNSLOTH = """
from unsloth import FastLanguageModel
from unsloth.chat_templates import {name}
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-0.5B", max_seq_length=64)
tokenizer.chat_template = {name}
model = FastLanguageModel.get_peft_model(model)
SFTTrainer(model=model, args=SFTConfig("out"), train_dataset=data, processing_class=tokenizer).train()
"""


@pytest.mark.parametrize(("name", "line"), [("qwen25_template", "chat_template = qwen2.5"), ("alpaca_template", "")])
def test_a_chat_template_of_unsloth_is_not_its_name(name: str, line: str) -> None:
    found = imported(HEAD + UNSLOTH.format(name=name), name="train.py")
    assert not any("replaces a part of the model" in one for one in found.messages)
    assert "template.jinja" not in found.text
    if line:
        assert line in found.text
    else:
        assert any("`unsloth.chat_templates.alpaca_template` is in a module" in one for one in found.messages)


@pytest.mark.parametrize(("removed", "form"), [(", remove_columns=['q', 'a']", "prompt_completion"), ("", "text")])
def test_a_text_field_that_the_rows_do_not_have_is_not_read(removed: str, form: str) -> None:
    rows = """
data = data.map(lambda x: {'messages': [{'role': 'user', 'content': x['q']},
                                        {'role': 'assistant', 'content': x['a']}]}REMOVED)
"""
    found = script(rows.replace("REMOVED", removed), more=', dataset_text_field="text"')
    assert not found.draft.wrong, found.messages
    assert f"format = {form}" in found.text


@pytest.mark.parametrize("quantized", [True, False])
def test_unsloth_replaces_quantized_weights_only_without_quantization(quantized: bool) -> None:
    body = f"""
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-0.5B-bnb-4bit", load_in_4bit={quantized})
model = FastLanguageModel.get_peft_model(model)
SFTTrainer(model=model, args=SFTConfig("out"), train_dataset=data, processing_class=tokenizer).train()
"""
    found = imported(HEAD + body, name="train.py")
    assert "train unsloth/Qwen2.5-0.5B on" in found.text
    assert ("model_name" in found.draft.differences) is quantized


def test_an_argument_that_bitsandbytes_lacks_is_a_warning() -> None:
    body = """
from transformers import BitsAndBytesConfig
kind = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_type=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", quantization_config=kind)
SFTTrainer(model=model, args=SFTConfig("out", bf16=True), peft_config=LoraConfig(), train_dataset=data).train()
"""
    found = imported(HEAD + body, name="train.py")
    assert not found.draft.wrong, found.messages
    assert warned(found, "has no such argument, and ignores it")
    # the script then computes in fp32, the default of the right argument
    assert "computes quantized layers in fp32" in found.draft.differences["bnb_4bit_compute_dtype"]


@pytest.mark.parametrize(("tail", "ended"), [("<end_of_turn><eos>", True), ("<eos>\\n", True), ("<end>", False)])
def test_a_text_may_end_with_several_end_tokens(tail: str, ended: bool) -> None:
    found = script(f"data = data.map(lambda x: {{'text': f\"Q: {{x['q']}} A: {{x['a']}}{tail}\"}})")
    assert bool(found.draft.wrong) is not ended, found.messages
    if ended:
        assert "the spec trains on the tokenizer's end token" in found.draft.differences["text"]
