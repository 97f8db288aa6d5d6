"""A line of several words becomes a setting only as a whole: if the line is not understood, its single words get no
edits.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited

LINE = "xpc 1\ntrain qwen2.5-3b on alpaca\n"


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("Train in bf16 with ZeRO stage 3.", "bf16\nstrategy=zero3"),
        ("Log to wandb every 10 steps.", "track wandb(every=10)"),
        ("log every 10 steps to wandb", "track wandb(every=10)"),
        ("Hold out 5% for validation.", "holdout=5%"),
        ("use 8 bit adam", "adamw8bit"),
        ("keep only the last two checkpoints", "save(keep=2)"),
        ("The learning rate should be 3e-5 and the seed 7.", "lr=3e-5\nseed=7"),
        ("Freeze everything except the last 2 layers", "freeze(except_last=2)"),
        ("early stop after 3 evals without improvement", "eval(patience=3)"),
        ("learning rate: 2 * 10^-5", "lr=2e-5"),
        ("lr=1e--5", "lr=1e-5"),
        ("warmup = 3 %", "warmup = 3%"),
    ],
)
def test_a_line_of_words_becomes_settings(typed, right):
    text = f"{LINE}{typed}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}{right}\n"


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("finetune M on alpaca with a learning rate of 1e-5", "train M on alpaca with lr=1e-5"),
        ("train M on alpaca on slurm with 2 nodes", "train M on alpaca with slurm nodes=2"),
        ("train M on alpaca with cosine decay to 10%", "train M on alpaca with cosine min_lr=10%"),
        ("train M on alpaca with no liger", "train M on alpaca with liger=false"),
        ("train M on alpaca twice", "train M on alpaca for 2 epochs"),
        ("train M on alpaca saving a checkpoint after every epoch", "train M on alpaca with save(every=epoch)"),
        ('train M on alpaca and save the result in "out/a"', 'train M on alpaca with save="out/a"'),
        ("train M on alpaca with chatml template", "train M on alpaca with chat_template=chatml"),
        ("train M on alpaca for roughly 500 steps", "train M on alpaca for 500 steps"),
        ("train M on alpaca with 8-bit quantisation", "train M on alpaca with lora(bits=8)"),
        ("train M on alpaca with qlora on one rtx 4090", "train M on alpaca with qlora 1 x rtx-4090"),
    ],
)
def test_a_sentence_in_words_is_rewritten(typed, right):
    text = f"xpc 1\n{typed}\n".replace("M", "qwen2.5-3b")
    assert edited(text, checked(text).problems[0]) == f"xpc 1\n{right}\n".replace("M", "qwen2.5-3b")


@pytest.mark.parametrize("typed", ["use whatever works best", "Mask the prompt tokens in the loss"])
def test_a_line_that_is_not_understood_gets_no_edit(typed):
    (found,) = [one for one in checked(f"{LINE}{typed}\n").problems if one.code[:3] in ("XP0", "XP1")][:1]
    assert not found.edits
    assert "name = value" in found.message


@pytest.mark.parametrize(
    ("typed", "help"),
    [
        ("version 1", "write `xpc 1`"),
        ("save the best model only", 'such as `save "out/run"`'),
        ("the optimizer is AdamW with beta1 0.9 and beta2 0.95", "write settings such as"),
        ("continue from the last checkpoint", "leave `resume` out"),
    ],
)
def test_a_line_whose_words_would_become_another_setting_gets_no_edit(typed, help):
    found = [one for one in checked(f"{LINE}{typed}\n").problems if one.severity == "error"]
    assert help in " ".join(one.help or "" for one in found)
    assert not any(one.edits for one in found)


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ('peft_config: LoraConfig(r=16, task_type="CAUSAL_LM")', "lora(rank=16)"),
        ('config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")', "qlora"),
        ("model, tokenizer = F.from_pretrained(\n    max_seq_length = 2048,\n)", "seq=2048"),
        ('tokenizer = get_chat_template(tokenizer, chat_template="llama-3.1")', "chat_template=llama3.1"),
        ("optim = torch.optim.SGD(params, lr=0.1)", "optimizer sgd(lr=0.1)"),
        ("o = Lion(model.parameters(), lr=1e-4, betas=(0.9, 0.99))", "optimizer lion(lr=1e-4, betas=[0.9, 0.99])"),
        ("s = get_linear_schedule_with_warmup(o, num_warmup_steps=9)", "schedule linear(warmup=9)"),
        ("args = TrainingArguments(output_dir='out/x', seed=3)", 'save="out/x"\nseed=3'),
    ],
)
def test_a_call_of_python_becomes_settings(typed, right):
    text = f"{LINE}{typed}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}{right}\n"


def test_the_help_for_a_command_has_its_options():
    found = checked(f"{LINE}accelerate launch --num_processes 4 --mixed_precision bf16 train.py\n").problems[0]
    assert "`hardware 4 x GPU`" in (found.help or "")
    assert "`precision=bf16`" in (found.help or "")
