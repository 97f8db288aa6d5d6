"""Every argument of every class of each stack is imported alone. It becomes a setting, or stays under `extra`, or the
import states why it is refused or irrelevant.
"""

from __future__ import annotations

import json

import pytest
from import_support import HARDWARE, convert, imported, unaccounted
from tiers import nightly_but

from xpc.compiler import stacks
from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.language.methods import METHODS

pytestmark = pytest.mark.slow

CLASSES = [
    (name, method)
    for name in stacks.names()
    for method in METHODS
    if stacks.load(name).refused(method) is None  # type: ignore[union-attr]
]
UNSTATED = {
    "dataset_kwargs", "ddp_backend", "eval_packing", "eval_steps", "half_precision_backend", "hub_always_push",
    "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy", "packing_strategy", "padding_free",
    "ref_model_mixup_alpha", "ref_model_sync_steps", "save_safetensors", "use_cpu", "use_legacy_prediction_loop",
    "vllm_enable_sleep_mode", "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_mode",
    "vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_tensor_parallel_size",
    "shuffle_dataset", "dataloader_pin_memory", "use_cache", "per_device_eval_batch_size",
}  # fmt: skip
"""Arguments that have no effect alone: they depend on another argument (`vllm_mode` on `use_vllm`) or on the machine
(`use_cpu`), or they never change a number (`logging_dir`).
"""

ALONE = {"loss_weights", "dataset_text_field"}
"""Arguments that are read only together with something else: `loss_weights` needs a list of losses, and
`dataset_text_field` needs rows of text, but distill does not train on such rows.
"""
ELSEWHERE = {
    "use_liger_kernel": ("model", "liger"), "pad_token": ("tokenizer", "pad_token"),
    "trust_remote_code": ("model", "trust_remote_code"), "dataset_num_proc": ("data", "workers"),
}  # fmt: skip
"""Maps arguments to the section and the key of trainer_args.json that have their value, if it is not among the
trainer's arguments.
"""


def other(field) -> object:
    """A value that differs from the argument's default."""
    words = {word.strip() for word in field.type.split("|")}
    if field.choices:
        return next((one for one in field.choices if one not in (field.declared, field.effective)), field.choices[0])
    if "bool" in words:
        return not field.effective
    if "int" in words:
        return (field.effective if isinstance(field.effective, int) else 2) + 3
    if "float" in words:
        return 0.25
    if any(word.startswith("list") for word in words):
        return ["q_proj"]
    if any(word.startswith("dict") for word in words):
        return {"inner": 1}
    return "something"


def head(method: str) -> str:
    rewards = "reward_funcs: [accuracy]\n" if METHODS[method].grouped else ""
    return f"model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/rows\n{rewards}"


@pytest.mark.slow  # the test makes thousands of imports, and compiles most of them
@pytest.mark.parametrize(("target", "method"), nightly_but(CLASSES, lambda one: one[0] == stacks.DEFAULT))
def test_every_argument_of_the_class_is_accounted_for(target, method):
    table = stacks.load(target)
    assert table is not None
    base = table.base_arguments(table.config(method))
    lost: dict[str, object] = {}
    wrong: dict[str, object] = {}
    unread: list[str] = []
    for name, field in table.fields(table.config(method)).items():
        value = other(field)
        text = head(method) + f"{name}: {json.dumps(value)}\n"
        draft, _ = convert(text, *HARDWARE, "--target", target, "--method", method)
        assert unaccounted(draft, yamltext.read(text, "recipe.yaml")) == []
        outcomes = {one.key: one for one in draft.outcomes.values() if one.key.partition(".")[0] == name}
        outcome = {one.outcome for one in outcomes.values()}
        own = outcomes[name].why if name in outcomes else ""
        unread += [name] if "no such key" in own or "no setting of a spec corresponds to it" in own else []
        if outcome <= {"irrelevant"} and name in base and base[name] != value and name not in UNSTATED:
            lost[name] = [one.why for one in outcomes.values()]
        if not draft.wrong and outcome <= {"extra", "mapped"}:
            wrong.update(_stated(text, target, method, name, value))
    assert not lost, lost
    assert not wrong, wrong
    assert set(unread) <= ALONE, unread


def _stated(text: str, target: str, method: str, name: str, value: object) -> dict[str, object]:
    """Map each argument whose value in the bundle differs from its value in the imported file to a pair of both values.
    Empty if no argument differs, or if a rule refuses the spec.
    """
    found = imported(text, *HARDWARE, "--target", target, "--method", method)
    if found.errors:
        return {}
    section, inner = ELSEWHERE.get(name, ("arguments", name))
    if name == "dataset_text_field":
        return {} if found.payload["data"]["sources"][0]["columns"] == [value] else {name: value}
    new = str(stacks.load(target).rename(name))  # type: ignore[union-attr]
    got = found.payload[section].get(inner, found.arguments.get(new))
    if got is None and section != "arguments":
        got = found.arguments.get(name)
    return {} if value in (got, found.arguments.get(name)) else {name: (got, value)}


@pytest.mark.parametrize("target", stacks.names())
@pytest.mark.parametrize("block", ["accelerate", "fsdp_config", "deepspeed_config", "parallelism_config"])
def test_every_key_of_accelerate_is_accounted_for(target, block):
    table = stacks.load(target)
    assert table is not None
    for name in sorted(table.keys(block)):
        kind = "DEEPSPEED" if block == "deepspeed_config" else "FSDP"
        line = f"{name}: 7\n" if block == "accelerate" else f"{block}:\n  {name}: 7\n"
        text = (f"distributed_type: {kind}\n" if name != "distributed_type" else "") + line
        draft, _ = convert(text, *HARDWARE, "--target", target, "--from", "accelerate")
        assert unaccounted(draft, yamltext.read(text, "recipe.yaml")) == [], name


@pytest.mark.parametrize("target", stacks.names())
def test_every_key_of_deepspeed_is_accounted_for(target):
    table = stacks.load(target)
    assert table is not None
    for name in sorted({*table.launch_keys("deepspeed"), *table.keys("deepspeed"), *table.keys("deepspeed_removed")}):
        nested: object = 7
        for part in reversed(name.split(".")):
            nested = {part: nested}
        assert isinstance(nested, dict)
        zero = nested.setdefault("zero_optimization", {})
        if isinstance(zero, dict):
            zero.setdefault("stage", 3)
        draft, _ = convert(json.dumps(nested), *HARDWARE, "--target", target, "--from", "deepspeed", name="ds.json")
        known = {key for _, key in draft.outcomes}
        assert any(key == name or key.startswith(f"{name}.") or name.startswith(f"{key}.") for key in known), name
