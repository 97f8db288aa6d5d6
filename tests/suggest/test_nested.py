"""Nested mappings of JSON, YAML and Python become settings, even if their blocks are those of other tools."""

from __future__ import annotations

import pytest
from compile_support import checked, edited

from xpc.compiler.suggest.lines.nested import members, members_of_yaml
from xpc.compiler.suggest.pasted_blocks import joined

LINE = "xpc 1\ntrain qwen2.5-3b on alpaca\n"


def test_members_of_nested_mappings_are_dotted():
    text = '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "betas": [0.9, 0.95],}'
    assert members(text) == [
        ("zero_optimization.stage", "3"),
        ("zero_optimization.offload_param.device", '"cpu"'),
        ("betas", "[0.9, 0.95]"),
    ]
    lines = ["optim:", "  lr: 1e-5  # ours", "  params: {eps: 1e-8}", "targets:", "- q_proj", "- v_proj"]
    assert members_of_yaml(lines) == [
        ("optim.lr", "1e-5"),
        ("optim.params.eps", "1e-8"),
        ("targets", "[q_proj, v_proj]"),
    ]


@pytest.mark.parametrize(
    "text", ['{"a": [{"b": 1}]}', "{a}", '{"a": }', "[1]", '{"a": 1', '{"a" 1}', "{" * 20 + "}" * 20]
)
def test_other_texts_have_no_members(text):
    assert members(text) is None


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ('{"zero_optimization": {"stage": 2, "overlap_comm": true}}', "strategy=zero2\noverlap_comm"),
        ('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}', "strategy=zero3\noffload=cpu"),
        ("gradient_checkpointing_kwargs:\n  use_reentrant: false", "checkpointing(reentrant=false)"),
        ("actor:\n  optim:\n    lr: 1e-6\n  grad_clip: 1.0", "lr=1e-6\nclip=1.0"),
        ('{"lr": 1e-5, "lora": {"r": 8, "alpha": 16}}', "lr=1e-5\nlora(rank=8, alpha=16)"),
    ],
)
def test_a_nested_mapping_becomes_settings(typed, right):
    text = f"{LINE}{typed}\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}{right}\n"


def test_an_argument_of_deepspeed_is_typed_where_the_strategy_reads_it():
    text = f"{LINE}steps_per_print = 10\n"
    assert not checked(text).problems[0].edits
    text = f"{LINE}strategy zero2\nsteps_per_print = 10\n"
    assert edited(text, checked(text).problems[0]) == f"{LINE}strategy zero2\nextra deepspeed(steps_per_print=10)\n"


@pytest.mark.parametrize(
    ("forms", "right"),
    [
        (["lora", "lora(rank=8)", "lora(alpha=16)"], ["lora(rank=8, alpha=16)"]),
        (["lora(rank=8)", "qlora"], ["qlora(rank=8)"]),
        (["qlora", "lora(bits=4)", "lr=1e-5"], ["qlora(bits=4)", "lr=1e-5"]),
        (["packing(eval=false)", "packing"], ["packing(eval=false)"]),
        (["optimizer adamw(lr=1e-5)", "optimizer(clip=1)"], ["optimizer adamw(lr=1e-5, clip=1)"]),
    ],
)
def test_a_clause_is_written_once(forms, right):
    assert joined(forms) == right


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("load_in_4bit: true\nadapter: qlora\nlora_r: 64", "qlora(rank=64)"),
        ("sample_packing: true\neval_sample_packing: false", "packing(eval=false)"),
        ("--use_peft --lora_r 32 --lora_alpha 16", "lora(rank=32, alpha=16)"),
    ],
)
def test_lines_about_one_clause_become_one_line(typed, right):
    text = f"{LINE}{typed}\n"
    for found in [one for one in checked(text).problems if one.edits][::-1]:
        text = edited(text, found)
    assert text == f"{LINE}{right}\n"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("memory { gradient_checkpointing_kwargs { use_reentrant = false } }", "`checkpointing(reentrant=false)`"),
        ("lora { lora_config { r = 16 } }", "`lora(rank=16)`"),
        ("strategy { stage = 0 }", "`strategy ddp`"),
        ("stage = 0", "`strategy ddp`"),
        ("rl = gdpo", "`extra trl(multi_objective_aggregation=normalize_then_sum)`"),
        ("method gdpo(rewards=accuracy)", "`extra trl(multi_objective_aggregation=normalize_then_sum)`"),
        ("data { input = input }", "`prompt = input`"),
        ("eval { data = identity }", "a hub id"),
    ],
)
def test_a_help_without_an_edit_names_what_to_write(line: str, named: str) -> None:
    first = checked(f"{LINE}{line}\n").problems[0]
    assert named in (first.help or "")
    assert first.edits == ()
