"""Lists without brackets, values of several words, and numbers in other notations. The suggested edit writes such a
value in the language's form.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited

from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.suggest.lines.notations import notation

HEAD = "xpc 1\ntrain qwen2.5-3b on alpaca for 2 epochs\n"
WRITTEN = [
    ("lora(rank=8, targets=q_proj,v_proj)", "lora(rank=8, targets=[q_proj, v_proj])"),
    ("lora(rank=8, targets=q_proj v_proj, dropout=0.1)", "lora(rank=8, targets=[q_proj, v_proj], dropout=0.1)"),
    ("lora { rank = 8, targets = q_proj, k_proj }", "lora { rank = 8, targets = [q_proj, k_proj] }"),
    ("lora {\n  targets = q_proj, k_proj\n}", "lora {\n  targets = [q_proj, k_proj]\n}"),
    ("optimizer adamw(betas=0.9 0.95)", "optimizer adamw(betas=[0.9, 0.95])"),
    ("optimizer adamw(betas=0.9, 0.95, lr=1e-5)", "optimizer adamw(betas=[0.9, 0.95], lr=1e-5)"),
    ("track wandb(name=my first run)", 'track wandb(name="my first run")'),
    ("track wandb {\n  name = my run\n}", 'track wandb {\n  name = "my run"\n}'),
    ("schedule cosine(warmup=5 pct)", "schedule cosine(warmup=5%)"),
    ("optimizer adamw(lr=1 e-5)", "optimizer adamw(lr=1e-5)"),
    ("optimizer adamw(lr=1x10^-5)", "optimizer adamw(lr=1e-5)"),
    ("optimizer adamw(lr=3*10**-4)", "optimizer adamw(lr=3e-4)"),
    ("optimizer adamw(lr=1e−5)", "optimizer adamw(lr=1e-5)"),
    ("hardware 8×h100-80gb", "hardware 8 x h100-80gb"),
    ("hardware 2 nodes x 8 h100-80gb", "hardware 8 x h100-80gb\nnodes 2"),
    ("hardware 16 x h100-80gb on 2 nodes", "hardware 8 x h100-80gb\nnodes 2"),
    ("batch { gbs = 64x2 }", "batch { gbs = 128 }"),
    ("launch slurm(partition=gpu, time=1d12h)", "launch slurm(partition=gpu, time=36h)"),
    ("precision 16-mixed", "precision fp16"),
    ("sweep { lr = 1e-5, 2e-5, 5e-5 }", "sweep { lr = [1e-5, 2e-5, 5e-5] }"),
    ("optimizer = adamw(lr=1e-5)", "optimizer adamw(lr=1e-5)"),
    ("optimizer adamw(clip=none)", "optimizer adamw(clip=0)"),
    ("strategy zero2_offload", "strategy zero2(offload=optimizer)"),
    ("save 'out/x'", 'save "out/x"'),
    ("gbs = 4 * 8 * 2", "gbs = 64"),
    ("gbs = 2 + 3 * 4", "gbs = 14"),
    ("gbs = 8 // 2", "gbs = 4"),
    ("gbs = 4×8×2", "gbs = 64"),
    ("seq = 1 << 12", "seq = 4096"),
    ("lora(rank=8, alpha=2*rank)", "lora(rank=8, alpha=16)"),
    ("lora(dropout=0,05)", "lora(dropout=0.05)"),
    ("lora(dropout=5%%)", "lora(dropout=0.05)"),
    ("schedule cosine(min_lr=0.1 * lr)", "schedule cosine(min_lr=10%)"),
    ("schedule cosine(warmup 3%)", "schedule cosine(warmup=3%)"),
    ("schedule = cosine with 3% warmup", "schedule=cosine\nwarmup=3%"),
    ("optimizer adamw(1e-5)", "optimizer adamw(lr = 1e-5)"),
    ("eval { every = each epoch }", "eval { every = epoch }"),
    ("launch local(nccl_timeout=1h30)", "launch local(nccl_timeout=90m)"),
    ("launch local(nccl_timeout=timedelta(minutes=30))", "launch local(nccl_timeout=30m)"),
    ("lora(targets=q_proj | v_proj)", "lora(targets=[q_proj, v_proj])"),
    ("model { tokens = <tool> }", 'model { tokens = ["<tool>"] }'),
    ("seed = ${SEED:-7}", "seed = 7"),
]


@pytest.mark.parametrize(("typed", "right"), WRITTEN)
def test_the_edit_writes_the_complete_value(typed: str, right: str) -> None:
    text = f"{HEAD}{typed}\n"
    found = [one for one in checked(text).problems if one.edits and one.code < "XP125"]
    assert len(found) == 1, found
    assert edited(text, found[0]) == f"{HEAD}{right}\n"


@pytest.mark.parametrize(
    ("typed", "help"),
    [
        ("lora(rank=8, alpha=2x)", "write the number of `alpha` itself: a spec has no arithmetic"),
        ("batch { gbs = 4 per gpu }", "write `micro=4` for the sequences of one process, or the total as `gbs`"),
        ("batch { gbs = 1M tokens }", "write the tokens divided by `seq`: `gbs` counts sequences"),
        (
            "hardware 8xh100",
            "write `hardware 8 x h100-80gb`, `hardware 8 x h100-nvl-94gb` or `hardware 8 x h100-pcie-80gb`",
        ),
        ("hardware 8 x h100-80gb, 2 nodes", "`hardware 8 x h100-80gb` and `nodes 2` for 16"),
        ("hardware 8 gpus", "write `hardware 8 x GPU`, with the name of your GPU"),
        ("hardware 2x8 h100-80gb", "write `8 x h100-80gb` for one machine, and `nodes 2` on its own line"),
        ("nodes 2 x 8", "write `nodes 2`; the GPUs of one node follow `hardware`"),
    ],
)
def test_what_is_not_clear_gets_a_help_without_an_edit(typed: str, help: str) -> None:
    found = [one for one in checked(f"{HEAD}{typed}\n").problems if help in (one.help or "")]
    assert len(found) == 1
    assert not found[0].edits


@pytest.mark.parametrize(
    ("typed", "help"),
    [
        ("lora(rank=8 dora)", "write `8, dora`"),
        ("lora(rank=8, targets=q_proj, use_dora)", "write `dora`"),
        ("method grpo(rewards=accuracy, use_vllm)", "write `vllm`"),
    ],
)
def test_the_next_setting_is_no_part_of_the_value(typed: str, help: str) -> None:
    assert any(help == one.help for one in checked(f"{HEAD}{typed}\n").problems)


@pytest.mark.parametrize(("typed", "right"), [("deduplicate", "unique"), ("stream", "streaming")])
def test_another_name_of_a_setting_is_not_taken_for_a_source(typed: str, right: str) -> None:
    text = f"xpc 1\ntrain qwen2.5-3b on talk for 100 steps\ndata talk {{\n  alpaca\n  {typed}\n}}\n"
    found = next(one for one in checked(text).problems if one.code == "XP101")
    assert edited(text, found) == text.replace(f"  {typed}\n", f"  {right}\n")


def test_a_part_of_a_layer_means_the_modules_in_it() -> None:
    text = f"{HEAD}lora(rank=8, targets=[attention])\n"
    found = next(one for one in checked(text).problems if one.code == "XP455")
    assert "targets = [k_proj, o_proj, q_proj, v_proj]" in edited(text, found)


def test_a_typo_of_a_name_whose_help_needs_a_number_is_reported() -> None:
    found = [
        one for one in checked(f"{HEAD}optimizer paged_adamw bet0sas=[0.9, 0.95]\n").problems if one.code == "XP101"
    ]
    assert len(found) == 1


def test_a_quoted_name_of_the_registry_is_a_folder() -> None:
    found = next(one for one in checked('train "qwen2.5-3b" on alpaca\n').problems if one.code == "XP118")
    assert found.help == "write `qwen2.5-3b` without quotes: it is a model of the registry; a quoted name is a folder"


@pytest.mark.parametrize(
    ("typed", "severity"),
    [("Qwen/Qwen2.5-7B-Instuct", "warning"), ("Qwen/Qwen2.5-7B-Instruct-AWQ", "note"), ("me/Qwen2.5-7B", "note")],
)
def test_only_a_typo_of_a_hub_id_is_a_warning(typed: str, severity: str) -> None:
    found = next(one for one in checked(f"train {typed} on alpaca with lora\n").problems if one.code == "XP109")
    assert found.severity == severity


def test_a_line_of_many_unknown_settings_is_not_searched_for_each_of_them() -> None:
    """A value of many words is not read, so the check of a long line of unknown settings is still fast."""
    assert notation(BY_PATH["lora.targets"], "q_proj" + " " * 400 + "v_proj") is None
    assert notation(BY_PATH["lora.targets"], "q_proj v_proj") == "[q_proj, v_proj]"


@pytest.mark.parametrize(
    "written", ["method sft quokka 3", 'save "out" limit 3', "launch slurm(array=0-3)", "quokka = 0-3"]
)
def test_the_value_of_an_unknown_name_is_not_reported_again(written: str) -> None:
    assert [one.code for one in checked(f"{HEAD}{written}\n").problems if one.severity == "error"] == ["XP101"]
