"""Cases of preference tuning and of adapters (XP45x, XP63x, XP64x); those of reinforcement stand beside."""

from __future__ import annotations

import json

from case_support import Case, on_cpu, spec, trained
from cases_data import extra
from cases_online import ONLINE
from compile_support import CONFIG

PAIRS = "qwen2.5-3b on ultrafeedback-binarized"
GPTQ = {**CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4}}
PACKED = {"packed/config.json": json.dumps(GPTQ)}
ON_PACKED = {"train": trained('"packed" on infinity-instruct'), "batch": "gbs=128 micro=16 seq=512"}


MID, FLASH, FLAT = "target trl-0.24", "model(attn=flash2)", "gbs=128 micro=16 padding_free"
FUSED = extra("use_liger_loss = true")
SMALL = "qwen2.5-0.5b on ultrafeedback-binarized"


def judged(good: int, bad: int) -> str:
    """Rows of kto with so many good and bad answers."""
    labels = [True] * good + [False] * bad
    return "".join(json.dumps({"prompt": "2?", "completion": "4", "label": one}) + "\n" for one in labels)


TURNS = "gemma-3-1b-it on infinity-instruct"
GEMMA = "gemma-3-1b-it on ultrafeedback-binarized for 1 epochs"


def prefs(*more: str, batch: str = "gbs=128 micro=16", strategy: str = "zero2", on: str = PAIRS, **changed: str) -> str:
    return spec(*more, train=trained(on), batch=batch, strategy=strategy, **changed)


PREFERENCE = (
    Case("XP106", prefs("method dpo(loss=sigmoyd)"), prefs("method dpo(loss=sigmoid)"), variant="dpo-loss"),
    Case("XP121", prefs("method dpo", "lora", "target trl-0.24", extra("ref_adapter_name = default"), strategy="ddp"),
         prefs("method dpo", "lora", "target trl-0.24", strategy="ddp"), variant="reference-that-is-trained"),
    Case("XP121", prefs("method dpo", extra("generate_during_eval = true")), prefs("method dpo"),
         variant="dpo-removed"),
    Case("XP120", prefs("method dpo", extra("max_prompt_length = 512")), prefs("method dpo(max_prompt=512)"),
         variant="max-prompt"),
    Case("XP503", prefs("method dpo", on="qwen2.5-3b on infinity-instruct"), prefs("method dpo"), variant="pairs"),
    Case("XP630", prefs("method dpo(loss=apo_zero)", extra("f_divergence_type = js_divergence")),
         prefs("method dpo(loss=sigmoid)", extra("f_divergence_type = js_divergence"))),
    Case("XP630", prefs("method dpo(loss=discopop)", "target trl-0.18", extra("f_divergence_type = js_divergence")),
         prefs("method dpo(loss=discopop)", extra("f_divergence_type = js_divergence")), variant="silent"),
    Case("XP631", prefs("method dpo", extra("f_divergence_type = jensen")),
         prefs("method dpo", extra("f_divergence_type = js_divergence"))),
    Case("XP632", prefs("method dpo(loss=aot)", extra("use_weighting = true")),
         prefs("method dpo(loss=sigmoid)", extra("use_weighting = true"))),
    Case("XP633", prefs("method dpo(loss=exo_pair)"), prefs("method dpo(loss=exo_pair, label_smoothing=0.001)")),
    Case("XP633", prefs("method dpo(loss=robust, label_smoothing=0.5)"),
         prefs("method dpo(loss=robust, label_smoothing=0.1)"), variant="robust"),
    Case("XP634", prefs("method dpo(label_smoothing=0.1)"), prefs("method dpo(label_smoothing=0.1, loss=robust)")),
    Case("XP634", prefs("method dpo(label_smoothing=0.1, loss=ipo)", "target trl-0.18"),
         prefs("method dpo(label_smoothing=0.1)", "target trl-0.18"), variant="ipo"),
    Case("XP635", prefs("method dpo(beta=0)"), prefs("method dpo(beta=0.1)")),
    Case("XP635", prefs("method dpo(beta=0, loss=ipo)"), prefs("method dpo(beta=0.1, loss=ipo)"), variant="divided"),
    Case("XP636", prefs("method dpo(precompute, sync_reference)"), prefs("method dpo(sync_reference)")),
    Case("XP637", prefs("method dpo(precompute)", "target trl-0.18", strategy="zero3"),
         prefs("method dpo(precompute)", "target trl-0.18")),
    Case("XP637", prefs("method dpo(precompute)", "qlora", hardware="2 x cpu", strategy="zero3", precision="fp32"),
         prefs("method dpo(precompute)", "qlora", hardware="2 x cpu", strategy="zero2", precision="fp32"),
         variant="cpu"),
    Case("XP127", prefs("method reward", MID, strategy="zero3"), prefs("method reward", MID, strategy="zero1"),
         variant="scores"),
    Case("XP486", prefs("method dpo(loss=[sigmoid, ipo])", MID), prefs("method dpo(loss=[sigmoid, hinge])", MID)),
    Case("XP487", prefs("method dpo(loss=ipo)", MID, FLASH, batch=FLAT), prefs("method dpo", MID, FLASH, batch=FLAT)),
    Case("XP487", prefs("method dpo(loss=[sigmoid, sft])", MID, FLASH, batch=FLAT),
         prefs("method dpo(loss=[sigmoid, sft])", MID, FLASH), variant="chosen"),
    Case("XP487", prefs("method dpo(rpo=1)", "target trl-0.18", FLASH, batch=FLAT),
         prefs("method dpo(rpo=1)", "target trl-0.18", FLASH), variant="rpo"),
    Case("XP487", prefs("method dpo", MID, FLASH, extra("use_weighting = true"), batch=FLAT),
         prefs("method dpo", MID, FLASH, extra("use_weighting = true")), variant="weighting"),
    Case("XP489", prefs("method dpo", MID, FUSED, strategy="ddp", on=SMALL), prefs("method dpo", MID, FUSED)),
    Case("XP489", prefs("method dpo", MID, FUSED, strategy="zero3"), prefs("method dpo", MID, FUSED, strategy="zero1"),
         variant="shards"),
    Case("XP489", prefs("method dpo(loss=hinge)", MID, FUSED), prefs("method dpo(loss=apo_zero)", MID, FUSED),
         variant="loss"),
    Case("XP489", prefs("method dpo(precompute)", MID, FUSED), prefs("method dpo(precompute)", MID),
         variant="reference"),
    Case("XP489", prefs("method dpo(label_smoothing=0.1)", MID, FUSED), prefs("method dpo(label_smoothing=0.1)", MID),
         variant="smoothing"),
    Case("XP489", prefs("method dpo", MID, FLASH, FUSED, batch=FLAT), prefs("method dpo", MID, FLASH, batch=FLAT),
         variant="flattened"),
    Case("XP489", prefs("method dpo", "lora", "memory(checkpointing(reentrant=false))", MID, FUSED),
         prefs("method dpo", "lora", "memory(checkpointing=false)", MID, FUSED, batch="gbs=32 micro=4"),
         variant="adapters"),
    Case("XP638", prefs("method kto", batch="gbs=128 micro=1"), prefs("method kto", batch="gbs=128 micro=2")),
    Case("XP639", prefs("method kto", extra("train_sampling_strategy = random")),
         prefs("method kto(loss=apo_zero_unpaired)", extra("train_sampling_strategy = random"))),
    Case("XP640", prefs("method kto", on='qwen2.5-3b on "judged.jsonl"'),
         prefs("method kto(undesirable=3)", on='qwen2.5-3b on "judged.jsonl"'), {"judged.jsonl": judged(30, 10)}),
    Case("XP640", prefs("method kto", on='qwen2.5-3b on "good.jsonl"'),
         prefs("method kto", on='qwen2.5-3b on "judged.jsonl"'),
         {"good.jsonl": judged(12, 0), "judged.jsonl": judged(10, 10)}, variant="all-good"),
    Case("XP641", prefs("method dpo", "target trl-0.18", extra("generate_during_eval = true")),
         prefs("method dpo", "target trl-0.18", "track wandb", extra("generate_during_eval = true"))),
    Case("XP642", prefs("method dpo", extra("train_sampling_strategy = group_by_length")),
         prefs("method dpo", extra("train_sampling_strategy = random"))),
    Case("XP642", prefs("method reward", "target trl-0.18", extra("group_by_length = true")),
         prefs("method reward", "target trl-0.18", extra("group_by_length = false")), variant="0.18"),
    Case("XP642", prefs("method kto(loss=apo_zero_unpaired)", extra("train_sampling_strategy = group_by_length")),
         prefs("method kto(loss=apo_zero_unpaired)", extra("train_sampling_strategy = random")), variant="kto"),
    Case("XP642", prefs("method kto", MID, "data(holdout=5%)", "eval(every=100)", extra("group_by_length = true")),
         prefs("method kto", MID, extra("group_by_length = true")), variant="evaluated"),
    Case("XP695", prefs("method orpo", extra("remove_unused_columns = true")),
         prefs("method orpo", extra("remove_unused_columns = false"))),
    Case("XP643", prefs("method reward", "target trl-0.18", "memory(checkpointing(reentrant=true))"),
         prefs("method reward", "target trl-0.18", "memory(checkpointing(reentrant=false))")),
    Case("XP643", prefs("method reward", "target trl-0.18", "memory(checkpointing(reentrant=true))",
                        strategy="zero3(reduce_bucket=4000000000)"),
         prefs("method reward", "target trl-0.18", "memory(checkpointing(reentrant=true))",
               strategy="zero3(reduce_bucket=500000000)"), variant="bucket"),
    Case("XP644", spec("method reward", "target trl-0.18", train=GEMMA), spec("method reward", train=GEMMA)),
    Case("XP641", prefs("method orpo", extra("generate_during_eval = true")),
         prefs("method orpo", "track wandb", extra("generate_during_eval = true")), variant="orpo"),
)  # fmt: skip

ADAPTERS = (
    Case("XP450", spec(**ON_PACKED), spec("lora", **ON_PACKED), PACKED),
    Case("XP451", spec("qlora", **ON_PACKED), spec("lora", **ON_PACKED), PACKED),
    Case("XP452", spec("lora", strategy="zero3", **ON_PACKED), spec("lora", strategy="ddp", **ON_PACKED), PACKED),
    Case("XP453", spec("lora(bits=8)", strategy="zero3"), spec("lora(bits=4)", strategy="zero3")),
    Case("XP453", spec("lora(bits=8)", strategy="fsdp"), spec("lora(bits=8)"), variant="fsdp"),
    Case("XP438", spec("qlora", "model {", "  dtype = fp16", "}", strategy="zero3"), spec("qlora", strategy="zero3")),
    Case("XP438", spec("qlora", "model {", "  dtype = fp32", "}", strategy="zero3"),
         spec("qlora", "model {", "  dtype = fp32", "}"), variant="wide"),
    Case("XP438", spec("qlora", "model {", "  dtype = fp16", "}", strategy="fsdp"), spec("qlora", strategy="fsdp"),
         variant="fsdp"),
    Case("XP795", spec("lora(within=layers, targets=all-linear)"), spec("lora(within=layers, targets=[q_proj])")),
    Case("XP466", spec("lora(within=language_model, targets=[q_proj])"), spec("lora(targets=[q_proj])"),
         variant="part"),
    Case("XP454", spec("lora(targets=[q_proj, lm_head])"), spec("lora(targets=[q_proj])")),
    Case("XP454", prefs("method dpo", "lora(targets=[lm_head])"), prefs("method orpo", "lora(targets=[lm_head])"),
         variant="dpo"),
    Case("XP454", spec("method grpo(rewards=[accuracy])", "lora(targets=[lm_head])",
                       extra("cast_lm_head_to_fp32 = true"), train=trained("qwen2.5-3b on deepmath-103k")),
         spec("method grpo(rewards=[accuracy])", "lora", extra("cast_lm_head_to_fp32 = true"),
              train=trained("qwen2.5-3b on deepmath-103k")), variant="cast"),
    Case("XP455", spec("lora(targets=[query_key_value])"), spec("lora(targets=[q_proj])")),
    Case("XP455", spec("lora(targets=[q_proj, c_attn])"), spec("lora(targets=[q_proj])"), variant="some"),
    Case("XP456", spec("lora(alpha=0)"), spec("lora(alpha=32)")),
    Case("XP456", spec("lora(dropout=1)"), spec("lora(dropout=0.1)"), variant="dropout"),
    Case("XP457", prefs("method dpo(sync_reference)", "lora"), prefs("method dpo(sync_reference)")),
    Case("XP458", spec("lora(rank=4096)"), spec("lora(rank=64)")),
    Case("XP437", spec("lora", "target trl-0.24", train=trained(TURNS), strategy="zero3"),
         spec("lora", train=trained(TURNS), strategy="zero3")),
    Case("XP479", spec("qlora(dora)", strategy="zero3"), spec("lora(dora)", strategy="zero3")),
    Case("XP479", on_cpu("lora(bits=8, dora)", strategy="ddp"), on_cpu("lora(bits=4, dora)", strategy="ddp"),
         variant="cpu"),
    Case("XP484", spec("qlora", train=trained("falcon-7b on alpaca")),
         spec("qlora", MID, train=trained("falcon-7b on alpaca"))),
    Case("XP484", spec("lora(bits=8)", train=trained("falcon-7b on alpaca")),
         spec("lora", train=trained("falcon-7b on alpaca")), variant="eight"),
    Case("XP459", spec("lora", "memory {", "  checkpointing(reentrant=false)", "}", strategy="zero3"),
         spec("lora", strategy="zero3")),
)  # fmt: skip

CASES: tuple[Case, ...] = (*PREFERENCE, *ADAPTERS, *ONLINE)
