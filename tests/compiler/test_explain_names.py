"""`xpc explain` answers for every name that `check` knows: settings, codes, choices, the registry, libraries."""

from __future__ import annotations

import pytest

from xpc.compiler import registry, stacks
from xpc.compiler.cli import COMMANDS, main
from xpc.compiler.explain.explain import explain
from xpc.compiler.language import schema
from xpc.compiler.language.codes import CODES
from xpc.compiler.methods import METHODS
from xpc.compiler.resolve import extras


def library_names() -> list[str]:
    """The arguments of every trainer on every target, and the keys of accelerate.yaml and deepspeed.json."""
    out: set[str] = set()
    for target in map(stacks.load, stacks.names()):
        assert target is not None
        for method in METHODS:
            if target.refused(method) is None:
                out |= set(target.fields(target.config(method)))
        for escape in ("accelerate", "deepspeed"):
            out |= extras.legal_names(target, escape) | extras.owned_names(target, escape, "sft")
        out |= {*target.renamed, *target.removed}
    return sorted(out)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([row.path for row in schema.TABLE] + [row.name for row in schema.TABLE], id="settings"),
        pytest.param(list(schema.CLAUSES), id="clauses"),
        pytest.param([name for row in schema.TABLE for name in row.choices], id="choices"),
        pytest.param(list(CODES), id="codes"),
        pytest.param(list(registry.model_names()), id="models"),
        pytest.param(list(registry.gpu_names()), id="gpus"),
        pytest.param(list(registry.dataset_names()), id="datasets"),
        pytest.param(list(schema.REWARDS), id="rewards"),
        pytest.param(library_names(), id="library names"),
        pytest.param(["master_port", "tokenizer_name", "sample_packing", "t4-16gb"], id="names of other tools"),
    ],
)
def test_every_name_is_explained(names):
    assert [name for name in names if not explain(name)] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("learning_rate", "trl-1.16: `optimizer.lr` decides it"),
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B on the Hub"),
        ("h100-80gb", "compute capability 9.0"),
        ("capybara", "trl-lib/Capybara"),
        ("accuracy", "method grpo(rewards=[accuracy])"),
        ("zero_optimization.sub_group_size", "`extra deepspeed` has"),
        ("warmup_ratio", "`warmup_steps` today"),
        ("hardware", "a100-80gb"),
        ("log_level", "console output only"),
    ],
)
def test_what_is_explained(name, text):
    assert text in (explain(name) or "")


def test_a_misspelt_command_names_those_that_are_there(capsys):
    assert main(["chek", "x.xp"]) == 2
    told = capsys.readouterr().err
    assert "did you mean `xpc check`?" in told
    assert told.count("report") == 0
    assert all(name in told for name in COMMANDS)


def test_a_name_of_two_things_is_told_as_both_and_a_choice_as_what_it_does() -> None:
    told = {name: explain(name) or "" for name in ("cosine", "kto", "full_shard", "fp8_config")}
    assert "a choice of `schedule`" in told["cosine"]
    assert "a reward function" in told["cosine"]
    assert METHODS["kto"].doc in told["kto"]
    assert "the same as `strategy fsdp(reshard=true)`" in told["full_shard"]
    assert "a mapping, which `extra accelerate` cannot write" in told["fp8_config"]
