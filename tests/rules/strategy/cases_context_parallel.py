"""Cases of context parallelism (XP414 to XP419, XP490, XP495 to XP498)."""

from __future__ import annotations

from case_support import Case, spec
from cases_numerics import SMALL
from cases_strategy import extra

LINES = "gbs=128 micro=2"
WEIGHED = "gbs=128 micro=16 mean=local_tokens"
ON_CPUS = {"hardware": "4 x cpu", "precision": "fp32", "batch": "gbs=8 micro=2 mean=local_tokens"}
WINDOWS = "mistral-7b-instruct-v0.1 on infinity-instruct for 3 epochs"
HALF = "qwen2.5-0.5b on infinity-instruct for 3 epochs"
PROMPTS = "qwen2.5-3b on deepmath-103k for 3 epochs"

CASES: tuple[Case, ...] = (
    Case("XP414", spec(strategy="ddp(context_parallel=2)", train=SMALL), spec(strategy="fsdp(context_parallel=2)")),
    Case(
        "XP414",
        spec("target trl-0.24", strategy="zero1(context_parallel=2)", train=SMALL),
        spec(strategy="zero1(context_parallel=2)", train=SMALL, batch=WEIGHED),
        variant="zero",
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
        spec(strategy="zero1(context_parallel=2)", **ON_CPUS),
        spec(strategy="zero1(context_parallel=4)", **ON_CPUS),
        variant="groups-of-cpus",
    ),
    Case(
        "XP416",
        spec("model(attn=eager)", strategy="zero2(context_parallel=2)", batch=WEIGHED),
        spec("model(attn=flash2)", strategy="zero2(context_parallel=2)", batch=WEIGHED),
        variant="zero",
    ),
    Case(
        "XP495",
        spec(strategy="zero3(context_parallel=2)", train="falcon-7b on oasst-guanaco for 3 epochs", batch=WEIGHED),
        spec(strategy="zero3(context_parallel=2)", batch=WEIGHED),
    ),
    Case(
        "XP495",
        spec(strategy="zero3(context_parallel=8)", train=HALF, batch=WEIGHED),
        spec(strategy="zero3(context_parallel=2)", train=HALF, batch=WEIGHED),
        variant="heads",
    ),
    Case(
        "XP496",
        spec("method sft(loss=dft)", strategy="zero2(context_parallel=2)", batch=WEIGHED),
        spec("method sft(loss=nll)", strategy="zero2(context_parallel=2)", batch=WEIGHED),
    ),
    Case(
        "XP496",
        spec(extra("trl", "label_smoothing_factor = 0.1"), strategy="zero2(context_parallel=2)", batch=WEIGHED),
        spec(strategy="zero2(context_parallel=2)", batch=WEIGHED),
        variant="smoothing",
    ),
    Case(
        "XP497", spec(strategy="zero2(context_parallel=2)"), spec(strategy="zero2(context_parallel=2)", batch=WEIGHED)
    ),
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
        "XP498",
        spec(strategy="zero3(reduce_scatter=false, context_parallel=2)", batch=WEIGHED),
        spec(strategy="zero3(context_parallel=2)", batch=WEIGHED),
    ),
    Case(
        "XP490",
        spec(extra("trl", "pad_to_multiple_of = 11"), strategy="zero2(context_parallel=2)", batch=WEIGHED),
        spec(extra("trl", "pad_to_multiple_of = 12"), strategy="zero2(context_parallel=2)", batch=WEIGHED),
        variant="zero",
    ),
    Case(
        "XP418",
        spec(strategy="zero3(context_parallel=2)", train=WINDOWS, batch=WEIGHED),
        spec(strategy="zero3(context_parallel=2)", train=WINDOWS.replace("0.1", "0.3"), batch=WEIGHED),
        variant="zero",
    ),
    Case(
        "XP120",
        spec(extra("accelerate", "parallelism_config_sp_size = 2"), strategy="fsdp(context_parallel=2)"),
        spec(strategy="fsdp(context_parallel=2)"),
        variant="cp-and-sp",
    ),
)
