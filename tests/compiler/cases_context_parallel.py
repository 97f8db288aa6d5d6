"""Cases of context parallelism (XP414 to XP419, XP490, XP491)."""

from __future__ import annotations

from case_support import Case, spec
from cases_numerics import SMALL
from cases_strategy import extra

LINES = "gbs=128 micro=2"
PROMPTS = "qwen2.5-3b on deepmath-103k for 3 epochs"

CASES: tuple[Case, ...] = (
    Case("XP414", spec(strategy="ddp(context_parallel=2)", train=SMALL), spec(strategy="fsdp(context_parallel=2)")),
    Case(
        "XP414", spec(strategy="zero2(context_parallel=2)"), spec(strategy="fsdp(context_parallel=8)"), variant="zero"
    ),
    Case(
        "XP414",
        spec("target trl-0.18", strategy="fsdp1(context_parallel=2)"),
        spec("target trl-0.18", strategy="fsdp1(context_parallel=1)"),
        variant="target",
    ),
    Case("XP415", spec(strategy="fsdp(context_parallel=3)"), spec(strategy="fsdp(context_parallel=4)")),
    Case(
        "XP415",
        spec("nodes 2", strategy="hsdp(shard=2, context_parallel=2)", batch=LINES),
        spec("nodes 2", strategy="hsdp(shard=4, context_parallel=2)", batch=LINES),
        variant="one-shard",
    ),
    Case(
        "XP415",
        spec("nodes 2", strategy="hsdp(shard=2, context_parallel=4)", batch=LINES),
        spec("nodes 2", strategy="hsdp(shard=8, context_parallel=4)", batch=LINES),
        variant="of-a-group",
    ),
    Case(
        "XP107",
        spec(strategy="fsdp(context_parallel=0)"),
        spec(strategy="fsdp(context_parallel=1)"),
        variant="context-parallel",
    ),
    Case(
        "XP416",
        spec("model(attn=flash2)", strategy="fsdp(context_parallel=2)"),
        spec("model(attn=sdpa)", strategy="fsdp(context_parallel=2)"),
    ),
    Case(
        "XP417",
        spec(strategy="fsdp(context_parallel=2)", batch="gbs=128 micro=1 packing(isolate=mask)"),
        spec(strategy="fsdp", batch="gbs=128 micro=1 packing(isolate=mask)"),
    ),
    Case(
        "XP417",
        spec(strategy="fsdp(context_parallel=2)", batch="gbs=128 micro=16 padding_free"),
        spec(strategy="fsdp", batch="gbs=128 micro=16 padding_free"),
        variant="padding-free",
    ),
    Case(
        "XP418",
        spec(strategy="fsdp(context_parallel=2)", train="mistral-7b-instruct-v0.1 on infinity-instruct for 3 epochs"),
        spec(strategy="fsdp(context_parallel=2)", train="mistral-7b-instruct-v0.3 on infinity-instruct for 3 epochs"),
    ),
    Case(
        "XP419",
        spec("method grpo(rewards=[accuracy])", strategy="fsdp(context_parallel=2)", train=PROMPTS),
        spec("method grpo(rewards=[accuracy])", strategy="fsdp", train=PROMPTS),
    ),
    Case(
        "XP419",
        spec(
            "method dpo",
            strategy="fsdp(context_parallel=2)",
            train="qwen2.5-3b on ultrafeedback-binarized for 3 epochs",
        ),
        spec("method dpo", strategy="fsdp", train="qwen2.5-3b on ultrafeedback-binarized for 3 epochs"),
        variant="dpo",
    ),
    Case(
        "XP490",
        spec(extra("trl", "pad_to_multiple_of = 3"), strategy="fsdp(context_parallel=2)"),
        spec(extra("trl", "pad_to_multiple_of = 8"), strategy="fsdp(context_parallel=2)"),
    ),
    Case(
        "XP490",
        spec(extra("trl", "pad_to_multiple_of = 6"), strategy="fsdp(context_parallel=2)"),
        spec(extra("trl", "pad_to_multiple_of = 12"), strategy="fsdp(context_parallel=2)"),
        variant="unbalanced",
    ),
    Case(
        "XP120",
        spec(extra("accelerate", "parallelism_config_sp_size = 2"), strategy="fsdp(context_parallel=2)"),
        spec(strategy="fsdp(context_parallel=2)"),
        variant="cp-and-sp",
    ),
)
