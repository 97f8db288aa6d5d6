"""Cases of precision, kernels and their names in `extra` (XP30x, XP33x, XP35x)."""

from __future__ import annotations

import json

from case_support import Case, on_cpu, spec, trained

SMALL = trained("qwen2.5-0.5b on infinity-instruct")  # whose states an older card holds
PASCAL = "8 x p100-16gb  # xpc: allow XP801 the wheels of CUDA 12.6 are installed"
VOLTA = "8 x v100-32gb  # xpc: allow XP801 the wheels of CUDA 12.6 are installed"

FALCON = {
    "model_type": "falcon", "alibi": True, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
    "vocab_size": 50304, "multi_query": False, "parallel_attn": False, "bias": True, "new_decoder_architecture": False,
}  # fmt: skip
"""The configuration of falcon-rw-1b."""


def extra(*lines: str, block: str = "trl") -> tuple[str, ...]:
    """An `extra` block."""
    return (f"extra {block} {{", *(f"  {line}" for line in lines), "}")


def selective(*more: str) -> tuple[str, ...]:
    """Recomputation that keeps what attention gave."""
    return ("memory {", "  checkpointing {", "    selective", *(f"    {one}" for one in more), "  }", "}")


PRECISION: tuple[Case, ...] = (
    Case("XP301", spec(hardware="8 x t4", train=SMALL), spec(hardware="8 x t4", train=SMALL, precision="fp32")),
    Case(
        "XP301",
        spec("model(dtype=bf16)", hardware="8 x t4", train=SMALL, precision="fp16"),
        spec(hardware="8 x t4", train=SMALL, precision="fp16"),
        variant="weights",
    ),
    Case(
        "XP301",
        spec(
            *extra('communication_data_type = "bf16"', block="deepspeed"),
            hardware="8 x t4",
            train=SMALL,
            precision="fp16",
        ),
        spec(
            *extra('communication_data_type = "fp32"', block="deepspeed"),
            hardware="8 x t4",
            train=SMALL,
            precision="fp16",
        ),
        variant="messages",
    ),
    Case(
        "XP301",
        spec(
            *extra('data_types.grad_accum_dtype = "bf16"', block="deepspeed"),
            hardware="8 x t4",
            train=SMALL,
            precision="fp16",
        ),
        spec(
            *extra('data_types.grad_accum_dtype = "fp32"', block="deepspeed"),
            hardware="8 x t4",
            train=SMALL,
            precision="fp16",
        ),
        variant="sums",
    ),
    Case(
        "XP323",
        spec(train='"model" on alpaca for 3 epochs', hardware="8 x t4", precision="fp32", batch="gbs=128 micro=8"),
        spec(train='"model" on alpaca for 3 epochs', hardware="8 x a10", precision="fp32", batch="gbs=128 micro=8"),
        {"model/config.json": json.dumps(FALCON)},
    ),
    Case(
        "XP302",
        spec(hardware="8 x t4", train=SMALL, precision="fp32 tf32"),
        spec(hardware="8 x t4", train=SMALL, precision="fp32"),
    ),
    Case("XP303", on_cpu(precision="fp16"), on_cpu(precision="fp32")),
    Case("XP304", spec("model(dtype=fp16)", strategy="ddp", precision="fp16"), spec(strategy="ddp", precision="fp16")),
    Case(
        "XP304",
        spec("model(dtype=fp16)", strategy="ddp"),
        spec("model(dtype=fp16)", strategy="fsdp"),
        variant="beside-bf16",
    ),
    Case(
        "XP326", spec("model(dtype=fp16)", "qlora", strategy="ddp"), spec("model(dtype=bf16)", "qlora", strategy="ddp")
    ),
    Case(
        "XP326",
        spec("model(dtype=fp16)", "oft", strategy="ddp"),
        spec("model(dtype=fp16)", "oft", strategy="fsdp"),
        variant="oft",
    ),
    Case("XP305", spec("model(dtype=bf16)", strategy="ddp"), spec(strategy="ddp")),
    Case(
        "XP305",
        spec("model(dtype=bf16)", "optimizer adamw(lr=1e-6)", strategy="ddp"),
        spec("model(dtype=bf16)", "optimizer adamw(lr=1e-6)", strategy="fsdp"),
        variant="small-rate",
    ),
    Case("XP306", on_cpu(precision="bf16"), on_cpu(precision="bf16", strategy="ddp")),
    Case("XP307", spec("model(dtype=bf16)", precision="fp32"), spec("model(dtype=bf16)")),
    Case(
        "XP307",
        spec("model(dtype=bf16)", precision="fp32", strategy="fsdp"),
        spec("model(dtype=bf16)", strategy="fsdp"),
        variant="fsdp",
    ),
    Case(
        "XP308",
        spec(hardware=PASCAL, train=SMALL, precision="fp16"),
        spec(hardware=PASCAL, train=SMALL, precision="fp16", strategy="ddp"),
    ),
    Case("XP106", spec("model(dtype=int8)"), spec("model(dtype=fp32)"), variant="dtype"),
    Case(
        "XP120",
        spec(*extra("fp16.enabled = true", block="deepspeed")),
        spec(precision="fp16"),
        variant="deepspeed-precision",
    ),
    Case(
        "XP120",
        spec(*extra("bf16.enabled = false", block="deepspeed")),
        spec(precision="fp32"),
        variant="deepspeed-mismatch",
    ),
    Case(
        "XP120",
        spec(*extra('mixed_precision = "fp16"', block="accelerate")),
        spec(precision="fp16"),
        variant="accelerate-precision",
    ),
)

KERNELS: tuple[Case, ...] = (
    Case("XP330", on_cpu("memory(liger)"), on_cpu()),
    Case("XP331", spec("memory(liger)", train=trained("gpt2 on alpaca")), spec(train=trained("gpt2 on alpaca"))),
    Case(
        "XP339",
        spec("memory(liger)", hardware=PASCAL, train=SMALL, precision="fp32"),
        spec("memory(liger)", hardware=VOLTA, precision="fp32", batch="gbs=128 micro=8"),
    ),
    Case("XP332", on_cpu("memory(offload_activations)"), on_cpu()),
    Case(
        "XP334",
        spec(
            "optimizer adalomo",
            hardware="cpu",
            strategy="ddp",
            precision="fp32",
            batch="gbs=4 micro=4",
            save='save "out/run" every=never',
        ),
        spec("optimizer lomo", hardware="cpu", strategy="ddp", precision="fp32", batch="gbs=4 micro=4"),
    ),
    Case("XP120", spec(*extra("use_liger_kernel = true")), spec("memory(liger)"), variant="liger"),
    Case("XP120", spec(*extra('loss_type = "chunked_nll"')), spec("method sft(loss=nll)"), variant="chunked-nll"),
    Case(
        "XP101",
        spec("memory {", "  checkpointing(reentrent=false)", "}"),
        spec("memory {", "  checkpointing(reentrant=false)", "}"),
        variant="checkpointing-keyword",
    ),
    Case("XP481", spec(*selective("reentrant")), spec(*selective())),
    Case("XP481", spec(*selective(), "lora", strategy="zero3"), spec(*selective(), "lora"), variant="adapters"),
    Case("XP482", spec(*selective(), "target trl-0.24"), spec(*selective())),
    Case("XP483", spec(*selective(), "model(attn=eager)"), spec(*selective(), "model(attn=sdpa)")),
    Case("XP344", spec("model(compile)", *extra("torch_compile = true")), spec("model(compile)")),
    Case("XP345", spec("model(compile)", "target trl-0.18"), spec("model(compile)")),
    Case(
        "XP345",
        spec("model(compile)", "target trl-0.24", strategy="fsdp"),
        spec("model(compile)", "target trl-0.24"),
        variant="fsdp",
    ),
)

EXTRA: tuple[Case, ...] = (
    Case(
        "XP350",
        spec(*extra("bf16_full_eval = true", "fp16_full_eval = true"), strategy="ddp"),
        spec(strategy="ddp"),
        variant="both",
    ),
    Case(
        "XP350",
        spec(*extra("bf16_full_eval = true"), precision="fp16"),
        spec(*extra("fp16_full_eval = false"), precision="fp16"),
        variant="zero",
    ),
    Case(
        "XP350",
        on_cpu(*extra("bf16_full_eval = true")),
        on_cpu(strategy="ddp"),
        variant="zero-on-cpu",
    ),
    Case("XP350", spec(*extra("bf16_full_eval = true"), strategy="ddp"), spec(strategy="ddp")),
    Case(
        "XP351",
        spec(
            "method dpo", *extra("label_smoothing_factor = 0.1"), train=trained("qwen2.5-3b on ultrafeedback-binarized")
        ),
        spec("method dpo(label_smoothing=0.1, loss=robust)", train=trained("qwen2.5-3b on ultrafeedback-binarized")),
    ),
    Case(
        "XP352",
        spec(*extra("label_smoothing_factor = 0.1"), "target trl-0.18", batch="gbs=256 micro=16"),
        spec(*extra("label_smoothing_factor = 0.1"), "target trl-0.18", batch="gbs=128 micro=16"),
    ),
    Case(
        "XP353",
        spec(*extra("torch_compile = true"), hardware=VOLTA, precision="fp16"),
        spec(*extra("torch_compile = true"), hardware="8 x a100-80gb"),
    ),
    Case(
        "XP353",
        spec(*extra("torch_compile = true"), hardware=PASCAL, train=SMALL, precision="fp32"),
        spec(hardware=PASCAL, train=SMALL, precision="fp32"),
        variant="before-volta",
    ),
    Case(
        "XP353",
        spec("model(compile)", hardware=VOLTA, precision="fp16"),
        spec("model(compile)"),
        variant="by-layer",
    ),
    Case(
        "XP354",
        spec(*extra("torch_compile = false", 'torch_compile_mode = "default"')),
        spec(*extra("torch_compile = true", 'torch_compile_mode = "default"')),
    ),
    Case(
        "XP355",
        spec(
            "model(attn=flash2)",
            *extra("torch_compile = true", 'torch_compile_mode = "reduce-overhead"'),
            batch="gbs=128 micro=16 packing",
        ),
        spec(
            "model(attn=flash2)",
            *extra("torch_compile = true", 'torch_compile_mode = "max-autotune-no-cudagraphs"'),
            batch="gbs=128 micro=16 packing",
        ),
    ),
    Case(
        "XP355",
        spec(*extra('torch_compile_backend = "cudagraphs"')),
        spec(*extra('torch_compile_backend = "inductor"')),
        variant="backend",
    ),
    Case(
        "XP356",
        spec(
            *extra('half_precision_backend = "apex"'),
            "target trl-0.18",
            strategy="ddp",
            train=SMALL,
            batch="gbs=128 micro=8",
        ),
        spec(
            *extra('half_precision_backend = "auto"'),
            "target trl-0.18",
            strategy="ddp",
            train=SMALL,
            batch="gbs=128 micro=8",
        ),
    ),
    Case(
        "XP356",
        spec(*extra('half_precision_backend = "apex"'), "target trl-0.24", precision="fp32"),
        spec(*extra('half_precision_backend = "apex"'), "target trl-0.18", precision="fp32"),
        variant="apex-fp32",
    ),
    Case(
        "XP356",
        spec(*extra("use_ipex = true"), "target trl-0.18"),
        spec(*extra("use_ipex = false"), "target trl-0.18"),
        variant="ipex",
    ),
    Case(
        "XP356",
        spec(
            *extra("half_precision_backend = cpu_amp"),
            "target trl-0.24",
            strategy="ddp",
            train=SMALL,
            batch="gbs=128 micro=8",
        ),
        spec(
            *extra("half_precision_backend = auto"),
            "target trl-0.24",
            strategy="ddp",
            train=SMALL,
            batch="gbs=128 micro=8",
        ),
        variant="cpu-amp",
    ),
    Case(
        "XP357",
        spec(*extra('torch_compile_backend = "inductr"')),
        spec(*extra('torch_compile_backend = "inductor"')),
    ),
    Case(
        "XP357",
        spec(*extra('torch_compile_mode = "fastest"')),
        spec(*extra('torch_compile_mode = "default"')),
        variant="mode",
    ),
    Case(
        "XP358",
        spec(*extra("downcast_bf16 = true", block="accelerate")),
        spec(*extra("downcast_bf16 = false", block="accelerate")),
    ),
)

CASES: tuple[Case, ...] = (*PRECISION, *KERNELS, *EXTRA)
