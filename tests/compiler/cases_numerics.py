"""Cases of precision, attention, packing and kernels (XP3xx)."""

from __future__ import annotations

from case_support import Case, on_cpu, spec, trained

CASES: tuple[Case, ...] = (
    Case("XP301", spec(hardware="8 x t4"), spec(hardware="8 x t4", precision="fp32")),
    Case(
        "XP301",
        spec("model(dtype=bf16)", hardware="8 x t4", precision="fp16"),
        spec(hardware="8 x t4", precision="fp16"),
        variant="weights",
    ),
    Case("XP302", spec(hardware="8 x t4", precision="fp32 tf32"), spec(hardware="8 x t4", precision="fp32")),
    Case("XP303", on_cpu(precision="fp16"), on_cpu(precision="fp32")),
    Case("XP304", spec("model(dtype=fp16)", strategy="ddp", precision="fp16"), spec(strategy="ddp", precision="fp16")),
    Case("XP306", on_cpu(precision="bf16"), on_cpu(precision="bf16", strategy="ddp")),
    Case("XP305", spec("model(dtype=bf16)", strategy="ddp"), spec(strategy="ddp")),
    Case(
        "XP305",
        spec("model(dtype=bf16)", "optimizer adamw(lr=1e-6)", strategy="ddp"),
        spec("optimizer adamw(lr=1e-6)", strategy="ddp"),
        variant="small-rate",
    ),
    Case("XP310", spec(batch="gbs=128 micro=16 packing"), spec(batch="gbs=128 micro=16 packing(isolate=mask)")),
    Case(
        "XP311",
        spec(train=trained("falcon-7b on alpaca"), batch="gbs=128 micro=16 packing(isolate=mask)"),
        spec(train=trained("gpt2 on alpaca"), batch="gbs=128 micro=16 packing(isolate=mask)"),
    ),
    Case(
        "XP311",
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(isolate=mask)"),
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing"),
        variant="beside-flash",
    ),
    Case(
        "XP312",
        spec(batch="gbs=128 micro=16 packing(strategy=wrapped, isolate=mask)"),
        spec(batch="gbs=128 micro=16 packing(strategy=bfd, isolate=mask)"),
    ),
    Case(
        "XP312",
        spec("model(attn=flash2)", "target trl-0.18", batch="gbs=128 micro=16 packing"),
        spec("model(attn=flash2)", "target trl-1.16", batch="gbs=128 micro=16 packing"),
        variant="older-target",
    ),
    Case(
        "XP313",
        spec(batch="gbs=128 micro=16 packing(strategy=ffd, isolate=mask)"),
        spec(batch="gbs=128 micro=16 packing(strategy=bfd, isolate=mask)"),
    ),
    Case(
        "XP314",
        spec("model(attn=flash3)", hardware="8 x a100-80gb"),
        spec("model(attn=flash2)", hardware="8 x a100-80gb"),
    ),
    Case("XP314", spec("model(attn=flash2)", precision="fp32"), spec("model(attn=flash2)"), variant="fp32"),
    Case(
        "XP315",
        spec("model(attn=sdpa)", train=trained("gemma-2-2b on alpaca")),
        spec("model(attn=eager)", train=trained("gemma-2-2b on alpaca")),
    ),
    Case("XP316", on_cpu("model(attn=flex)"), on_cpu("model(attn=sdpa)")),
    Case("XP317", spec(batch="gbs=128 micro=16 padding_free seq=2048"), spec(batch="gbs=128 micro=16 padding_free")),
    Case(
        "XP318",
        spec(train=trained("falcon-7b on alpaca"), batch="gbs=128 micro=16 padding_free"),
        spec(train=trained("gpt2 on alpaca"), batch="gbs=128 micro=16 padding_free"),
    ),
    Case("XP319", spec(batch="gbs=128 micro=16 seq=64Ki"), spec(batch="gbs=128 micro=16 seq=32Ki")),
    Case("XP330", on_cpu("memory(liger)"), on_cpu()),
    Case("XP331", spec("memory(liger)", train=trained("gpt2 on alpaca")), spec(train=trained("gpt2 on alpaca"))),
    Case("XP332", on_cpu("memory(offload_activations)"), on_cpu()),
    Case("XP334", on_cpu("optimizer adamw8bit"), on_cpu("optimizer adamw")),
)
