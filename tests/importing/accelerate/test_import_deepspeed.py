"""When a DeepSpeed JSON is imported, some keys become settings, and other keys stay under `extra`. The value "auto" is
replaced by the value that it stands for.
"""

from __future__ import annotations

import json

import pytest
from import_support import ABSENT, HARDWARE, HEAD, PUBLISHED, WHERE, convert, imported, unaccounted

from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text.entries import Unreadable

WHOLE = ("--model", "Qwen/Qwen2.5-3B", "--data", "org/rows", "--hardware", "8 x h100-80gb")


def zero(table: object, *arguments: str):
    return imported(json.dumps(table), *arguments, "--from", "deepspeed", name="ds.json")


def test_keys_become_settings_or_stay_under_extra():
    found = zero(
        {
            "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
            "gradient_clipping": 0.5,
            "zero_optimization": {
                "stage": 3, "overlap_comm": True, "reduce_bucket_size": 1000000, "stage3_max_live_parameters": 1e9,
                "sub_group_size": 1e9, "offload_optimizer": {"device": "cpu", "pin_memory": True},
                "offload_param": {"device": "cpu"},
            },
        },
        *WHOLE,
    )  # fmt: skip
    stated = json.loads(found.files["deepspeed.json"])
    assert stated["zero_optimization"]["stage"] == 3
    assert stated["zero_optimization"]["overlap_comm"] is True
    assert stated["zero_optimization"]["reduce_bucket_size"] == 1000000
    assert stated["zero_optimization"]["stage3_max_live_parameters"] == 1e9
    assert stated["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert (stated["train_micro_batch_size_per_gpu"], stated["gradient_accumulation_steps"]) == (4, 2)
    assert found.arguments["max_grad_norm"] == 0.5
    assert found.arguments["bf16"] is True


def test_alone_it_is_a_base():
    found = zero({"zero_optimization": {"stage": 2}, "train_batch_size": "auto"})
    assert "strategy zero2" in found.text
    assert "train " not in found.text
    assert found.outcomes["train_batch_size"] == "irrelevant"


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"zero_optimization": {"stage": 5}}, "zero_optimization.stage"),
        ({"zero_optimization": {"stage": 2}, "optimizer": {"type": "Lamb"}}, "optimizer.type"),
        ({"zero_optimization": {"stage": 2}, "scheduler": {"type": "OneCycle"}}, "scheduler.type"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
         "zero_optimization.offload_param.device"),
        ({"zero_optimization": {"stage": 2}, "nonsense": 1}, "nonsense"),
        ({"zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 2}}, "tensor_parallel.autotp_size"),
    ],
)  # fmt: skip
def test_what_has_no_place(table, key):
    found = zero(table)
    assert found.outcomes.get(key) in ("error", "extra")
    if found.outcomes[key] == "extra":
        assert key.split(".")[-1] in found.text


@pytest.mark.parametrize("text", ["[1]", '{"a": 1, "a": 2}', '{"a": tru}', '{"a": 1} x', "{" * 99, '{"a"'])
def test_what_is_no_json_object(text):
    with pytest.raises(Unreadable):
        jsontext.read(text, "ds.json")


@pytest.mark.skipif(ABSENT, reason=WHERE)
@pytest.mark.parametrize("name", ["seed/ds-config.json", "fastchat/playground/deepspeed_config_s2.json",
                                  "fastchat/playground/deepspeed_config_s3.json"])  # fmt: skip
def test_the_published_files_are_imported(name):
    with open(f"{PUBLISHED}/{name}", encoding="utf-8") as handle:
        text = handle.read()
    draft, _ = convert(text, *WHOLE, name=name)
    assert unaccounted(draft, jsontext.read(text, name)) == []
    assert not draft.wrong, draft.messages


def test_deepspeeds_adamw_replaces_another_adamw(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}}')
    for optim, wrong in (("adamw_torch_fused", False), ("adafactor", True)):
        found = imported(f"{HEAD}optim: {optim}\ndeepspeed: ds.json\n", *HARDWARE, root=str(tmp_path))
        assert found.draft.wrong is wrong
        assert wrong or "\noptimizer adamw\n" in found.text


def test_schedule_of_the_file_overrules_the_schedule_of_the_trainer(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "scheduler": {"type": "WarmupDecayLR"}}')
    draft, text = convert(HEAD + "lr_scheduler_type: cosine\ndeepspeed: ds.json\n", folder=str(tmp_path))
    assert "schedule linear" in text
    assert not draft.wrong
    assert any("DeepSpeed's schedule overrules" in one.text for one in draft.messages)
