"""The memory that a process needs for its model states (without any batch) follows from published formulas. If it
exceeds the GPU's memory, the spec does not compile.
"""

import pytest
from compile_support import checked, codes

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.load import load
from xpc.compiler.resolve.experiment import resolve
from xpc.compiler.rules.core.legality import error_codes
from xpc.compiler.rules.strategy.memory import least
from xpc.grammar.read import decode

SPEC = """xpc 1
train {model} on infinity-instruct for 1 epochs
hardware {hardware}
{strategy}
precision {precision}
batch gbs={gbs} micro=1
save "out/run"
{more}
"""


def messages(
    model: str, hardware: str, strategy: str = "strategy ddp", precision: str = "bf16", more: str = "", gbs: int = 64
) -> str:
    """The message of XP480 for a spec, with its location and help. Empty if XP480 does not report the spec."""
    text = SPEC.format(model=model, hardware=hardware, strategy=strategy, precision=precision, more=more, gbs=gbs)
    found = [one for one in checked(text).problems if one.code == "XP480"]
    assert len(found) < 2
    return f"{found[0].message}; {found[0].primary.text}; {found[0].help}" if found and found[0].primary else ""


P, TABLE, LORA = 7_615_616_512, 152_064 * 3_584, 2_523_136
"""Sizes of qwen2.5-7b: its parameters, those of its embedding, and those of adapters for each rank."""
BLOCK = 1 + 4 / 256
"""Bytes of an 8-bit state. bitsandbytes keeps the embedding's states in 32 bits."""


@pytest.mark.parametrize(
    ("strategy", "precision", "more", "bytes_"),
    [
        ("ddp", "bf16", "", 16 * P),
        ("ddp", "fp32", "", 16 * P),
        ("ddp", "bf16", "model(dtype=bf16)", 8 * P),
        ("zero1", "bf16", "", 4 * P + 12 * P / 2),
        ("zero2", "bf16", "", 2 * P + 14 * P / 2),
        ("zero3", "bf16", "", 16 * P / 2),
        ("fsdp", "bf16", "", 16 * P / 2),
        ("zero2", "fp32", "", 4 * P + 16 * P / 2),
        ("zero2(offload=optimizer)", "bf16", "", 2 * P + 2 * TABLE),
        ("ddp", "bf16", "optimizer adamw8bit", 8 * P + 2 * BLOCK * P + 2 * (4 - BLOCK) * TABLE),
        ("ddp", "bf16", "lora(rank=16)", 4 * P + 16 * 16 * LORA),
    ],
)  # fmt: skip
def test_the_closed_forms(strategy: str, precision: str, more: str, bytes_: float) -> None:
    settings = {"strategy": f"strategy {strategy}", "precision": precision, "more": more}
    text = SPEC.format(model="qwen2.5-7b", hardware="2 x h100-80gb", gbs=64, **settings)
    workspace = Workspace(".")
    spec, _ = resolve(load(decode(text.encode(), "t.xp")[0], workspace), workspace, error_codes)
    assert spec is not None
    assert least(spec) == pytest.approx(bytes_, rel=1e-6)


def test_specimens_get_a_strategy_that_fits() -> None:
    assert "strategy zero3" in messages("llama-3.1-70b-instruct", "16 x a100-80gb")
    assert "under ddp" in messages("llama-3.1-70b-instruct", "8 x a100-80gb", strategy="")
    # the spec states no strategy, and the plan chooses zero3, with which weights and optimizer states fit
    assert messages("llama-3.1-70b-instruct", "16 x a100-80gb", strategy="") == ""
    assert "strategy zero3(offload=cpu)" in messages("qwen2.5-7b", "1 x t4", precision="fp32")
    assert "zero3(offload=" in messages("llama-3.1-70b-instruct", "8 x a100-80gb")


def test_chosen_strategy_has_no_finding_while_the_spec_has_errors() -> None:
    header = "train qwen2.5-7b-instruct on no-robots with"
    assert codes(checked(f"{header} attn=flsh2\n"), "error") == ["XP106"]
    assert codes(checked(f"{header} zero1 attn=flsh2 8 x t4\n"), "error") == ["XP106", "XP480"]


@pytest.mark.parametrize(
    ("model", "hardware", "strategy", "more"),
    [
        ("qwen2.5-3b", "8 x h100-80gb", "strategy ddp", ""),
        ("qwen2.5-3b", "8 x v100-32gb", "strategy zero2", ""),
        ("llama-3.1-70b-instruct", "16 x h100-80gb", "strategy zero3", ""),
        ("llama-3.1-70b-instruct", "1 x a100-80gb", "strategy ddp", "qlora"),
        ("qwen2.5-7b", "1 x t4", "strategy zero3(offload=cpu)", ""),
        ("qwen2.5-7b-instruct", "1 x rtx-4090", "strategy ddp", "lora\nmodel(dtype=bf16)"),
    ],
)  # fmt: skip
def test_what_holds_is_not_refused(model: str, hardware: str, strategy: str, more: str) -> None:
    precision = "fp16" if "v100" in hardware else "fp32" if "t4" in hardware else "bf16"
    assert not messages(model, hardware, strategy, precision, more)


def test_the_help_holds() -> None:
    for hardware, model in (
        ("8 x a100-80gb", "qwen2.5-32b-instruct"),
        ("4 x a100-40gb", "qwen2.5-14b-instruct"),
        ("2 x rtx-4090", "qwen2.5-7b-instruct"),
        ("1 x rtx-4090", "qwen2.5-7b-instruct"),
    ):
        message = messages(model, hardware)
        strategy = message.partition("write `")[2].partition("`")[0]
        assert strategy.startswith("strategy "), message
        text = SPEC.format(model=model, hardware=hardware, strategy=strategy, precision="bf16", more="", gbs=64)
        assert "XP480" not in codes(checked(text)), (message, strategy)
