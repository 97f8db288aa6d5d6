"""Proofs of rules about precision, attention, packing and kernels."""

from __future__ import annotations

import json
from typing import Any

from case_support import spec, trained
from prove import Proof
from spec_parts import extra

KEPT: dict[str, Any] = {"keep": ("attn_implementation",)}
TEXT: dict[str, Any] = {"shape": "text"}
"""The argument of proofs for rows of text. Each row ends with the end token, which measurements count as the end of a
document.
"""


GRPO = "method grpo(rewards=[accuracy], generations=2, max_completion=8)"
PROMPTS = "qwen2.5-3b on deepmath-103k for 3 epochs"


def cpu(*more: str, hardware: str = "cpu", strategy: str = "ddp", precision: str = "fp32", **others: str) -> str:
    """A spec for the CPU. Proofs run the spec itself, not a CPU variant of it."""
    others.setdefault("batch", "gbs=4 micro=2")
    return spec(*more, hardware=hardware, strategy=strategy, precision=precision, **others)


EVALUATED = cpu("eval(every=1)", "data(holdout=16)", batch="gbs=4 micro=2 {}")


def selective(*more: str) -> str:
    """Lines of a spec with selective recomputation, which keeps the output of attention."""
    return "\n".join(["memory {", "  checkpointing {", "    selective", *(f"    {one}" for one in more), "  }", "}"])


SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048}  # fmt: skip
"""Sizes in the config.json of a local model. The compiler computes the model's parameter count from them."""


def family(model_type: str, **more: object) -> dict[str, str]:
    """A model folder. Its config.json has only what the proof needs: the model family and the number of experts."""
    return {"model/config.json": json.dumps({"model_type": model_type, "num_local_experts": 1, **more})}


def of(*more: str, batch: str = "gbs=128 micro=8", **others: str) -> str:
    """A spec that trains the model in the folder `model`."""
    return spec(*more, train='"model" on alpaca for 3 epochs', batch=batch, **others)


PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")
PAGED = extra("use_transformers_paged = true")

PRECISION: tuple[Proof, ...] = (
    Proof("P01", "XP301", needs="a GPU of compute capability 7.x, which emulates bf16 without a message"),
    Proof("P01", "XP301", case="XP301-messages", measure="precision.messages", expect={"bf16": True}, variant="messages"),
    Proof("P01", "XP301", case="XP301-sums", measure="precision.messages", expect={"bf16": True}, variant="sums"),
    Proof("P26", "XP323", measure="precision.alibi", expect={"rounded": True, "ampere": False}),
    Proof("P28", "XP325", at="init", shape="prompt", measure="precision.kept",
          text=cpu(extra("use_transformers_continuous_batching = true"), GRPO, precision="bf16", train=PROMPTS),
          legal=cpu(extra("use_transformers_continuous_batching = true"), GRPO, train=PROMPTS),
          expect={"narrowed": True}),
    Proof("P28", "XP325", at="init", shape="prompt", measure="precision.kept", target="trl-0.24",
          text=cpu(PAGED, GRPO, precision="bf16", train=PROMPTS),
          legal=cpu(PAGED, GRPO, hardware="1 x h100-80gb", train=PROMPTS),
          expect={"narrowed": True}, variant="paged"),
    Proof("P35", "XP575", at="train", shape="prompt", target="trl-0.24", steps=1,
          text=cpu(PAGED, GRPO, hardware="2 x cpu", train=PROMPTS), legal=cpu(GRPO, hardware="2 x cpu", train=PROMPTS),
          raises="AttributeError", match="no attribute 'config'"),
    Proof("P35", "XP575", at="train", shape="prompt", target="trl-0.24", steps=1,
          text=cpu(PAGED, GRPO, strategy="zero1", train=PROMPTS), legal=cpu(GRPO, strategy="zero1", train=PROMPTS),
          raises="AttributeError", match="_attn_implementation", variant="deepspeed"),
    Proof("P35", "XP575", at="train", shape="prompt", target="trl-0.24", steps=1,
          text=cpu(PAGED, GRPO, train=PROMPTS), legal=cpu(GRPO, train=PROMPTS),
          raises="RuntimeError", match=r"min\(\)", variant="cpu"),
    Proof("P02", "XP306", text=cpu(strategy="zero2", precision="bf16"), legal=cpu(precision="bf16"), raises="ValueError",
          match="support bf16/gpu"),
    Proof("P04", "XP350", case="XP350-both", raises="ValueError", match="for full eval, but not both"),
    Proof("P05", "XP302", raises="ValueError", match="--tf32 requires Ampere"),
    Proof("P06", "XP304", at="load", measure="scaler.unscale", raises="ValueError", match="unscale FP16 gradients"),
    Proof("P06", "XP304", case="XP304-beside-bf16", at="train", target="trl-0.18", measure="precision.finite",
          legal=spec("target trl-0.18", strategy="ddp"), expect={"finite": False, "dtype": "torch.float16"},
          common={"learning_rate": 1e-3}, variant="nan"),
    Proof("P06", "XP304", case="XP304-score-head", at="train", target="trl-0.18", measure="precision.head",
          expect={"finite": False}, legal=spec("target trl-0.18", "lora", "method reward", strategy="ddp", train=PAIRS),
          common={"learning_rate": 1e-3}, variant="score"),
    Proof("P38", "XP326", at="train", steps=1, text=cpu("model(dtype=fp16)", "oft", precision="bf16"),
          legal=cpu("model(dtype=bf16)", "oft", precision="bf16"), raises="RuntimeError", match="floating ScalarType"),
    Proof("P07", "XP305", case="XP305-small-rate", at="train", measure="precision.changed", steps=1,
          legal=spec("optimizer adamw(lr=1e-6)", strategy="ddp"), expect=lambda seen: seen["share"] < 0.2),
    Proof("P27", "XP307", case="XP307-fsdp", at="train", measure="precision.computed",
          text=spec("model(dtype=bf16)", precision="fp32", strategy="fsdp"), legal=spec(precision="fp32", strategy="fsdp"),
          expect={"computed": ["torch.bfloat16"], "mixed": False}, variant="fp32"),
    Proof("P09", "XP106", case="XP106-dtype", at="load", payload={"model.dtype": "int8"}, onto="legal",
          raises="ValueError", match="not a floating-point dtype"),
    Proof("P10", "XP303", at="init", text=cpu(precision="fp16"), legal=cpu(), measure="precision.amp",
          expect={"asked": True, "autocast": False, "scaler": False}),
    Proof("P19", "XP120", case="XP120-deepspeed-precision", at="deepspeed", onto="legal", text=spec(extra(
          "fp16.enabled = true", block="deepspeed")), legal=spec(), deepspeed={"fp16.enabled": True, "bf16.enabled": False},
          raises="ValueError", match="mismatch TrainingArguments"),
    Proof("P20", "XP350", at="train", text=cpu(extra("fp16_full_eval = true"), hardware="2 x cpu", strategy="zero2"),
          legal=cpu(hardware="2 x cpu", strategy="zero2"), raises="ValueError", match="mismatch TrainingArguments"),
    Proof("P20", "XP350", text=cpu(extra("bf16_full_eval = true"), strategy="zero2"), legal=cpu(), raises="ValueError",
          match="support bf16/gpu", variant="on-cpu"),
    Proof("P21", "XP120", case="XP120-accelerate-precision", text=spec(extra('mixed_precision = "fp16"', block="accelerate"),
          strategy="ddp"), legal=spec(strategy="ddp"), yaml={"mixed_precision": "fp16"}, measure="precision.mixed",
          onto="legal", expect={"exported": "fp16", "used": "bf16"}),
    Proof("P22", "XP308", measure="precision.deepspeed_fp16", expect={"asked": True, "supported": False}),
    Proof("P23", "XP358", at="launch", measure="precision.downcast", expect={"stated": True, "exported": None}),
)  # fmt: skip

PACKING: tuple[Proof, ...] = (
    Proof("A01", "XP310", case="XP310-older-target", at="init", measure="packing.attends", expect={"leaks": True}, **TEXT),
    Proof("A01", "XP322", needs="a GPU, because the cost of attention over a long row is time and memory", variant="cost"),
    Proof("A02", "XP311", at="load", measure="packing.leak", expect=lambda seen: seen["later"] > 1e-2),
    Proof("A02", "XP318", at="load", measure="packing.leak", expect=lambda seen: seen["later"] > 1e-2, variant="flat"),
    Proof("A03", "XP320", case="XP320-state", at="init", family="jamba", measure="packing.attends",
          expect={"leaks": True}, variant="state", **TEXT),
    Proof("A03", "XP311", case="XP311-state", at="init", family="jamba", measure="packing.attends",
          expect={"leaks": True}, variant="mask", **TEXT),
    Proof("A04", "XP320", case="XP320-short-convolutions", at="train", family="qwen3_next", raises="ValueError",
          match="can't keep packed sequences apart"),
    Proof("A04", "XP311", case="XP311-short-convolutions", at="train", family="qwen3_next", raises="ValueError",
          match="can't keep packed sequences apart", variant="mask"),
    Proof("A03", "XP320", measure="packing.flash", family="gptj", legal_family="gptj",
          expect=lambda seen: seen["later"] > 1e-2),
    Proof("A03", "XP320", target="trl-0.18", measure="packing.flash", family="olmoe", legal_family="cohere",
          text=of("model(attn=flash2)", batch="gbs=128 micro=16 padding_free"), files=family("olmoe"),
          legal=of("model(attn=flash2)"), expect=lambda seen: seen["later"] > 1e-2, variant="older-target"),
    Proof("A05", "XP311", case="XP311-wrapped", at="init", measure="packing.attends", expect={"leaks": True},
          variant="wrapped", **TEXT),
    Proof("A03", "XP320", case="XP320-by-name", at="init", family="jamba", measure="packing.attends",
          expect={"leaks": True}, variant="by-name", **TEXT),
    Proof("A42", "XP324", at="init", measure="packing.evaluated", expect={"leaks": True}, text=EVALUATED.format("packing.eval=true"),
          legal=EVALUATED.format("packing(eval=true, isolate=mask)"), **TEXT),
    Proof("A42", "XP324", at="init", measure="packing.evaluated", expect={"leaks": True}, target="trl-0.18",
          text=EVALUATED.format("packing.eval=true"), legal=EVALUATED.format("packing.eval=false"), variant="0.18", **TEXT),
    Proof("A05", "XP370", at="init", measure="packing.attends", expect={"leaks": True}, **TEXT),
    Proof("A05", "XP312", at="init", measure="packing.attends", expect={"leaks": True}, **TEXT),
    Proof("A06", "XP312", case="XP312-flattened", at="init", warns="padding_free=True.*'wrapped' packing strategy"),
    Proof("A07", "XP120", case="XP120-use-cache", at="load", measure="packing.cached", arguments={"use_cache": True},
          onto="legal", expect=lambda seen: seen["later"] > 1e-2),
    Proof("A10", "XP317", at="init", raises="ValueError", match="max_length", arguments={"max_length": 512}),
    Proof("A11", "XP321", at="init", warns="per_device_train_batch_size of 1", keep=("per_device_train_batch_size",)),
    Proof("A15", "XP126", case="XP126-packing", onto="legal", arguments={"packing": True}, raises="TypeError",
          match="packing"),
    Proof("A16", "XP127", case="XP127-padding-free", at="init", legal=spec("method dpo", "model(attn=flash2)", train=PAIRS),
          warns="padding_free=True.*temporarily unavailable"),
    Proof("A02", "XP311", case="XP311-unaware", at="init", family="afmoe", measure="packing.attends",
          legal=of(batch="gbs=128 micro=8"), expect={"leaks": True}, variant="unaware", **TEXT),
)  # fmt: skip

ATTENTION: tuple[Proof, ...] = (
    Proof("A18", "XP314", case="XP314-volta", needs="a GPU of compute capability 7.x and flash-attn"),
    Proof("A19", "XP314", case="XP314-flash3", needs="a GPU of compute capability 7.x and flash-attn-3"),
    Proof("A19", "XP314", needs="a Blackwell GPU and flash-attn-3", variant="blackwell"),
    Proof("A20", "XP314", case="XP314-cpu", at="load", text=cpu("model(attn=flash2)"), legal=cpu(), raises="ImportError",
          match="FlashAttention2 has been toggled on"),
    Proof("A21", "XP314", case="XP314-fp32", needs="a GPU of compute capability 8.0 or later and flash-attn"),
    Proof("A22", "XP341", measure="attention.dispatch", warns="Flash Attention 3 with dropout"),
    Proof("A23", "XP106", case="XP106-attention", at="load", legal=spec(), payload={"model.attn_implementation": "flash"},
          onto="legal", raises="ValueError", match='"flash"` is not supported', **KEPT),
    Proof("A24", "XP104", case="XP104-paged", at="load", payload={"model.attn_implementation": "paged|sdpa"}, onto="legal",
          warns=r"`paged\|` prefix is no longer needed"),
    Proof("A25", "XP104", case="XP104-paged-eager", at="train", payload={"model.attn_implementation": "paged|eager"},
          onto="legal", raises="ValueError", match="cache"),
    Proof("A26", "XP104", case="XP104-kernel-of-the-hub", at="load", legal=spec(), onto="legal",
          payload={"model.attn_implementation": "kernels-community/flash-attn2"}, raises="ImportError", match="kernels"),
    Proof("A27", "XP104", case="XP104-unknown-kernel", at="load", legal=spec(), onto="legal",
          payload={"model.attn_implementation": "someone/attention"}, raises="Exception", match="kernels-community|kernels"),
    Proof("A28", "XP315", at="load", raises="ValueError", match="scaled_dot_product_attention"),
    Proof("A30", "XP315", case="XP315-by-name", at="load", family="gpt_oss", raises="ImportError", match="kernels",
          variant="by-name", **KEPT),
    Proof("A37", "XP336", needs="a GPU of compute capability 6.x"),
    Proof("A29", "XP315", case="XP315-flex", at="load", raises="ValueError", match="flex_attention", **KEPT),
    Proof("A30", "XP315", case="XP315-of-the-hub", at="load", family="gpt_oss", raises="ImportError", match="kernels", **KEPT),
    Proof("A31", "XP315", case="XP315-soft-cap", measure="attention.soft_cap", expect=lambda seen: seen["error"] > 0.05),
    Proof("A29", "XP315", case="XP315-older-target", at="load", family="nemotron", raises="ValueError",
          match="flex_attention", legal=of("target trl-0.18"), variant="older-target", **KEPT),
    Proof("A30", "XP315", case="XP315-flash3-older", variant="flash3-older",
          needs="flash-attn-3; tests/stacks/test_stack_families.py computes the same attention in plain torch for each family"),
    Proof("A32", "XP319", at="load", measure="attention.past", expect={"beyond": True, "finite": True}),
    Proof("A33", "XP316", at="train", raises="NotImplementedError", match="backward on CPU", eager=True),
    Proof("A36", "XP481", at="init", text=cpu(selective("reentrant")), legal=cpu(selective()),
          raises="ValueError", match="requires non-reentrant"),
    Proof("A36", "XP481", case="XP481-adapters", at="init", text=cpu(selective(), "lora", strategy="zero3"),
          legal=cpu(selective(), "lora"), raises="ValueError", match="not supported with PEFT", variant="adapters"),
    Proof("A38", "XP340", at="load", legal=spec("target trl-0.18"), raises="ValueError", match="flash_attention_3",
          variant="flash3", **KEPT),
    Proof("A39", "XP342", at="load", family="smollm3", legal_family="llama", legal=spec("target trl-0.18"),
          raises="KeyError", match="smollm3"),
    Proof("A39", "XP342", case="XP342-newer-than-every-target", at="load", family="sarvam_moe", legal_family="llama",
          legal=spec(), raises="KeyError", match="sarvam_moe", variant="newer"),
    Proof("A46", "XP148", measure="experts.computed", raises="ValueError", match="non-empty list",
          text=of("target trl-0.18"), legal=of("target trl-0.18").replace('"model"', '"other"'), files={
              **family("granitemoehybrid", **SIZES, num_local_experts=0),
              "other/config.json": json.dumps({"model_type": "granitemoehybrid", **SIZES, "num_local_experts": 1}),
          }),
    Proof("A40", "XP343", at="train", family="llama4_text", legal=spec(), legal_family="llama",
          raises="AttributeError", match="last_hidden_state"),
    Proof("A40", "XP343", case="XP343-balancing-loss", at="train", family="granitemoe", raises="AttributeError",
          match="num_experts", variant="balancing-loss"),
    Proof("A40", "XP343", case="XP343-no-router", at="train", family="doge", raises="IndexError",
          match="out of range", variant="no-router"),
    Proof("A40", "XP343", case="XP343-balancing-loss-stated", at="train", family="glm4_moe", raises="AttributeError",
          match="num_experts", variant="balancing-loss-stated"),
)  # fmt: skip

KERNELS: tuple[Proof, ...] = (
    Proof("K01", "XP120", case="XP120-liger", at="init", arguments={"use_liger_kernel": True}, onto="legal",
          warns="use_liger_kernel=True.*deprecated"),
    Proof("K03", "XP331", at="load", measure="kernels.patched", legal=spec("memory(liger)"), expect={"patched": 0}),
    Proof("K19", "XP339", needs="a GPU of compute capability 6.x"),
    Proof("K07", "XP330", at="load", text=cpu("memory(liger)"), legal=cpu(), measure="kernels.liger_step",
          raises="RuntimeError", match="driver"),
    Proof("K13", "XP120", case="XP120-chunked-nll", arguments={"loss_type": "chunked_nll"}, onto="legal",
          warns="chunked_nll.*deprecated"),
    Proof("K15", "XP353", warns="speedups for torchdynamo mostly come with GPU Ampere"),
    Proof("K16", "XP355", needs="a GPU, because CUDA graphs exist only there"),
    Proof("K17", "XP332", at="init", text=cpu("memory(offload_activations)"), legal=cpu(), raises="AttributeError"),
    Proof("K22", "XP482", at="init", text=cpu(selective(), "target trl-0.24"), legal=cpu("target trl-0.24"),
          measure="kernels.selected", expect={"asked": True, "kept": 0}),
    Proof("K23", "XP483", at="init", text=cpu(selective(), "model(attn=eager)"), legal=cpu(selective(), "model(attn=sdpa)"),
          measure="kernels.selected", expect=lambda seen: seen["kept"] == 0),
    Proof("K24", "XP344", at="init", text=cpu("model(compile)", extra("torch_compile = true")),
          legal=cpu(extra("torch_compile = true")), measure="kernels.regions", expect={"asked": True, "by_layer": True}),
    Proof("K25", "XP345", at="init", text=cpu("model(compile)", "target trl-0.18"), legal=cpu("target trl-0.18"),
          measure="kernels.regions", expect={"asked": True, "by_layer": False}),
    Proof("K18", "XP101", case="XP101-checkpointing-keyword", at="train", onto="legal",
          arguments={"activation_checkpointing_kwargs": {"reentrent": False}}, raises="ValueError", match="reentrent"),
    Proof("P30", "XP352", at="train", text=cpu(extra("label_smoothing_factor = 0.1"), "target trl-0.18").replace(
          "micro=2", "micro=1"), legal=cpu("target trl-0.18").replace("micro=2", "micro=1"), measure="kernels.smoothed",
          common={"max_grad_norm": 1e9, "logging_steps": 1}, expect=lambda seen: seen["norm"] > 4, steps=1),
    Proof("P31", "XP354", measure="kernels.compiled", expect={"asked": False, "compiles": True}),
    Proof("P33", "XP357", at="init", text=cpu(extra('torch_compile_backend = "inductr"')), legal=cpu(), raises="ValueError",
          match="DynamoBackend"),
    Proof("P33", "XP357", case="XP357-mode", at="train", text=cpu(extra('torch_compile_mode = "fastest"')), legal=cpu(),
          raises="RuntimeError", match="Unrecognized mode", variant="mode"),
    Proof("P32", "XP356", at="init", text=cpu(extra('half_precision_backend = "apex"'), "target trl-0.18", precision="fp16"),
          legal=cpu("target trl-0.18"), raises="ImportError", match="apex"),
    Proof("P32", "XP356", case="XP356-apex-fp32", at="config", text=cpu(extra('half_precision_backend = "apex"'),
          "target trl-0.24"), legal=cpu("target trl-0.24"), raises="ImportError", match="APEX", variant="apex-fp32"),
    Proof("P32", "XP356", case="XP356-ipex", at="train", text=cpu(extra("use_ipex = true"), "target trl-0.18"),
          legal=cpu("target trl-0.18"), raises="ImportError", match="IPEX", variant="ipex"),
)  # fmt: skip

PROOFS: tuple[Proof, ...] = (*PRECISION, *PACKING, *ATTENTION, *KERNELS)
