"""Numbers that the compiler decides if a spec does not state them, and their limits: a stated number is used, and a
number outside of the limits is refused.
"""

import json

import pytest
from case_support import on_cpu, spec, trained
from compile_support import checked, codes, compiled, errors, only

OLD = "target trl-0.18"


def arguments(text: str) -> dict:
    return json.loads(compiled(text)["trainer_args.json"])["arguments"]


@pytest.mark.parametrize(
    ("written", "wrong", "edge"),
    [
        ("lora(alpha={})", ("-5", "-0.001"), ("0.001", "16")),
        ("lora(dropout={})", ("-0.1", "1.5"), ("0", "1")),
        ("save {{\n  keep = {}\n}}", ("0", "-1"), ("1",)),
    ],
)
def test_a_number_outside_of_its_bounds_is_refused(written: str, wrong: tuple[str, ...], edge: tuple[str, ...]) -> None:
    for number in wrong:
        found = checked(spec(written.format(number), save=""))
        assert errors(found), number
    for number in edge:
        found = checked(spec(written.format(number), save=""))
        assert "XP107" not in codes(found), number


def test_an_alpha_below_zero_says_the_bound_and_changes_nothing_silently() -> None:
    found = only(checked(spec("lora(alpha=-5)")), "XP107")
    assert found.severity == "error"
    assert "alpha" in found.message


@pytest.mark.parametrize("length", ["-1 epochs", "-3 steps"])
def test_a_length_below_zero_is_refused(length: str) -> None:
    assert errors(checked(spec(train=f"qwen2.5-3b on infinity-instruct for {length}")))


@pytest.mark.parametrize(
    ("model", "hidden"), [("qwen2.5-3b", 2048), ("qwen2.5-0.5b", 896), ("llama-3.1-8b-instruct", 4096)]
)
def test_the_prefetch_bucket_of_zero3_is_what_transformers_puts_in(model: str, hidden: int) -> None:
    """For ZeRO-3's prefetch bucket, the compiler takes the same number as transformers (integrations/deepspeed.py):
    `0.9 * hidden_size * hidden_size`, truncated to an integer.
    """
    text = spec(train=trained(f"{model} on infinity-instruct"), strategy="zero3")
    zero = json.loads(compiled(text)["deepspeed.json"])["zero_optimization"]
    assert zero["stage3_prefetch_bucket_size"] == hidden * hidden * 9 // 10
    assert zero["stage3_param_persistence_threshold"] == 10 * hidden
    assert zero["reduce_bucket_size"] == hidden * hidden


def test_ddp_looks_for_unused_parameters_only_where_experts_may_go_unused() -> None:
    def looks(model: str, *more: str) -> object:
        text = spec(*more, train=trained(f"{model} on infinity-instruct"), hardware="2 x h200", strategy="ddp",
                    batch="gbs=4 micro=2", save='save "out/run" every=never')  # fmt: skip
        return arguments(text)["ddp_find_unused_parameters"]

    recomputed, kept = "memory(checkpointing)", "memory(checkpointing=false)"
    assert looks("qwen2.5-3b", kept) is False
    assert looks("qwen2.5-3b", recomputed) is False
    adapted = ("lora(targets=[q_proj])", "model(dtype=bf16)")
    assert looks("qwen3-30b-a3b", *adapted, kept) is True
    # an expert without tokens would make the other processes wait for its gradient forever
    assert looks("qwen3-30b-a3b", *adapted, recomputed) is True
    assert looks("qwen3-30b-a3b", *adapted, "memory(checkpointing(reentrant=true))") is False
    assert arguments(on_cpu(strategy="ddp"))["ddp_find_unused_parameters"] is False


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        ("hsdp", "HYBRID_SHARD"),
        ("hsdp(reshard=true)", "HYBRID_SHARD"),
        ("hsdp(reshard=false)", "HYBRID_SHARD_ZERO2"),
        ("hybrid_shard", "HYBRID_SHARD"),
        ("hybrid_shard_zero2", "HYBRID_SHARD_ZERO2"),
        ("fsdp1", "FULL_SHARD"),
        ("fsdp1(reshard=false)", "SHARD_GRAD_OP"),
    ],
)
def test_the_older_stack_names_what_is_gathered_again_after_the_forward_pass(strategy: str, name: str) -> None:
    """FSDP1 has four sharding strategies. With `SHARD_GRAD_OP` and `HYBRID_SHARD_ZERO2`, weights stay gathered between
    the forward and the backward pass. With `FULL_SHARD` and `HYBRID_SHARD`, they are sharded after the forward pass and
    gathered again (torch's `ShardingStrategy`).
    """
    text = spec(OLD, "nodes 2", strategy=strategy, batch="gbs=128 micro=8")
    yaml = compiled(text)["accelerate.yaml"].decode()
    assert f'fsdp_sharding_strategy: "{name}"\n' in yaml


@pytest.mark.parametrize(
    ("rate", "severity"), [("1e-6", "error"), ("1e-5", "error"), ("1.1e-5", "warning"), ("1e-3", "warning")]
)
def test_bf16_weights_under_ddp_are_an_error_up_to_a_rate(rate: str, severity: str) -> None:
    text = spec("model(dtype=bf16)", f"optimizer adamw(lr={rate})", strategy="ddp")
    assert only(checked(text), "XP305").severity == severity


@pytest.mark.parametrize(
    ("model", "target", "strategy", "block"),
    [
        ("mixtral-8x7b-instruct-v0.1", "trl-0.18", "zero3", "MixtralSparseMoeBlock"),
        ("mixtral-8x7b-instruct-v0.1", "trl-0.18", "zero2", None),
        ("qwen3-30b-a3b", "trl-0.18", "zero3", None),  # Qwen3's class runs every expert.
        ("mixtral-8x7b-instruct-v0.1", "trl-1.16", "zero3", None),  # The experts are one parameter.
    ],
)
def test_experts_that_run_for_their_tokens_alone_are_gathered_as_one(
    model: str, target: str, strategy: str, block: str | None
) -> None:
    text = spec(
        f"target {target}", "lora", train=trained(f"{model} on infinity-instruct"), strategy=strategy,
        hardware="16 x h200-141gb", batch="gbs=16 micro=1",
    )  # fmt: skip
    written = compiled(text)["accelerate.yaml"].decode()
    assert f'deepspeed_moe_layer_cls_names: "{block}"' in written if block else "moe_layer" not in written
