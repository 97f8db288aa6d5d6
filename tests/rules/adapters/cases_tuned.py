"""Cases of what is trained beside adapters, and of frozen layers (XP464 to XP472)."""

from __future__ import annotations

from case_support import Case, spec, trained

LLAMA = trained("llama-3.1-8b-instruct on infinity-instruct")
EXPERTS = {"train": trained("qwen3-30b-a3b on infinity-instruct"), "batch": "gbs=128 micro=1"}
PROMPTS = trained("qwen2.5-3b on deepmath-103k")
TOKENS = 'model(tokens=["<|think|>"])'
OLD = "target trl-0.18"
GALORE = "optimizer galore_adamw(targets=all-linear, rank=4)"
LAYERWISE = GALORE.replace("adamw", "adamw_layerwise")
ONE = {"hardware": "1 x h100-80gb", "strategy": "ddp", "batch": "gbs=16 micro=16"}

CASES: tuple[Case, ...] = (
    Case("XP464", spec("oft(alpha=16)"), spec("lora(alpha=16)")),
    Case("XP464", spec("lora(block_size=16)"), spec("oft(block_size=16)"), variant="block"),
    Case("XP464", spec("oft(rank=8, block_size=16)"), spec("oft(rank=8)"), variant="sizes"),
    Case("XP464", spec("lora(embedding_lr=1e-6)"), spec("lora(lr_ratio=16, embedding_lr=1e-6)"), variant="lora-plus"),
    Case("XP465", spec("oft(targets=[embed_tokens, q_proj])", OLD),
         spec("oft(targets=[embed_tokens, q_proj])")),
    Case(
        "XP465",
        spec("oft", train=trained("gpt2 on alpaca")),
        spec("lora", train=trained("gpt2 on alpaca")),
        variant="gpt2",
    ),
    Case("XP466", spec("lora(modules_to_save=[embed_token])", train=LLAMA),
         spec("lora(modules_to_save=[embed_tokens])", train=LLAMA)),
    Case("XP466", spec("freeze(except_last=2, layer_modules=[c_attn])"),
         spec("freeze(except_last=2, layer_modules=[self_attn])"), variant="freeze"),
    Case("XP467", spec("lora(modules_to_save=[lm_head])", OLD),
         spec("lora(modules_to_save=[lm_head])", OLD, train=LLAMA)),
    Case("XP468", spec("lora(dropout=0, parameters=[experts.down_proj])"),
         spec("lora(dropout=0, parameters=[experts.down_proj])", **EXPERTS)),
    Case("XP468", spec("lora(dropout=0, parameters=[experts.down_proj])", OLD, **EXPERTS),
         spec("lora(dropout=0, targets=[down_proj])", OLD, **EXPERTS), variant="apart"),
    Case("XP469", spec("lora(lr_ratio=16)", LAYERWISE, save='save "out/run" every=never', **ONE),
         spec("lora(lr_ratio=16)", GALORE, **ONE)),
    Case("XP470", spec("lora", "freeze(except_last=2)"), spec("freeze(except_last=2)")),
    Case("XP471", spec("freeze", "memory(checkpointing)"),
         spec("freeze(except_modules=[norm])", "memory(checkpointing)")),
    Case("XP471", spec("freeze(layer_modules=[mlp])"), spec("freeze(except_last=2, layer_modules=[mlp])"),
         variant="layers"),
    Case("XP475", spec("lora", TOKENS, train=LLAMA),
         spec("lora(modules_to_save=[embed_tokens, lm_head])", TOKENS, train=LLAMA)),
    Case("XP475", spec("freeze(except_last=2)", TOKENS), spec(TOKENS), variant="freeze"),
    Case("XP475", spec("method grpo(rewards=format, vllm)", TOKENS, train=PROMPTS),
         spec("method grpo(rewards=format)", TOKENS, train=PROMPTS), variant="vllm"),
    Case("XP474", spec('freeze(except_parameters=["model.(layers"])'),
         spec('freeze(except_parameters=["model.layers.3[0-5]."])')),
    Case("XP474", spec('freeze(except_parameters=["model.embed_tokens.weight[:32000]"])'),
         spec('freeze(except_parameters=["model.embed_tokens.weight$"])'), variant="range"),
    Case("XP472", spec("freeze(except_last=40)"), spec("freeze(except_last=4)")),
    Case("XP473", spec("lora(dora)", **EXPERTS), spec("lora(dora, targets=[q_proj])", **EXPERTS)),
    Case("XP456", spec("lora(lr_ratio=0)"), spec("lora(lr_ratio=16)"), variant="lr-ratio"),
    Case("XP460", spec("lora(dropout=0.05, targets=[q_proj], parameters=[experts.down_proj])", **EXPERTS),
         spec("lora(targets=[q_proj], parameters=[experts.down_proj])", **EXPERTS), variant="parameters"),
)  # fmt: skip
