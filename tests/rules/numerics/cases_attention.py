"""Cases of attention, packing and families (XP31x, XP32x, XP34x)."""

from __future__ import annotations

import json

from case_support import Case, on_cpu, spec, trained
from cases_numerics import PASCAL, SMALL, VOLTA, extra
from compile_support import CONFIG

MASK = "gbs=128 micro=8 packing(isolate=mask)"
"""Eight rows of 1024 tokens: as long as a mask over all of them goes untold."""
PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")
PACKED = "gbs=128 micro=16 packing"


def family(model_type: str, **more: object) -> dict[str, str]:
    """A model's folder whose configuration names a family; its sizes are not counted."""
    return {"model/config.json": json.dumps({"model_type": model_type, "num_local_experts": 1, **more})}


COUNTED = {
    "num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 512, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 4096,
}  # fmt: skip
"""Sizes of a family whose parameters are counted."""


def of(*more: str, batch: str = "gbs=128 micro=8", **others: str) -> str:
    """A spec of the model in that folder."""
    return spec(*more, train='"model" on alpaca for 3 epochs', batch=batch, **others)


ATTENTION: tuple[Case, ...] = (
    Case("XP314", spec("model(attn=flash3)", hardware="8 x b200"), spec("model(attn=flash2)", hardware="8 x b200")),
    Case(
        "XP314",
        spec("model(attn=flash3)", hardware=VOLTA, precision="fp16"),
        spec("model(attn=flash3)", hardware="8 x a100-80gb", precision="fp16"),
        variant="flash3",
    ),
    Case(
        "XP314",
        spec("model(attn=flash2)", hardware=VOLTA, precision="fp16"),
        spec("model(attn=flash2)", hardware="8 x a10", precision="fp16"),
        variant="volta",
    ),
    Case("XP314", on_cpu("model(attn=flash2)"), on_cpu("model(attn=sdpa)"), variant="cpu"),
    Case("XP314", spec("model(attn=flash2)", precision="fp32"), spec("model(attn=flash2)"), variant="fp32"),
    Case(
        "XP315",
        spec("model(attn=sdpa)", train=trained("gemma-2-2b on alpaca")),
        spec("model(attn=eager)", train=trained("gemma-2-2b on alpaca")),
    ),
    Case(
        "XP315",
        spec("model(attn=sdpa)", "target trl-0.18", train=trained("gemma-2-2b on alpaca")),
        spec("model(attn=eager)", "target trl-0.18", train=trained("gemma-2-2b on alpaca")),
        variant="soft-cap",
    ),
    Case(
        "XP315",
        spec("model(attn=flex)", train=trained("falcon-7b on alpaca")),
        spec("model(attn=sdpa)", train=trained("falcon-7b on alpaca")),
        variant="flex",
    ),
    Case(
        "XP315",
        of("model(attn=flash2)"),
        of("model(attn=eager)"),
        family("gpt_oss", **COUNTED),
        variant="of-the-hub",
    ),
    Case(
        "XP315",
        of("model(attn=flex)", "target trl-0.18"),
        of("model(attn=flex)", "target trl-1.16"),
        family("nemotron"),
        variant="older-target",
    ),
    Case(
        "XP315",
        spec("model(attn=flash2)", train="openai/gpt-oss-20b on alpaca for 3 epochs"),
        spec("model(attn=eager)", train="openai/gpt-oss-20b on alpaca for 3 epochs"),
        variant="by-name",
    ),
    Case(
        "XP336",
        spec("model(attn=flex)", hardware=PASCAL, precision="fp32", train=SMALL),
        spec("model(attn=flex)", hardware=VOLTA, precision="fp32", batch="gbs=128 micro=8"),
    ),
    Case("XP316", on_cpu("model(attn=flex)"), on_cpu("model(attn=sdpa)")),
    Case("XP319", spec(batch="gbs=128 micro=1 seq=64Ki"), spec(batch="gbs=128 micro=1 seq=32Ki")),
    Case("XP340", spec("model(attn=flash3)", "target trl-0.18"), spec("model(attn=flash2)", "target trl-0.18")),
    Case(
        "XP341",
        spec("model(attn=flash3)", train='"model" on alpaca for 3 epochs', batch="gbs=128 micro=16 seq=512"),
        spec("model(attn=flash2)", train='"model" on alpaca for 3 epochs', batch="gbs=128 micro=16 seq=512"),
        {"model/config.json": json.dumps({**CONFIG, "attention_dropout": 0.1})},
    ),
    Case(
        "XP342",
        spec("target trl-0.18", train=trained("smollm3-3b on alpaca")),
        spec(train=trained("smollm3-3b on alpaca")),
    ),
    Case("XP343", of(batch="gbs=128 micro=16"), of("target trl-0.18", batch="gbs=128 micro=16"), family("llama4_text")),
    Case(
        "XP343",
        of(),
        of(*extra("router_aux_loss_coef = 0.0")),
        family("granitemoe", router_aux_loss_coef=0.001),
        variant="balancing-loss",
    ),
    Case("XP106", spec("model(attn=flash)"), spec("model(attn=flash2)"), variant="attention"),
    Case("XP104", spec('model(attn="paged|sdpa")'), spec("model(attn=sdpa)"), variant="paged"),
    Case("XP104", spec('model(attn="paged|eager")'), spec("model(attn=eager)"), variant="paged-eager"),
    Case(
        "XP104",
        spec("model(attn=kernels-community/flash-attn2)"),
        spec("model(attn=flash2)"),
        variant="kernel-of-the-hub",
    ),
    Case("XP104", spec("model(attn=someone/attention)"), spec("model(attn=flash2)"), variant="unknown-kernel"),
)

PACKING: tuple[Case, ...] = (
    Case("XP310", spec(batch="gbs=128 micro=8 packing"), spec(batch=MASK)),
    Case(
        "XP310",
        spec("target trl-0.18", batch="gbs=128 micro=8 packing # xpc: allow XP312 one stream is meant"),
        spec("target trl-0.18", batch="gbs=128 micro=8"),
        variant="older-target",
    ),
    Case(
        "XP311",
        spec(train=trained("falcon-7b on alpaca"), batch=MASK),
        spec(train=trained("gpt2 on alpaca"), batch=MASK),
    ),
    Case(
        "XP311",
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(isolate=mask)"),
        spec("model(attn=flash2)", batch=PACKED),
        variant="beside-flash",
    ),
    Case("XP311", of(batch=MASK), of(), family("jamba"), variant="state"),
    Case("XP311", of(batch=MASK), of(), family("qwen3_next"), variant="short-convolutions"),
    Case("XP311", of(batch=MASK), of("model(attn=flash2)", batch=PACKED), family("afmoe"), variant="unaware"),
    Case(
        "XP311",
        of("target trl-0.24", batch=MASK, strategy="zero1"),
        of(batch=MASK),
        family("qwen2_moe"),
        variant="of-the-target",
    ),
    Case(
        "XP311",
        of("target trl-0.24", batch=MASK, strategy="zero1"),
        of(batch=MASK),
        family("stablelm"),
        variant="mixed",
    ),
    Case(
        "XP311",
        spec(batch="gbs=128 micro=8 packing(strategy=wrapped, isolate=mask)"),
        spec(batch="gbs=128 micro=8 packing(strategy=bfd, isolate=mask)"),
        variant="wrapped",
    ),
    Case(
        "XP312",
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(strategy=wrapped)"),
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(strategy=bfd)"),
    ),
    Case(
        "XP312",
        spec("model(attn=flash2)", "target trl-0.18", batch=PACKED),
        spec("model(attn=flash2)", "target trl-1.16", batch=PACKED),
        variant="older-target",
    ),
    Case(
        "XP312",
        spec("model(attn=flash2)", batch="gbs=128 micro=16 padding_free packing(strategy=wrapped)"),
        spec("model(attn=flash2)", batch="gbs=128 micro=16 padding_free packing(strategy=bfd)"),
        variant="flattened",
    ),
    Case(
        "XP370",
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(strategy=wrapped, isolate=flash)"),
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(strategy=bfd, isolate=flash)"),
    ),
    Case(
        "XP370",
        spec("model(attn=flash2)", "target trl-0.18", batch="gbs=128 micro=16 packing(isolate=flash)"),
        spec("model(attn=flash2)", "target trl-0.18", batch="gbs=128 micro=16"),
        variant="older-target",
    ),
    Case(
        "XP313",
        spec(batch="gbs=128 micro=8 packing(strategy=ffd, isolate=mask)"),
        spec(batch="gbs=128 micro=8 packing(strategy=bfd, isolate=mask)"),
    ),
    Case(
        "XP324",
        spec("eval(every=epoch)", "data(holdout=16)", batch="gbs=128 micro=8 packing.eval=true"),
        spec("eval(every=epoch)", "data(holdout=16)", batch="gbs=128 micro=8 packing(eval=true, isolate=mask)"),
    ),
    Case(
        "XP324",
        spec("model(attn=flash2)", "eval(every=epoch)", "data(holdout=16)", batch="gbs=128 micro=8 packing.eval=true"),
        spec(
            "model(attn=flash2)",
            "eval(every=epoch)",
            "data(holdout=16)",
            batch="gbs=128 micro=8 padding_free packing.eval=true",
        ),
        variant="flash",
    ),
    Case("XP317", spec(batch="gbs=128 micro=16 padding_free seq=2048"), spec(batch="gbs=128 micro=16 padding_free")),
    Case(
        "XP318",
        spec(train=trained("falcon-7b on alpaca"), batch="gbs=128 micro=16 padding_free"),
        spec(train=trained("gpt2 on alpaca"), batch="gbs=128 micro=16 padding_free"),
    ),
    Case(
        "XP320",
        of("model(attn=flash2)", batch=PACKED),
        of("model(attn=eager)", batch=MASK),
        family("gptj"),
    ),
    Case("XP320", of("model(attn=flash2)", batch=PACKED), of("model(attn=flash2)"), family("jamba"), variant="state"),
    Case(
        "XP320",
        of("model(attn=flash2)", batch=PACKED),
        of("model(attn=flash2)"),
        family("zamba2"),
        variant="state-of-another-family",
    ),
    Case(
        "XP320",
        spec("model(attn=flash2)", train="ibm-granite/granite-4.0-h-tiny on alpaca for 1 epochs", batch=PACKED),
        spec("model(attn=flash2)", train="MiniMaxAI/MiniMax-M2 on alpaca for 3 epochs", batch=PACKED),
        variant="called-otherwise",
    ),
    Case(
        "XP320",
        of("model(attn=flash2)", batch=PACKED),
        of("model(attn=flash2)"),
        family("qwen3_next"),
        variant="short-convolutions",
    ),
    Case(
        "XP320",
        of("model(attn=flash2)", "target trl-0.18", batch="gbs=128 micro=16 padding_free"),
        of("model(attn=flash2)", "target trl-1.16", batch="gbs=128 micro=16 padding_free"),
        family("cohere2"),
        variant="older-target",
    ),
    Case(
        "XP320",
        spec("model(attn=flash2)", train="ai21labs/Jamba-v0.1 on alpaca for 3 epochs", batch=PACKED),
        spec("model(attn=flash2)", train="ai21labs/Jamba-v0.1 on alpaca for 3 epochs"),
        variant="by-name",
    ),
    Case(
        "XP321",
        spec("model(attn=flash2)", batch="gbs=128 micro=1 padding_free"),
        spec("model(attn=flash2)", batch="gbs=128 micro=2 padding_free"),
    ),
    Case("XP322", spec(batch="gbs=128 micro=16 packing(isolate=mask)"), spec(batch=MASK)),
    Case("XP120", spec(*extra("use_cache = true")), spec(), variant="use-cache"),
    Case(
        "XP127",
        spec("method dpo", "model(attn=flash2)", train=PAIRS, batch="gbs=128 micro=16 padding_free"),
        spec("method dpo", "model(attn=flash2)", "target trl-0.18", train=PAIRS, batch="gbs=128 micro=16 padding_free"),
        variant="padding-free",
    ),
)

CASES: tuple[Case, ...] = (*ATTENTION, *PACKING)
