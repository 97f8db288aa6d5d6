"""`None` and `null` leave a setting out, and words for true and false turn a switch on and off."""

from __future__ import annotations

import pytest
from compile_support import checked, edited

LINE = "xpc 1\ntrain qwen2.5-3b on alpaca\n"


@pytest.mark.parametrize(
    "setting",
    ["rank = None", "targets = null", "alpha = None", "modules_to_save = None", "within = None", "init = null"],
)
def test_null_leaves_a_setting_out(setting: str) -> None:
    text = f"{LINE}lora {{\n  {setting}\n  dropout = 0.1\n}}\n"
    found = checked(text).problems[0]
    assert "sets nothing" in (found.help or "")
    assert edited(text, found) == f"{LINE}lora {{\n  dropout = 0.1\n}}\n"


@pytest.mark.parametrize("setting", ["revision = None", "revision = null"])
def test_null_is_no_name(setting: str) -> None:
    found = checked(f"{LINE}model {{\n  {setting}\n}}\n").problems[0]
    assert found.code == "XP104"
    assert "sets nothing" in (found.help or "")


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("clip = None", "clip = 0"),
        ("track = null", "track = none"),
        ("tf32 = None", "tf32 = false"),
        ("strategy = None", "strategy = ddp"),
        ("system = `You are brief.`", 'system = "You are brief."'),
        ("lora True", "lora "),
        ("lora 1", "lora"),
        ("lora False", "lora=false"),
        ("freeze TRUE {\n  except_last = 2\n}", "freeze  {\n  except_last = 2\n}"),
        (
            'lora {\n  modules_to_save = "embed_tokens lm_head"\n}',
            "lora {\n  modules_to_save = [embed_tokens, lm_head]\n}",
        ),
    ],
)
def test_word_becomes_the_value_that_it_means(typed: str, right: str) -> None:
    text = f"{LINE}{typed}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}{right}\n"


@pytest.mark.parametrize("typed", ["lora(True, rank=8)", "launch(nccl_timeout=30M)"])
def test_word_that_is_unclear_gets_no_edit(typed: str) -> None:
    assert not checked(f"{LINE}{typed}\n").problems[0].edits
