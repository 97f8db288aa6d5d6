"""Some lines say what a run does even without them; the suggested edit removes such a line. If a line requests
something that xpc cannot do, this is only reported.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited

from xpc.grammar.diagnostic import applied

LINE = "xpc 1\ntrain qwen2.5-3b on alpaca\n"


@pytest.mark.parametrize(
    "typed",
    [
        "resume_from_checkpoint: null",
        "hub_model_id: ~",
        "lora_target_modules:",
        "loftq_config = None",
        "load_in_8bit = false",
        "use_cpu = false",
        "bnb_4bit_quant_type: nf4",
        "val_before_train = false",
        "group_by_length = false",
        "logging_first_step: false",
        "use_distributed_optimizer = false",
        "use_dora = false",
        "load_in_4bit = false",
        "hub_private_repo: false",
    ],
)
def test_a_line_that_changes_nothing_is_removed(typed):
    text = f"{LINE}{typed}\nseed = 3\n"
    found = checked(text).problems[0]
    assert "leave " in (found.help or "")
    assert edited(text, found) == f"{LINE}seed = 3\n"


@pytest.mark.parametrize("typed", ["ema_decay = 0.999", "resume_from_checkpoint = out/a", "tensor_parallel_size = 2"])
def test_a_line_without_an_equivalent_stays(typed):
    assert not checked(f"{LINE}{typed}\n").problems[0].edits


@pytest.mark.parametrize("sign", [" =", ":"])
def test_two_switches_that_are_off_do_not_turn_their_block_on(sign):
    text = f"{LINE}use_dora{sign} false\nuse_rslora{sign} false\n"
    edits = [edit for one in checked(text).problems for edit in one.edits]
    assert applied(text, edits) == LINE


def test_null_switches_a_number_off_where_it_can():
    text = f"{LINE}max_grad_norm: null\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}clip=0\n"


def test_a_list_below_a_name_of_yaml_is_not_null():
    found = checked(f"{LINE}rewards:\n  - name: accuracy\n    weight: 1.0\n").problems[0]
    assert "null" not in f"{found.help} {found.edits}"


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("lora\nuse_dora: false", "lora(dora=false)"),
        ("sample_packing: true\neval_sample_packing: false", "packing(eval=false)"),
        ("qlora\nno_double_quant = true", "qlora\nqlora(double_quant=false)"),
        ("oft\nr = 8", "oft\noft(rank=8)"),
        ("qlora\nuse_rslora = false", "qlora\nqlora(rslora=false)"),
    ],
)
def test_switch_that_is_off_stays_if_its_block_is_on(typed, right):
    text = f"{LINE}{typed}\n"
    edits = [edit for one in checked(text).problems if one.code[:3] in ("XP0", "XP1") for edit in one.edits]
    assert applied(text, edits).removesuffix("\n") in (f"{LINE}{right}", f"{LINE}lora\n{right}")


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ("fp16=false", ""),
        ("lr=1e-5 fp16=false seed=3", " with lr=1e-5 seed=3"),
        ("lr=1e-5 hub_private_repo=null", " with lr=1e-5"),
    ],
)
def test_an_option_of_the_first_line_that_changes_nothing_is_removed(options, right):
    text = f"{LINE.strip()} with {options}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE.strip()}{right}\n"


def test_bf16_that_is_off_alone_means_fp32():
    text = f"{LINE}bf16 = false\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}fp32\n"
    assert edited(f"{text}fp16 = true\n", checked(f"{text}fp16 = true\n").problems[0]) == f"{LINE}fp16 = true\n"
