"""The first line of a spec may have the right content in another order, with other words, or with another unit. The
edit then rewrites the line in the language's form.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited

LINE = "train qwen2.5-3b on alpaca"
REORDERED = [
    ("train qwen2.5-3b for 5 epochs on alpaca", "train qwen2.5-3b on alpaca for 5 epochs"),
    ("train on alpaca with qwen2.5-3b for 3 epochs", "train qwen2.5-3b on alpaca for 3 epochs"),
    ("train on alpaca qwen2.5-3b", "train qwen2.5-3b on alpaca"),
    ("train model qwen2.5-3b on alpaca", "train qwen2.5-3b on alpaca"),
    ("train qwen2.5-3b on dataset alpaca", "train qwen2.5-3b on alpaca"),
    ("train qwen2.5-3b with alpaca for 2 epochs", "train qwen2.5-3b on alpaca for 2 epochs"),
    ("train qwen2.5-3b on alpaca 3 epochs", "train qwen2.5-3b on alpaca for 3 epochs"),
    ("train qwen2.5-3b on alpaca epochs=5 lr=1e-5", "train qwen2.5-3b on alpaca for 5 epochs with lr=1e-5"),
    ("train qwen2.5-3b on alpaca for epochs=5", "train qwen2.5-3b on alpaca for 5 epochs"),
    ("train qwen2.5-3b on alpaca for 500it", "train qwen2.5-3b on alpaca for 500 steps"),
    ("train qwen2.5-3b on alpaca using zero3 bf16", "train qwen2.5-3b on alpaca with zero3 bf16"),
    ("train me/tuned for 2 epochs on alpaca with lora bf16", "train me/tuned on alpaca for 2 epochs with lora bf16"),
    ("train qwen2.5-3b on alpaca for 500 iters", "train qwen2.5-3b on alpaca for 500 steps"),
    ("train qwen2.5-3b on alpaca for 2 passes", "train qwen2.5-3b on alpaca for 2 epochs"),
    ("train qwen2.5-3b on alpaca for 700 stpes", "train qwen2.5-3b on alpaca for 700 steps"),
    ("train qwen2.5-3b on alpaca for 1 epoc", "train qwen2.5-3b on alpaca for 1 epoch"),
    (
        "train qwen2.5-3b on alpaca for 3 epochs w/ lora r=64",
        "train qwen2.5-3b on alpaca for 3 epochs with lora(rank=64)",
    ),
    (
        "train qwen2.5-3b on me/chats split=train_sft for 1 epochs",
        "train qwen2.5-3b on me/chats[train_sft] for 1 epoch",
    ),
    ("train qwen2.5-3b on me/chats with split=test lora", "train qwen2.5-3b on me/chats[test] with lora"),
    ("train qwen2.5-3b on ./rows.jsonl for 3 epochs", 'train qwen2.5-3b on "./rows.jsonl" for 3 epochs'),
    ("train qwen2.5-3b on alpaca[:10%] for 1 epochs", "train qwen2.5-3b on alpaca[train:10%] for 1 epochs"),
    ("train qwen2.5-3b on alpaca with h200:4", "train qwen2.5-3b on alpaca with 4 x h200"),
    ("train qwen2.5-3b on alpaca with four h200", "train qwen2.5-3b on alpaca with 4 x h200"),
    ("grpo qwen2.5-3b on gsm8k for 2 epochs", "train qwen2.5-3b on gsm8k for 2 epochs with grpo"),
    ("train qwen2.5 3b instruct on alpaca", "train qwen2.5-3b-instruct on alpaca"),
    ("train gemma2 9b on alpaca 2 epochs on 1 rtx4090", "train gemma-2-9b on alpaca for 2 epochs with 1 x rtx-4090"),
    ("train llama 3.1 8b on alpaca, lr 2e-4", "train llama-3.1-8b on alpaca with lr=2e-4"),
    ("fine tune qwen2.5-3b on my own alpaca", "train qwen2.5-3b on alpaca"),
    ("on alpaca train qwen2.5-3b for 3 epochs", "train qwen2.5-3b on alpaca for 3 epochs"),
    ("train full qwen2.5-3b on alpaca", "train qwen2.5-3b on alpaca"),
    ("train qwen2.5-3b on alpaca full-parameter finetuning", "train qwen2.5-3b on alpaca"),
    ("train qwen2.5-3b 4bit on alpaca 1 epoch", "train qwen2.5-3b on alpaca for 1 epoch with qlora"),
    ("train orpo qwen2.5-3b on dpo-mix-7k", "train qwen2.5-3b on dpo-mix-7k with orpo"),
    ("train qwen2.5-3b with dpo on me/rows beta=0.2", "train qwen2.5-3b on me/rows with dpo beta=0.2"),
    ("dpo qwen2.5-3b on me/rows with beta 0.2", "train qwen2.5-3b on me/rows with dpo beta=0.2"),
    ("train qwen2.5-3b on alpaca logging every step", "train qwen2.5-3b on alpaca with track(every=1)"),
    ("train qwen2.5-3b on alpaca with h200 x 2", "train qwen2.5-3b on alpaca with 2 x h200"),
    ("train qwen2.5-3b on alpaca with 2x4090", "train qwen2.5-3b on alpaca with 2 x rtx-4090"),
    ("train qwen2.5-3b on alpaca+dolly-15k", "train qwen2.5-3b on rows\n\ndata rows {\n  alpaca\n  dolly-15k\n}"),
    (
        'train qwen2.5-3b on [alpaca, "rows.jsonl"] with lora',
        'train qwen2.5-3b on rows with lora\n\ndata rows {\n  alpaca\n  "rows.jsonl"\n}',
    ),
    (
        "train qwen2.5-3b on alpaca 70% and capybara 30%",
        "train qwen2.5-3b on rows\n\ndata rows {\n  alpaca { share = 70% }\n  capybara { share = 30% }\n}",
    ),
    ("train qwen2.5-3b with lora on alpaca for 2 epochs", "train qwen2.5-3b on alpaca for 2 epochs with lora"),
    ("train qwen2.5-3b on alpaca, seed = 42, bf16 = true", "train qwen2.5-3b on alpaca with seed=42 bf16"),
    ("train qwen2.5-3b on the alpaca dataset", "train qwen2.5-3b on alpaca"),
    ("train qwen2.5-3b, on alpaca", "train qwen2.5-3b on alpaca"),
    ("train --model qwen2.5-3b --dataset alpaca --lr 1e-4", "train qwen2.5-3b on alpaca with lr=1e-4"),
    ("dpo qwen2.5-3b on dpo-mix-7k with lora", "train qwen2.5-3b on dpo-mix-7k with dpo lora"),
    ('finetune qwen2.5-3b using "rows.jsonl"', 'train qwen2.5-3b on "rows.jsonl"'),
    ("train qwen2.5-3b on alpaca split train", "train qwen2.5-3b on alpaca[train]"),
]


@pytest.mark.parametrize(("typed", "right"), REORDERED)
def test_a_line_in_another_order_gets_the_line_in_the_right_one(typed: str, right: str) -> None:
    found = next(one for one in checked(f"{typed}\n").problems if one.edits)
    assert edited(f"{typed}\n", found) == f"{right}\n"


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("use a 4090", "hardware 1 x rtx-4090"),
        ("hardware: 2 x RTX 4090", "hardware 2 x rtx-4090"),
        ("8 gpus h200", "hardware 8 x h200"),
        ("hardware rtx 4090", "hardware rtx-4090"),
        ("rslora rank=32", "lora(rslora) rank=32"),
        ("expert parallel 8", ""),
        ("cuda", ""),
        ("env OMP_NUM_THREADS=8", ""),
    ],
)
def test_a_line_below_the_first_gets_no_edit_that_drops_or_invents_a_value(typed: str, right: str) -> None:
    found = next(one for one in checked(f"{LINE}\n{typed}\n").problems if one.severity == "error")
    assert edited(f"{LINE}\n{typed}\n", found) == f"{LINE}\n{right or typed}\n"


@pytest.mark.parametrize(
    ("typed", "help"),
    [
        ("train qwen2.5-3b with bf16", "write `train qwen2.5-3b on DATA`"),
        ("train qwen2.5:0.5b on alpaca", "write `qwen2.5-0.5b`, or `qwen2.5-0.5b@REVISION`"),
        ("train qwen2.5-3b on alpaca for 1B tokens", "write `for 1000 steps`: a step has at most gbs x seq tokens"),
        ("train qwen2.5-3b on alpaca for 10 hours", "`launch slurm(time=12h)` ends a job after a time"),
        ("sft then dpo qwen2.5-3b on alpaca", "write settings such as `lr = 1e-5`"),
        ("train qwen2.5-3b on alpaca with reinforce++", "text that is not a name needs double quotes"),
        ("train me/one me/two on alpaca", "write `train me/one on DATA`"),
    ],
)
def test_a_line_whose_parts_are_not_clear_gets_no_edit(typed: str, help: str) -> None:
    found = [one for one in checked(f"{typed}\n").problems if help in (one.help or "")]
    assert len(found) == 1
    assert not found[0].edits


@pytest.mark.parametrize(
    ("typed", "help"),
    [
        ('checkpoint "out/x"', 'write `save "out/x"`'),
        ('checkpoint_dir = "./runs/x"', 'write `save "./runs/x"`'),
        ('save(checkpoint="out/x")', 'write `save "out/x"`'),
        ('model(checkpoint="out/x")', 'write `train "out/x" on DATA`: the first line names the model'),
        ('checkpoint = "me/model"', "write `train me/model on DATA`: the first line names the model and the data"),
    ],
)
def test_a_folder_of_outputs_is_no_model_of_the_hub(typed: str, help: str) -> None:
    found = checked(f"train qwen2.5-3b on alpaca\n{typed}\n")
    assert [one.help for one in found.problems if one.code in ("XP101", "XP102")] == [help]


def test_a_correct_line_below_a_clause_is_not_rewritten() -> None:
    found = [
        one
        for one in checked("xpc 1\n\nseed = 3\ntrain qwen2.5-3b on alpaca for 5 epochs\n").problems
        if one.code == "XP032"
    ]
    assert [(one.message, one.edits) for one in found] == [("the `train` sentence comes first", ())]
