"""In the parentheses of a clause, a setting may have an unknown or misplaced name. Then the setting that the help
suggests depends on the value.
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
"""Pairs of a clause and its help. The clause has an unknown name, and the name of one of its settings contains it:
`gpu_memory` contains `gpu`. But if a setting of another clause has exactly this name and accepts the value, such as
`lr`, the help names that clause.
"""
CHOICE_OF_A_SETTING = (
    ("batch(packing(strategie=bfd))", "write `strategy`"),
    ("batch(packing(mode=bfd))", "write `strategy`"),
    ("strategy zero3(offload_optimizer=cpu)", "write `offload = optimizer`"),
)
"""Pairs of a clause and its help. The clause has a value that is a choice of one of its settings, but under a wrong
name: the name is unknown, or its setting has no such choice.
"""
CLAUSES = (
    ('eval(data="e.jsonl", track=5)', "write `track(every=5)` on a line of its own, outside of `eval`"),
    ("track wandb(save=epoch)", "write `save(every=epoch)` on a line of its own, outside of `track`"),
    ('track wandb(save="a/b")', 'write `save "a/b"` on a line of its own, outside of `track`'),
    ("memory { eval=5 }", "write `eval(every=5)`"),
)
"""Pairs of a clause and its help. Another clause, such as `save`, is written inside the clause. If a number or `epoch`
follows `save`, the help writes it as `every`; if a text follows, the text is the folder.
"""
LOCAL_ROWS = (
    ("data(packing)", "it belongs to `batch`: write `packing` outside of `data`"),
    ("data(liger)", "it belongs to `memory`: write `liger` outside of `data`"),
    ("data(bf16)", "it belongs to `precision`: write `bf16` outside of `data`"),
    ("data(foo)", 'name the block `"train.jsonl"`, or write `on foo`'),
)
"""Pairs of a `data` clause with a name in its brackets, and the help. A name of the language, such as `packing`,
belongs to another clause. Any other name counts as the name of a data block.
"""


@pytest.mark.parametrize(("line", "help"), PART_OF_A_NAME + CHOICE_OF_A_SETTING + CLAUSES)
def test_help_names_the_setting_that_takes_the_value(line, help):
    helps = [one.help or "" for one in checked(HEAD + line + "\n").problems if one.code in ("XP101", "XP102")]
    assert any(one == help or one.startswith((help + ":", help + " outside")) for one in helps), helps


@pytest.mark.parametrize(("line", "help"), LOCAL_ROWS)
def test_a_name_of_the_language_is_no_title_of_a_data_block(line, help):
    text = HEAD.replace("deepmath-103k", '"train.jsonl"') + line + "\n"
    assert help in [one.help for one in checked(text).problems if one.code in ("XP102", "XP119")]
