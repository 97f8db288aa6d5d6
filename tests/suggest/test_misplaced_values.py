"""In parentheses, a setting may have an unknown or misplaced name. Which setting the help suggests then depends on the
setting's value.
"""

from __future__ import annotations

import pytest
from compile_support import checked

HEAD = 'xpc 1\ntrain qwen2.5-3b on deepmath-103k\nhardware 8 x h100-80gb\nsave "out/x"\n'
PART_OF_A_NAME = (
    ("method grpo(rewards=[accuracy], completion=512)", "write `max_completion`"),
    ("method grpo(rewards=[accuracy], completions=8)", "write `generations`"),
    ("method dpo(prompt=512)", "write `max_prompt`"),
    ("method grpo(rewards=[accuracy], vllm(gpu=50%))", "write `gpu_memory`"),
    ("freeze(first=10)", "write `freeze(except_last=N)`, where N is how many of the last layers are trained"),
    ("schedule cosine(lr=1e-5)", "it belongs to `optimizer`: write `lr=1e-5` outside of `schedule`"),
)
"""The unknown name is a part of the name of one setting in the clause, such as `gpu` of `gpu_memory`. If another clause
has a setting of exactly this name that accepts the value, such as `lr`, the help names that clause.
"""
CHOICE_OF_A_SETTING = (
    ("batch(packing(strategie=bfd))", "write `strategy`"),
    ("batch(packing(mode=bfd))", "write `strategy`"),
    ("strategy zero3(offload_optimizer=cpu)", "write `offload = optimizer`"),
)
"""The value is a choice of one setting of the clause, and the name is unknown or has no such value."""
CLAUSES = (
    ('eval(data="e.jsonl", track=5)', "write `track(every=5)` on a line of its own, outside of `eval`"),
    ("track wandb(save=epoch)", "write `save(every=epoch)` on a line of its own, outside of `track`"),
    ('track wandb(save="a/b")', 'write `save "a/b"` on a line of its own, outside of `track`'),
    ("memory { eval=5 }", "write `eval(every=5)`"),
)
"""A clause such as `save` inside another clause. If a number or `epoch` follows `save`, it is the value of `every`; if
a text follows, it is the folder.
"""
LOCAL_ROWS = (
    ("data(packing)", "it belongs to `batch`: write `packing` outside of `data`"),
    ("data(liger)", "it belongs to `memory`: write `liger` outside of `data`"),
    ("data(bf16)", "it belongs to `precision`: write `bf16` outside of `data`"),
    ("data(foo)", 'name the block `"train.jsonl"`, or write `on foo`'),
)
"""A name in the brackets of `data`, with the expected help. A name of the language, such as `packing`, belongs to
another clause. Any other name is taken for the name of a block.
"""


@pytest.mark.parametrize(("line", "help"), PART_OF_A_NAME + CHOICE_OF_A_SETTING + CLAUSES)
def test_help_names_the_setting_that_takes_the_value(line, help):
    helps = [one.help or "" for one in checked(HEAD + line + "\n").problems if one.code in ("XP101", "XP102")]
    assert any(one == help or one.startswith((help + ":", help + " outside")) for one in helps), helps


@pytest.mark.parametrize(("line", "help"), LOCAL_ROWS)
def test_a_name_of_the_language_is_no_title_of_a_data_block(line, help):
    text = HEAD.replace("deepmath-103k", '"train.jsonl"') + line + "\n"
    assert help in [one.help for one in checked(text).problems if one.code in ("XP102", "XP119")]
