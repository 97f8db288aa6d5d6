"""A run may resume with another number of processes or another micro-batch. If this would change the training, a
message says why the run cannot resume.
"""

from __future__ import annotations

from typing import Any

import pytest

from xpc.compiler.lower.division import division
from xpc.runtime.core import same_run
from xpc.runtime.features.launch.renamed_files import renamed_back

BEGAN: dict[str, Any] = {
    "method.name": "sft", "method.generates": False, "method.unpaired": False, "run.world_size": 2, "run.micro": 4,
    "run.accumulation": 2, "run.gbs": 16, "run.distributed_type": "MULTI_GPU",
    "arguments.train_sampling_strategy": "random",
    "arguments.average_tokens_across_devices": True, "arguments.optim": "adamw_torch_fused",
    "arguments.per_device_train_batch_size": 4, "arguments.gradient_accumulation_steps": 2,
}  # fmt: skip
"""The settings of a run on two GPUs that is interrupted, and then resumed with other settings."""
FOUR = {"run.world_size": 4, "run.accumulation": 1, "arguments.gradient_accumulation_steps": 1}
ONE = {
    "run.world_size": 1,
    "run.accumulation": 4,
    "arguments.gradient_accumulation_steps": 4,
    "run.distributed_type": "NO",
}
SMALLER = {"run.micro": 2, "run.accumulation": 4, "arguments.per_device_train_batch_size": 2}
ZERO = {"run.distributed_type": "DEEPSPEED"}
FSDP = {"run.distributed_type": "FSDP", "accelerate.yaml: fsdp_version": "2"}
PREFERENCES = {"method.name": "dpo", "arguments.loss_type": ["sigmoid"]}


def differences(was: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the message about settings that differ from the checkpoint's. It has the compiler's reasons why the batch
    cannot be divided in another way.
    """
    sections: dict[str, Any] = {"method": {}, "arguments": {}, "run": {}}
    for name, value in now.items():
        section, _, key = name.partition(".")
        sections.get(section, {})[key] = value
    run, fsdp1 = sections["run"], now.get("accelerate.yaml: fsdp_version") == "1"
    reasons = division(
        sections["method"], sections["arguments"], run["distributed_type"], fsdp1, run.get("context_parallel", 1),
        [name.removeprefix("deepspeed.json: ") for name in now if name.startswith("deepspeed.json: ")],
    )  # fmt: skip
    return same_run.differences(was, now, reasons)


@pytest.mark.parametrize("now", [FOUR, ONE, SMALLER, {**FOUR, "run.nodes": 2}], ids=["four", "one", "smaller", "nodes"])
@pytest.mark.parametrize("both", [{}, PREFERENCES], ids=["sft", "dpo"])
def test_another_division_goes_on(both: dict[str, Any], now: dict[str, Any]) -> None:
    assert differences({**BEGAN, **both}, {**BEGAN, **both, **now}) == ""
    assert len(same_run.divided_otherwise(BEGAN, {**BEGAN, **now})) == 1


@pytest.mark.parametrize("sharded", [FSDP, ZERO], ids=["fsdp2", "zero"])
def test_shards_go_on(sharded: dict[str, Any]) -> None:
    assert differences({**BEGAN, **sharded}, {**BEGAN, **sharded, **FOUR}) == ""


def test_zero_goes_on_with_another_micro_batch() -> None:
    assert differences({**BEGAN, **ZERO}, {**BEGAN, **ZERO, **SMALLER}) == ""


SOURCE: dict[str, Any] = {"path": "a.jsonl", "bundled": "data/a-11.jsonl", "sha256": "1" * 64, "shape": "messages"}
FOLDER = {**SOURCE, "path": "a", "sha256": None, "files": [{"path": "x.jsonl", "sha256": "2" * 64}]}


@pytest.mark.parametrize(
    ("was", "now", "resumes"),
    [
        (SOURCE, {"path": "b/c.jsonl", "bundled": "data/c-11.jsonl"}, True),
        (SOURCE, {"path": "b.json"}, False),
        (SOURCE, {"path": "b.jsonl", "sha256": "3" * 64}, False),
        (SOURCE, {"path": "b.jsonl", "limit": 7}, False),
        ({**SOURCE, "sha256": None}, {"path": "b.jsonl"}, False),
        ({**SOURCE, "shape": "images"}, {"path": "b/c.jsonl"}, False),
        (FOLDER, {"path": "b"}, True),
        (FOLDER, {"path": "b", "files": [{"path": "y.jsonl", "sha256": "2" * 64}]}, False),
        (FOLDER, {"path": "b", "files": [{"path": "x.jsonl", "sha256": None}]}, False),
    ],
)
def test_renamed_rows_with_the_same_content_go_on(was: dict[str, Any], now: dict[str, Any], resumes: bool) -> None:
    other = {"path": "o.jsonl", "bundled": None, "sha256": "4" * 64, "shape": "messages"}
    before, after = ({**BEGAN, "data.sources": [one, other]} for one in (was, {**was, **now}))
    assert (differences(before, {**after, **renamed_back(before, after)}) == "") is resumes
    after["data.sources"] = after["data.sources"][:1]
    assert differences(before, {**after, **renamed_back(before, after)}) != ""


@pytest.mark.parametrize(
    ("now", "resumes"),
    [
        ("files/u-12345678.jinja", True), ("files/t-12345679.jinja", False), ("files/u-12345678.txt", False),
        ("files/t.jinja", False), (None, False),
    ],
)  # fmt: skip
def test_a_renamed_template_with_the_same_content_goes_on(now: str | None, resumes: bool) -> None:
    before, after = ({**BEGAN, "tokenizer.chat_template": one} for one in ("files/t-12345678.jinja", now))
    assert (differences(before, {**after, **renamed_back(before, after)}) == "") is resumes


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "generates": ({"method.generates": True}, FOUR, "generates its completions"),
    "kto": ({"method.unpaired": True, "method.name": "kto"}, FOUR, "KL term"),
    "grouped": ({"arguments.train_sampling_strategy": "group_by_length"}, FOUR, "grouped by length"),
    "grouped, older": ({"arguments.group_by_length": True}, FOUR, "grouped by length"),
    "drop": ({"arguments.dataloader_drop_last": True}, FOUR, "drop_last"),
    "tokens": ({"arguments.average_tokens_across_devices": False}, FOUR, "averages the loss over its own tokens"),
    "orpo": ({"method.name": "orpo"}, SMALLER, "write `micro = 4` in batch"),
    "dpo": ({**PREFERENCES, "arguments.loss_type": ["sigmoid", "sft"]}, SMALLER, "write `micro = 4` in batch"),
    "rpo": ({**PREFERENCES, "arguments.rpo_alpha": 1.0}, SMALLER, "write `micro = 4` in batch"),
    "router": ({"arguments.router_aux_loss_coef": 0.01}, SMALLER, "write `micro = 4` in batch"),
    "zero, 8 bits": ({**ZERO, "arguments.optim": "adamw_bnb_8bit"}, FOUR, "adamw_bnb_8bit keeps states per shard"),
    "zero, factored": ({**ZERO, "arguments.optim": "adafactor"}, FOUR, "adafactor keeps states per shard"),
    "zero, nvme": (
        {**ZERO, "deepspeed.json: zero_optimization.offload_optimizer.nvme_path": "/disk"}, FOUR, "nvme_path`",
    ),
    "fsdp1": ({**FSDP, "accelerate.yaml: fsdp_version": "1"}, FOUR, "FSDP1"),
    "context": ({**FSDP, "run.context_parallel": 2}, FOUR, "context_parallel"),
    "strategy": ({}, ZERO, "another strategy"),
    "batch": ({}, {**FOUR, "run.gbs": 32}, "write `gbs = 16` in batch"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_go_on_says_why(name: str) -> None:
    both, change, why = REFUSED[name]
    output = differences({**BEGAN, **both}, {**BEGAN, **both, **change})
    assert why in output
    assert all(key in output for key in change if key.startswith("run.") and "write `gbs" not in output)


@pytest.mark.parametrize("name", ["orpo", "batch"])
def test_advice_to_go_on_is_given_only_if_no_other_setting_prevents_it(name: str) -> None:
    both, change, advice = REFUSED[name]
    before = {**BEGAN, **both, "arguments.seed": 1}
    assert advice in differences(before, {**before, **change})
    assert "write `" not in differences(before, {**before, **change, "arguments.seed": 2})


def test_a_loss_of_micro_batches_goes_on_where_they_stay() -> None:
    both = {**BEGAN, "method.name": "orpo"}
    assert differences(both, {**both, **FOUR}) == ""


def test_the_gpu_decides_no_number() -> None:
    was = {**BEGAN, "run.gpu.name": "h100-80gb", "run.gpu.capability": [9, 0]}
    assert differences(was, BEGAN) == ""
    assert "arguments.bf16" in differences({**was, "arguments.bf16": True}, BEGAN)


def test_a_question_to_liger_decides_no_number() -> None:
    assert differences(BEGAN, {**BEGAN, "model.liger_unchecked": True}) == ""
    assert "model.liger was null" in differences(BEGAN, {**BEGAN, "model.liger": True})
