"""A sentence in other words or another order: one finding, with the sentence to type, which has nothing wrong in it."""

from __future__ import annotations

import pytest
from compile_support import checked

from xpc.compiler.suggest.pasted import findings_of
from xpc.grammar.diagnostic import applied

M = "llama-3.1-8b"
RIGHT = {
    f"finetune {M} on alpaca with lora r=16 alpha=32": f"train {M} on alpaca with lora(rank=16, alpha=32)",
    f"Train {M} on alpaca with lora": f"train {M} on alpaca with lora",
    f"sft {M} on alpaca with lora": f"train {M} on alpaca with lora",
    f"dpo {M} on ultrafeedback with lora": f"train {M} on ultrafeedback with dpo lora",
    f"grpo {M} on gsm8k for 20 steps using bf16": f"train {M} on gsm8k for 20 steps with grpo bf16",
    f"train {M} with lora(rank=16) on alpaca": f"train {M} on alpaca with lora(rank=16)",
    f"train on alpaca {M}": f"train {M} on alpaca",
    f"train {M} using alpaca": f"train {M} on alpaca",
    f"train model {M} on the dataset alpaca": f"train {M} on alpaca",
    f"train {M} for 3 epochs on alpaca with lora bf16": f"train {M} on alpaca for 3 epochs with lora bf16",
    f"train {M} on alpaca epochs=3 lora": f"train {M} on alpaca for 3 epochs with lora",
    f"train {M} on alpaca with lora 2 epochs": f"train {M} on alpaca for 2 epochs with lora",
    f"train {M} on alpaca with lora, bf16, gbs=64": f"train {M} on alpaca with lora bf16 gbs=64",
    f"train {M} on alpaca with lora and bf16 and gbs=64": f"train {M} on alpaca with lora bf16 gbs=64",
    f"train {M} on alpaca with lora lr 1e-4 and bf16": f"train {M} on alpaca with lora lr=1e-4 bf16",
    f"train {M} on alpaca with bf16 on 4 x h100-80gb": f"train {M} on alpaca with bf16 4 x h100-80gb",
    f"train {M} on alpaca with bf16 and 8xh100-80gb": f"train {M} on alpaca with bf16 8 x h100-80gb",
    f"train {M} on alpaca, openhermes with bf16": f"train {M} on mix with bf16\ndata mix {{ alpaca, openhermes }}",
    f'train {M} on "a.jsonl" + "b.jsonl"': f'train {M} on mix\ndata mix {{ "a.jsonl", "b.jsonl" }}',
    "fine-tune ./model on rows.jsonl with qlora, lr=2e-4": 'train "./model" on "rows.jsonl" with qlora lr=2e-4',
    f"I want to train {M} on alpaca": f"train {M} on alpaca",
}  # fmt: skip


@pytest.mark.parametrize("typed", RIGHT)
def test_the_sentence_that_was_meant_is_told(typed):
    text = f"xpc 1\n# a note\n{typed}  # and why\n\nbatch {{ accum = 2 }}\n"
    (found,) = [one for one in checked(text).problems if one.severity == "error"]
    (edit,) = found.edits
    assert (found.code, edit.text) == ("XP020", RIGHT[typed])
    mended = applied(text, found.edits)
    assert not findings_of(mended)
    assert "# and why" in mended
    assert all(f"`{line}`" in (found.help or "") for line in edit.text.split("\n"))


def test_gpus_without_a_name_get_none():
    (found,) = [
        one for one in checked(f"xpc 1\ntrain {M} on alpaca with lora 4 gpus\n").problems if one.severity == "error"
    ]
    assert "`train llama-3.1-8b on alpaca with lora 4 x GPU`" in (found.help or "")
    assert not found.edits


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        (f"train {M} on alpaca with lorra", "XP101"),
        (f"train {M} on alpaca with bf16 8xh100-80gb", "XP043"),
        (f"train {M} with bf16", "XP020"),
        (f"finetune {M}", "XP101"),
        ("train on alpaca", "XP020"),
        ("lora rank=8 dpo", "XP102"),
        (f'train {M} on "a.jsonl" with lora(from=', "XP012"),
    ],
)
def test_one_mistake_keeps_its_own_finding(typed, code):
    found = checked(f"xpc 1\n{typed}\n").problems
    assert code in [one.code for one in found]
    assert not any("and all choices" in one.message for one in found)


def test_what_is_wrong_on_other_lines_is_still_told():
    found = checked(f"xpc 1\nfinetune {M} on alpaca with bf16\nbatch {{ gbs = 64, mikro = 4 }}\n").problems
    assert [one.code for one in found if one.severity == "error"] == ["XP020", "XP101"]
