"""Specs with adapters of every kind, or with frozen layers, compile to the right values for the runtime and the right
lines of spec.xp.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from case_support import ROW, spec
from compile_support import CONFIG, checked, compiled, errors, put

from xpc.compiler.language.schema import ADAPTERS

LLAMA = "llama-3.1-8b-instruct on infinity-instruct for 1 epochs"


def plan(*lines: str, **more: Any) -> dict[str, Any]:
    """Compile a spec with these lines; return its trainer_args.json."""
    found: dict[str, Any] = json.loads(compiled(spec(*lines, **more))["trainer_args.json"])
    return found


@pytest.mark.parametrize(
    ("method", "strategy", "target", "precision", "dtype"),
    [
        ("method sft", "zero3", "trl-1.16", "bf16", "bfloat16"),
        ("method sft", "zero3", "trl-1.16", "fp16", "float16"),
        ("method sft", "zero3", "trl-1.16", "fp32", "float32"),
        ("method sft", "zero2", "trl-1.16", "bf16", "float32"),
        ("method sft", "zero3", "trl-0.24", "bf16", "float32"),
        ("method dpo(precompute)", "zero2", "trl-1.16", "bf16", "bfloat16"),
        ("method dpo(precompute)", "zero2", "trl-1.16", "fp32", "float32"),
        ("method dpo(precompute)", "ddp", "trl-1.16", "bf16", "float32"),
        ("method dpo(precompute)", "zero2", "trl-0.24", "bf16", "float32"),
    ],
)
def test_adapters_have_the_dtype_to_which_deepspeed_casts_them(
    method: str, strategy: str, target: str, precision: str, dtype: str
) -> None:
    """Under ZeRO-3, DeepSpeed's zero.Init creates the base model in the dtype of `precision`, even if `model.dtype` is
    different. The adapters get the dtype of the base model. An engine that computes the reference before training casts
    adapters, too.
    """
    data = "ultrafeedback-binarized" if "dpo" in method else "infinity-instruct"
    train = f"qwen2.5-3b on {data} for 3 epochs"
    made = plan("lora", method, f"target {target}", train=train, strategy=strategy, precision=precision)
    assert made["lora"]["adapter_dtype"] == dtype


def test_experts_that_get_an_adapter_take_no_dropout() -> None:
    train = "qwen3-30b-a3b on infinity-instruct for 1 epochs"
    lora = plan("lora(targets=[q_proj], parameters=[experts.down_proj])", train=train)["lora"]
    assert (lora["parameters"], lora["dropout"]) == (["experts.down_proj"], 0)


def test_two_rates_are_transformers_groups_and_not_deepspeeds() -> None:
    def config(*lines: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(compiled(spec(*lines))["deepspeed.json"])
        return found

    assert config("lora")["optimizer"]["type"] == "AdamW"
    split = config("lora(lr_ratio=16)")
    assert "optimizer" not in split
    assert split["zero_allow_untested_optimizer"] is True


def test_a_floor_of_the_schedule_is_a_share_where_deepspeed_wraps_the_optimizer() -> None:
    kwargs = plan("lora(lr_ratio=16)", "schedule cosine(min_lr=1e-6)", "optimizer adamw(lr=1e-5)")["arguments"]
    assert kwargs["lr_scheduler_kwargs"] == {"min_lr_rate": pytest.approx(0.1)}
    kwargs = plan("lora(lr_ratio=16)", "schedule cosine(min_lr=20%)", "optimizer adamw(lr=1e-5)")["arguments"]
    assert kwargs["lr_scheduler_kwargs"] == {"min_lr_rate": pytest.approx(0.2)}


@pytest.mark.parametrize("floor", ["1e-6", "10%"])
def test_a_floor_is_a_rate_where_the_library_wants_one(floor: str) -> None:
    evaluated = ("data(holdout=5%)", "eval(every=10)")
    for name, argument in {"polynomial": "lr_end", "reduce_lr_on_plateau": "min_lr"}.items():
        made = plan(f"schedule {name}(min_lr={floor})", "optimizer adamw(lr=1e-5)", *evaluated, strategy="ddp")
        assert made["arguments"]["lr_scheduler_kwargs"][argument] == pytest.approx(1e-6)


def test_the_readme_says_what_is_trained() -> None:
    def readme(*lines: str, **more: Any) -> str:
        return compiled(spec(*lines, **more))["README.md"].decode()

    assert "| adapters | rotations of 16 inputs, dropout 0, on all-linear |" in readme("oft(block_size=16)")
    assert "lm\\_head trained completely; B matrices have 8 times the learning rate |" in readme(
        "lora(modules_to_save=[lm_head], lr_ratio=8)", train=LLAMA
    )
    assert "| trained parts | the last 2 layers (mlp), norm |" in readme(
        "freeze(except_last=2, layer_modules=[mlp], except_modules=[norm])"
    )


def test_the_readme_names_what_is_not_in_the_bundle(tmp_path: Path) -> None:
    """A user who takes the bundle to another machine must also take the folder of a local model, but not the copied
    rows.
    """
    root = put(tmp_path, {"rows.jsonl": ROW, "models/my_m/config.json": json.dumps(CONFIG)})
    local = compiled(spec(train='"models/my_m" on "rows.jsonl" for 1 epochs', batch="gbs=8 micro=1"), root)[
        "README.md"
    ].decode()
    assert (
        "\nmodels/my\\_m is not in this bundle. On another machine, these paths are relative to the folder in `XPC"
        in local
    )
    hub = compiled(spec(train='qwen2.5-0.5b on "rows.jsonl" for 1 epochs', batch="gbs=8 micro=1"), root)[
        "README.md"
    ].decode()
    assert "not in this bundle" not in hub


@pytest.mark.parametrize("one", ADAPTERS)
@pytest.mark.parametrize("other", ADAPTERS)
def test_a_childs_adapter_replaces_its_bases(one: str, other: str, tmp_path: Path) -> None:
    sizes = {
        "lora": "rank=8, alpha=8, dropout=0.25", "qlora": "rank=8, alpha=8, dropout=0.25",
        "oft": "block_size=8, dropout=0.25", "vera": "rank=8, dropout=0.25", "loha": "rank=8, alpha=8",
        "miss": "rank=8, dropout=0.25",
    }  # fmt: skip
    root = put(tmp_path, {"base.xp": f"{one}({sizes[one]})\n"})
    child = spec(other, strategy="zero3" if other == "vera" else "zero2").replace(
        "xpc 1\n", 'xpc 1\nextends "base.xp"\n'
    )
    lora = json.loads(compiled(child, root)["trainer_args.json"])["lora"]
    kinds = {"qlora": "lora"}
    usual = {"lora": 16, "qlora": 16, "vera": 256, "loha": 8, "miss": 64}
    same = kinds.get(one, one) == kinds.get(other, other)
    if "loha" not in (one, other):
        assert lora["dropout"] == 0.25
    assert (lora["kind"], lora["bits"]) == (kinds.get(other, other), 4 if other == "qlora" else None)
    if other == "oft":
        assert lora["block_size"] == (8 if one == "oft" else 32)
    else:
        assert lora["rank"] == (8 if same else usual[other])


@pytest.mark.parametrize("lines", [("lora", "oft"), ("qlora", "oft"), ("lora", "qlora", "oft")])
def test_adapters_are_one(lines: tuple[str, ...]) -> None:
    assert set(errors(checked(spec(*lines)))) == {"XP103"}


def test_fully_trained_modules_need_memory() -> None:
    def micro(line: str) -> int:
        text = f"xpc 1\ntrain llama-3.1-8b-instruct on infinity-instruct for 1 epochs\nhardware 1 x h100-80gb\n{line}\n"
        found = checked(text + "batch(gbs=256, seq=512)\nmodel(dtype=bf16)\nmemory(checkpointing)\n")
        assert found.spec is not None
        return found.spec.integer("batch.micro")

    assert micro("lora(modules_to_save=[embed_tokens, lm_head])") < micro("lora")
    assert micro("oft") <= micro("lora")
