"""Some lines say what a run does even without them; the suggested edit removes such a line. If a line requests
something that xpc cannot do, this is only reported.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited

LINE = "xpc 1\ntrain qwen2.5-3b on alpaca\n"


@pytest.mark.parametrize(
    "typed",
    [
        "resume_from_checkpoint: null",
        "hub_model_id: ~",
        "lora_target_modules:",
        "loftq_config = None",
        "eval_strategy: steps",
        "load_in_8bit = false",
        "use_cpu = false",
        "bnb_4bit_quant_type: nf4",
        "val_before_train = false",
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


def test_null_switches_a_number_off_where_it_can():
    text = f"{LINE}max_grad_norm: null\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}clip=0\n"


def test_a_list_below_a_name_of_yaml_is_not_null():
    found = checked(f"{LINE}rewards:\n  - name: accuracy\n    weight: 1.0\n").problems[0]
    assert "null" not in f"{found.help} {found.edits}"
