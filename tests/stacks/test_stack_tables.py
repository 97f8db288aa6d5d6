"""The committed tables of the stacks are complete and up to date, and agree with the measured facts. These tests need
none of the stacks' libraries.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from case_support import spec, trained
from compile_support import checked, only
from interpreters import stack_of

from xpc.compiler import registry, stacks
from xpc.compiler.language.methods import METHODS
from xpc.compiler.registry import build
from xpc.compiler.stacks import generate

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_the_stacks_are_the_folders() -> None:
    folders = [entry.name for entry in os.scandir(stacks.HERE) if entry.is_dir() and entry.name[0] not in "_."]
    assert list(stacks.names()) == sorted(folders)
    assert stacks.DEFAULT in folders
    assert stacks.load("trl-1.1600") is None
    assert stacks.load(f"../stacks/{stacks.DEFAULT}") is None


@pytest.mark.parametrize("name", stacks.names())
def test_the_policy_that_the_compiler_loads_is_the_one_that_is_written(name: str) -> None:
    with open(os.path.join(generate.HERE, name, "stack.json"), encoding="utf-8", newline="") as file:
        text = file.read()
    folded = generate.fold(json.loads(text)["library"], generate.read_policy(name))
    assert text == folded, f"run: python compiler/stacks/generate.py {name} --fold"


@pytest.mark.parametrize("name", stacks.names())
def test_a_policy_states_what_differs_from_the_common_one(name: str) -> None:
    common, own = (
        tomllib.loads(Path(generate.HERE, path).read_text()) for path in ("common.toml", f"{name}/policy.toml")
    )
    repeated = [(t, key) for t in common for key in common[t] if own.get(t, {}).get(key) == common[t][key]]
    assert not repeated


def test_a_policy_writes_false_for_what_its_stack_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "HERE", str(tmp_path))
    (tmp_path / "trl-9").mkdir()
    (tmp_path / "common.toml").write_text('[methods]\nsft = "a"\ndpo = "b"\nkto = "c"\n')
    (tmp_path / "trl-9" / "policy.toml").write_text('[methods]\ndpo = false\nkto = "d"\norpo = "e"\n')
    assert generate.read_policy("trl-9") == {"methods": {"sft": "a", "kto": "d", "orpo": "e"}}


@pytest.mark.parametrize("name", stacks.names())
def test_every_argument_is_stated_or_omitted_for_a_reason(name: str) -> None:
    stack = stack_of(name)
    for config in stack.configs:
        stated, omitted = set(stack.base_arguments(config)), set(stack.omitted(config))
        assert stated | omitted == set(stack.fields(config))
        assert not stated & omitted
    policy = set(stack.table["policy"]["omitted"])
    used = {name for config in stack.configs for name in stack.omitted(config)}
    assert policy <= used, "no class has one of the omitted names"
    for config in stack.configs:
        fields = stack.fields(config)
        assert all(name in policy or fields[name].deprecated for name in stack.omitted(config))
    assert all(len(reason) > 8 for config in stack.configs for reason in stack.omitted(config).values())


@pytest.mark.parametrize("name", stacks.names())
def test_no_deprecated_or_secret_argument_is_stated(name: str) -> None:
    stack = stack_of(name)
    for config in stack.configs:
        stated = stack.base_arguments(config)
        assert [field for field, facts in stack.fields(config).items() if facts.deprecated and field in stated] == []
        assert [field for field in stated if field in ("hub_token", "push_to_hub_token", "local_rank")] == []


@pytest.mark.parametrize("name", stacks.names())
def test_a_default_that_depends_on_the_machine_is_decided(name: str) -> None:
    stack = stack_of(name)
    base = stack.table["policy"]["base"]
    assert isinstance(base, dict)
    assert set(base) <= set(stack.base_arguments())
    for config in stack.configs:
        decided = {**base, **stack.omitted(config)}
        undecided = [
            field.name for field in stack.fields(config).values() if field.machine and field.name not in decided
        ]
        # `dataloader_pin_memory` is true by default, which is right on a GPU; for a CPU, the compiler sets it to false.
        assert undecided == ["dataloader_pin_memory"]


@pytest.mark.parametrize("name", stacks.names())
def test_every_method_has_a_class_and_its_losses(name: str) -> None:
    stack = stack_of(name)
    for method in METHODS:
        fields = stack.fields(stack.config(method))
        losses = stack.losses(method)
        assert "loss_type" in fields or not losses  # a class may inherit an argument without using it
        choices = fields["loss_type"].choices if losses else ()
        # `chunked_nll` is a deprecated alias of `nll`; `alphapo` only sets `simpo` and `cpo_alpha = 0`
        others = {"chunked_nll", "alphapo"}
        assert not choices or set(losses.values()) == set(choices) - others
        default = fields["loss_type"].effective if losses else []
        assert set(default if isinstance(default, list) else [default]) <= set(losses.values())
    assert {stack.config(method) for method in METHODS} | {"transformers.TrainingArguments"} == set(stack.configs)
    reasons = {method: stack.refused(method) for method in METHODS}
    assert all(len(reason.split()) > 2 for reason in reasons.values() if reason is not None)
    assert None in reasons.values()


def test_every_method_is_trained_by_a_stack() -> None:
    for method in METHODS:
        assert None in [stack_of(name).refused(method) for name in stacks.names()], method


def test_a_method_without_a_class_is_refused_in_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = stack_of(stacks.DEFAULT)
    library = stack.table["library"]
    configs = {name: one for name, one in library["configs"].items() if name != stack.config("kto")}
    lacking = stacks.Stack(stack.name, {**stack.table, "library": {**library, "configs": configs}})
    monkeypatch.setattr(stacks, "_read", lambda name: lacking)
    found = checked(spec("method kto", train=trained("qwen2.5-3b on org/pairs")))
    assert only(found, "XP127").message.endswith(f"TRL {stack.pins['trl']} has no class KTOConfig")
    with pytest.raises(KeyError):
        lacking.config("grpoo")


@pytest.mark.parametrize("name", stacks.names())
def test_names_of_other_versions_lead_to_names_of_this_one(name: str) -> None:
    stack = stack_of(name)
    stated, fields = stack.base_arguments(), stack.fields()
    renames = stack.table["policy"]["renames"]
    assert isinstance(renames, dict)
    for old in renames:
        assert stack.rename(old) in {*fields, stack.arguments["dtype"]}
        assert old not in stated
    assert [old for old in stack.removed if old in stated or old in renames] == []
    assert stack.rename("learning_rate") is None


def test_the_names_that_moved_between_the_targets() -> None:
    new, old = stack_of("trl-1.16"), stack_of("trl-0.18")
    assert new.rename("gradient_checkpointing") == "activation_checkpointing"
    assert old.rename("activation_checkpointing") == "gradient_checkpointing"
    assert (new.rename("warmup_ratio"), old.rename("warmup_ratio")) == ("warmup_steps", None)
    assert new.rename("max_seq_length") == old.rename("max_seq_length") == "max_length"
    assert (new.rename("torch_dtype"), old.rename("dtype")) == ("dtype", "torch_dtype")
    assert new.rename("evaluation_strategy") == old.rename("evaluation_strategy") == "eval_strategy"


def test_the_tables_have_the_defaults_that_moved() -> None:
    new, old = stack_of("trl-1.16").fields(), stack_of("trl-0.18").fields()
    moved = {
        "optim": ("adamw_torch_fused", "adamw_torch"),
        "average_tokens_across_devices": (True, False),
        "bf16": (True, False),
        "logging_steps": (10, 500),
    }
    for name, (now, then) in moved.items():
        assert (new[name].effective, old[name].effective) == (now, then)
    assert new["bf16"].declared is None
    assert (new["activation_checkpointing"].declared, new["activation_checkpointing"].effective) == (None, True)
    assert "use_liger_kernel" in stack_of("trl-1.16").omitted()
    assert new["use_liger_kernel"].deprecated
    assert not old["use_liger_kernel"].deprecated


@pytest.mark.parametrize("name", stacks.names())
def test_what_the_language_calls_by_its_own_name_exists(name: str) -> None:
    stack = stack_of(name)
    fields = stack.fields()
    assert set(stack.optimizers.values()) <= set(fields["optim"].choices)
    assert set(stack.schedulers) == set(fields["lr_scheduler_type"].choices)
    strategies = fields["packing_strategy"].choices if "packing_strategy" in fields else ("wrapped",)
    assert not strategies or stack.packing == strategies  # TRL 0.24 names its two losses only in the help text
    for meaning, argument in stack.arguments.items():
        assert argument in fields or meaning == "dtype"
    assert (stack.facts.assistant_only_loss, stack.facts.eos_token) == (
        "assistant_only_loss" in fields,
        "eos_token" in fields,
    )


def test_schedules_name_the_keywords_that_reach_them() -> None:
    stack = stack_of("trl-1.16")
    cosine = stack.schedulers["cosine_with_min_lr"]
    assert cosine == {"required": [], "optional": {"min_lr": None, "min_lr_rate": None, "num_cycles": 0.5}}
    assert stack.schedulers["warmup_stable_decay"]["required"] == ["num_decay_steps"]
    assert stack.schedulers["linear"] == {"required": [], "optional": {}}
    # `get_scheduler` of transformers does not pass the keyword `timescale` to this schedule
    assert stack_of("trl-0.18").schedulers["inverse_sqrt"]["optional"] == {}


def test_the_tables_have_the_keys_of_launch_files() -> None:
    new, old = stack_of("trl-1.16"), stack_of("trl-0.18")
    assert {"fsdp_version", "fsdp_reshard_after_forward"} <= new.keys("fsdp_config")
    assert not {"fsdp_version", "fsdp_reshard_after_forward"} & old.keys("fsdp_config")
    assert ("fsdp_version" in new.keys("fsdp_config"), "fsdp_version" in old.keys("fsdp_config")) == (
        new.facts.fsdp2,
        old.facts.fsdp2,
    )
    assert ("parallelism_config" in new.keys("accelerate"), "parallelism_config" in old.keys("accelerate")) == (
        new.facts.parallelism_config,
        old.facts.parallelism_config,
    )
    assert "parallelism_config_dp_replicate_size" in new.keys("parallelism_config")
    assert {"deepspeed_config_file", "zero3_init_flag"} <= new.keys("deepspeed_config")
    assert {"gradient_clipping", "train_batch_size", "zero_optimization"} <= new.keys("deepspeed")
    assert not {"amp", "elasticity", "gradient_clip"} & new.keys("deepspeed")
    assert {"round_robin_gradients", "allgather_bucket_size"} <= new.keys("zero_optimization") & old.keys(
        "zero_optimization"
    )
    assert "mics_shard_size" in old.keys("zero_optimization") - new.keys("zero_optimization")
    assert new.zero_defaults()["reduce_bucket_size"] == 500_000_000
    assert "cpu_offload" not in new.zero_defaults()
    assert {"amp", "elasticity"} <= new.keys("deepspeed_removed")
    assert not old.keys("deepspeed_removed")
    assert "mics_shard_size" in new.keys("zero_removed")
    with pytest.raises(KeyError):
        new.keys("megatron")


@pytest.mark.parametrize("name", stacks.names())
def test_every_stack_answers_the_same_questions(name: str) -> None:
    one, other = stack_of(name), stack_of(stacks.DEFAULT)
    assert set(one.arguments) == set(other.arguments)
    assert set(one.table["policy"]) == set(other.table["policy"])


@pytest.mark.parametrize("name", stacks.names())
def test_pins_are_the_versions_that_the_table_was_read_from(name: str) -> None:
    stack = stack_of(name)
    versions = stack.table["library"]["versions"]
    assert isinstance(versions, dict)
    assert {package: stack.pins[package] for package in versions} == versions
    assert "deepspeed" not in stack.requirements()
    assert stack.requirements("zero")["deepspeed"] == stack.pins["deepspeed"]
    assert set(stack.requirements(*stack.table["policy"]["extras"])) == set(stack.pins)


@pytest.mark.parametrize("name", stacks.names())
def test_a_refusal_names_the_versions_of_its_own_stack(name: str) -> None:
    stack = stacks.load(name)
    assert stack is not None
    reasons = [*stack.lacking("optimizers").values(), *stack.lacking("schedules").values()]
    named = {one for reason in reasons for one in re.findall(r"transformers (\d+\.\d+)", reason)}
    assert named <= {".".join(stack.pins["transformers"].split(".")[:2])}


def test_the_training_extra_is_the_default_target() -> None:
    """The extra pins each package that every bundle needs. For an unpinned package, pip would install the newest
    version for its Python, and a bundle would refuse to start with it.
    """
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        train = tomllib.load(file)["project"]["optional-dependencies"]["train"]
    stack = stack_of(stacks.DEFAULT)
    assert set(train) <= {f"{package}=={version}" for package, version in stack.pins.items()}
    needed = {*stack.requirements(), "deepspeed", "liger-kernel"}
    assert needed <= {one.partition("==")[0] for one in train}


def test_base_arguments_belong_to_the_caller() -> None:
    stack = stack_of("trl-1.16")
    config = stack.base_arguments()["accelerator_config"]
    assert isinstance(config, dict)
    config["split_batches"] = True
    assert stack.base_arguments()["accelerator_config"] != config


def test_loading_a_target_parses_no_toml() -> None:
    code = (
        "import sys; from xpc.compiler import stacks; stacks.load('trl-1.16').base_arguments(); "
        "print(sorted({'tomllib', 'toml', 'typing_extensions', 'xpc.compiler.stacks.introspect'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", stacks.names())
def test_the_sources_that_speak_of_a_state_are_those_of_families_that_have_one(name: str) -> None:
    """A table lists the model families with a recurrent state. Whether a family of the registry has one is measured;
    for other families, it is inferred from transformers' source code. For each measured family, the source code leads
    to the same answer.
    """
    stack = stack_of(name)
    there = {family for family in registry.families() if not stack.lacks_family(family)}
    state = {*stack.facts.families_stateful, *stack.facts.families_convolving} & there
    assert set(stack.carrying) & there == state
    assert set(stack.carrying) - there


def test_a_family_that_is_newer_than_every_stack_is_in_none_of_them() -> None:
    """A stack knows every `model_type` of its transformers. If a stack gets a newer transformers, the families that it
    now knows must be removed from the registry's table of newer families.
    """
    newer = build.read("families.toml")["newer"]
    assert "sarvam_moe" in newer
    for stack in stacks.every():
        assert [one for one in newer if not stack.lacks_family(one)] == []
        assert not stack.lacks_family("qwen2")
    assert not stack_of("trl-1.16").lacks_family("hy_v4")  # not in the registry
    assert stack_of("trl-0.18").lacks_family("hy_v4")
