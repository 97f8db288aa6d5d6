"""Cases of what an escape may hold: the range of its numbers, and arguments that meet another setting."""

from __future__ import annotations

from case_support import Case, spec, trained
from cases_data import extra
from cases_method import prefs
from cases_numerics import SMALL
from cases_online import grpo
from cases_strategy import zero

OLD = "target trl-0.18"
JUDGED = "qwen2.5-0.5b on ultrafeedback-binarized"
EVALUATED = ("data(holdout=5%)", "eval(every=100)")
TWO = {"hardware": "2 x h100-80gb", "strategy": "ddp"}


def numbered(good: str, bad: str, *more: str, variant: str) -> Case:
    """A number of `extra trl` that is out of its range, and the nearest within."""
    return Case("XP104", spec(*more, extra(bad)), spec(*more, extra(good)), variant=variant)


RANGES: tuple[Case, ...] = (
    numbered("torch_empty_cache_steps = 1", "torch_empty_cache_steps = 0", variant="cache-steps"),
    numbered("eval_accumulation_steps = 1", "eval_accumulation_steps = 0", *EVALUATED, variant="eval-accumulation"),
    numbered("pad_to_multiple_of = 1", "pad_to_multiple_of = 0", variant="pad-to-nothing"),
    numbered("pad_to_multiple_of = 8", "pad_to_multiple_of = -8", variant="pad-backwards"),
    numbered("data_seed = 0", "data_seed = 18446744073709551616", variant="data-seed"),
    numbered("past_index = -1", "past_index = 1", OLD, variant="past"),
    Case("XP104", prefs("method dpo(loss=discopop)", extra("discopop_tau = 0.0")),
         prefs("method dpo(loss=discopop)", extra("discopop_tau = 0.01")), variant="discopop"),
    Case("XP104", prefs("method orpo", OLD, extra("label_pad_token_id = -1")),
         prefs("method orpo", OLD, extra("label_pad_token_id = -100")), variant="label-pad"),
    Case("XP104", grpo("", extra("top_entropy_quantile = -0.5")), grpo("", extra("top_entropy_quantile = 0.0")),
         variant="entropy"),
    Case("XP104", grpo("loss=sapo", extra("sapo_temperature_neg = 0.0")),
         grpo("loss=sapo", extra("sapo_temperature_neg = 0.1")), variant="sapo"),
    Case("XP104", grpo("", OLD, extra('cache_implementation = "nope"')),
         grpo("", OLD, extra('cache_implementation = "static"')), variant="generation-cache"),
    Case("XP104", spec(extra("pad_to_multiple_of = eight")), spec(extra("pad_to_multiple_of = 8")), variant="pad-word"),
    Case("XP104", grpo("", extra("reward_clip_range = [1.0, -1.0]"), method="rloo"),
         grpo("", extra("reward_clip_range = [-1.0, 1.0]"), method="rloo"), variant="clip-range"),
)  # fmt: skip

MEETING: tuple[Case, ...] = (
    Case("XP279", spec(*EVALUATED, extra("eval_use_gather_object = true")),
         spec(*EVALUATED, extra("eval_use_gather_object = false"))),
    Case("XP279", spec("target trl-0.18", *EVALUATED, extra("eval_use_gather_object = true"), hardware="2 x a100-80gb"),
         spec("target trl-0.18", extra("eval_use_gather_object = true"), hardware="2 x a100-80gb"), variant="never"),
    Case("XP278", grpo("", "target trl-0.24", *EVALUATED, extra("use_legacy_prediction_loop = true")),
         grpo("", "target trl-0.24", *EVALUATED, extra("use_legacy_prediction_loop = false"))),
    Case("XP278", grpo("", "target trl-0.24", *EVALUATED, extra("use_legacy_prediction_loop = true"), method="rloo"),
         spec("target trl-0.24", *EVALUATED, extra("use_legacy_prediction_loop = true")), variant="rloo"),
    Case("XP274", spec("target trl-0.24", "model(attn=flash2)", *EVALUATED, extra("jit_mode_eval = true"),
                       strategy="zero1", batch="gbs=128 micro=8 packing"),
         spec("target trl-0.24", *EVALUATED, extra("jit_mode_eval = true")), variant="flattened"),
    Case("XP274", spec(OLD, *EVALUATED, extra("jit_mode_eval = true")),
         spec(OLD, *EVALUATED, extra("jit_mode_eval = false"))),
    Case("XP274", spec(OLD, *EVALUATED, extra("jit_mode_eval = true")),
         spec("target trl-0.24", *EVALUATED, extra("jit_mode_eval = true")), variant="not-traced"),
    Case("XP277", prefs("method dpo", OLD, extra("padding_value = 151936")),
         prefs("method dpo", OLD, extra("padding_value = 151935"))),
    Case("XP319", spec(train=trained("gpt2 on alpaca"), batch="gbs=128 micro=16 seq=1025"),
         spec(train=trained("gpt2 on alpaca"), batch="gbs=128 micro=16 seq=1024"), variant="no-positions"),
    Case("XP319", spec(extra("pad_to_multiple_of = 1000"), train=trained("gpt2 on alpaca")),
         spec(extra("pad_to_multiple_of = 512"), train=trained("gpt2 on alpaca")), variant="padded"),
    Case("XP476", spec(zero("zero_hpz_partition_size = 4"), hardware="6 x h100-80gb", strategy="zero3",
                       batch="gbs=96 micro=16"),
         spec(zero("zero_hpz_partition_size = 3"), hardware="6 x h100-80gb", strategy="zero3",
              batch="gbs=96 micro=16")),
    Case("XP478", spec(zero("zero_hpz_partition_size = 8"), OLD, strategy="zero3"),
         spec(zero("zero_hpz_partition_size = 8"), strategy="zero3")),
    Case("XP275", grpo("", extra('cache_implementation = "offloaded"'), hardware="2 x cpu", precision="fp32"),
         grpo("", extra('cache_implementation = "dynamic"'), hardware="2 x cpu", precision="fp32")),
    Case("XP477", spec(extra("ddp_static_graph = true"), train=SMALL, batch="gbs=64 micro=16", **TWO),
         spec(extra("ddp_static_graph = true"), train=SMALL, batch="gbs=32 micro=16", **TWO)),
    Case("XP690", grpo("", extra("remove_unused_columns = true")), grpo("", extra("remove_unused_columns = false"))),
    Case("XP690", spec('method grpo(rewards=["rewards.py:short"])', extra("remove_unused_columns = true"),
                       train=trained("qwen2.5-3b on deepmath-103k")),
         spec("method grpo(rewards=[format])", extra("remove_unused_columns = true"),
              train=trained("qwen2.5-3b on deepmath-103k")),
         {"rewards.py": "def short(completions, **columns):\n    return [0.0 for _ in completions]\n"}, variant="own"),
    Case("XP691", prefs("method dpo(loss=[sigmoid(weight=0), sft(weight=0)])"),
         prefs("method dpo(loss=[sigmoid(weight=0), sft(weight=1)])")),
    Case("XP691", prefs("method dpo(loss=[sigmoid(weight=1), sft(weight=-2)])"),
         prefs("method dpo(loss=[sigmoid(weight=2), sft(weight=-1)])"), variant="turned-round"),
    Case("XP692", prefs("method reward", OLD, "memory(liger)"), prefs("method reward", "memory(liger)")),
    Case("XP693", spec("method kto", OLD, extra("use_liger_loss = true"), train=trained(JUDGED),
                       batch="gbs=32 micro=16", **TWO),
         spec("method kto", OLD, extra("use_liger_loss = true"), train=trained(JUDGED), batch="gbs=16 micro=16",
              hardware="1 x h100-80gb", strategy="ddp")),
    Case("XP693", spec("method kto", OLD, "lora", extra("use_liger_loss = true"), train=trained(JUDGED),
                       batch="gbs=16 micro=16", hardware="1 x h100-80gb", strategy="ddp"),
         spec("method kto", OLD, "lora", extra("use_liger_loss = false"), train=trained(JUDGED),
              batch="gbs=16 micro=16", hardware="1 x h100-80gb", strategy="ddp"), variant="adapters"),
    Case("XP694", prefs("method dpo", OLD, extra("ld_alpha = 0.5")), prefs("method dpo", extra("ld_alpha = 0.5"))),
)  # fmt: skip

CASES: tuple[Case, ...] = (*RANGES, *MEETING)
