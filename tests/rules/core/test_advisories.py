"""Advisories are entries about library versions that compute wrong results. The tests check that the entries are
complete, and that a spec gets the advisories of its stack.
"""

import re

import pytest
from case_support import spec
from compile_support import checked, codes, put, xpc

from xpc.compiler import stacks
from xpc.compiler.rules import codes as rule_codes
from xpc.compiler.rules.core.advisory_table import known, table

ADVISORIES = {one.name: one for one in table()}
HPZ = "extra deepspeed {\n  zero_optimization.zero_hpz_partition_size = 8\n}"
PAIRS = "qwen2.5-3b on ultrafeedback-binarized for 1 epochs"
ONLINE = "qwen2.5-3b on gsm8k for 1 epochs"
SHOWN = {
    "overlap-buffers-0.24": ("overlap-buffers", "XP940", spec("target trl-0.24", strategy="zero2(overlap_comm=true)")),
    "overlap-buffers-0.18": ("overlap-buffers", "XP940", spec("target trl-0.18", strategy="zero1(overlap_comm=true)")),
    "zero2-accumulation": ("zero2-accumulation", "XP488", spec("target trl-0.24", batch="gbs=256 micro=16")),
    "adapter-shards": (
        "adapter-shards", "XP582",
        spec("target trl-0.24", "lora", strategy="fsdp(state_dict=full)"),
    ),
    "gradients-of-another-stream": (
        "gradients-of-another-stream", "XP940", spec("target trl-0.24", strategy="zero3"),
    ),
    "norms-decayed": (
        "norms-decayed", "XP940", spec("target trl-0.18", "optimizer adamw(weight_decay=0.1)"),
    ),
    "secondary-shards": (
        "secondary-shards", "XP478",
        spec("target trl-0.24", HPZ, strategy="zero3"),
    ),
    "evaluation-by-batch": (
        "evaluation-by-batch", "XP940",
        spec("target trl-1.16", "data(holdout=1%)", "eval(every=100, micro=4)",
             train="qwen2.5-3b on deita-10k for 2 epochs"),
    ),
    "smoothed-labels": (
        "smoothed-labels", "XP352",
        spec("target trl-0.18", "extra trl {\n  label_smoothing_factor = 0.1\n}", batch="gbs=256 micro=16"),
    ),
    "last-accumulation": (
        "last-accumulation", "XP940",
        spec("target trl-0.18", "method dpo", train=PAIRS, batch="gbs=512 micro=16"),
    ),
    "last-accumulation-of-zero": (
        "last-accumulation-of-zero", "XP940",
        spec("target trl-0.18", train="qwen2.5-3b on deita-10k for 2 epochs", batch="gbs=512 micro=16"),
    ),
    "packing-without-flash": (
        "packing-without-flash", "XP310",
        spec("target trl-0.18", "model(attn=sdpa)", batch="gbs=128 micro=16 seq=512 packing"),
    ),
    "dapo-of-another-round": (
        "dapo-of-another-round", "XP485",
        spec("target trl-0.24", "method grpo(rewards=[accuracy], steps_per_generation=2)", train=ONLINE),
    ),
    "dapo-of-masked-completions": (
        "dapo-of-masked-completions", "XP940",
        spec("target trl-0.24", "method grpo(rewards=[accuracy], loss=dapo, mask_truncated)",
             train="qwen2.5-3b on deepmath-103k for 1 epochs"),
    ),
    "fused-grpo": (
        "fused-grpo", "XP940",
        spec("target trl-0.24", "method grpo(rewards=[accuracy])", "extra trl {\n  use_liger_loss = true\n}",
             train=ONLINE),
    ),
    "fused-dpo-options": (
        "fused-dpo-options", "XP489",
        spec("target trl-0.24", "method dpo", "extra trl {\n  use_liger_loss = true\n}",
             train=PAIRS, strategy="ddp"),
    ),
    "running-mean-of-bco": (
        "running-mean-of-bco", "XP940", spec("target trl-0.24", "method dpo(loss=[sigmoid, bco_pair])", train=PAIRS),
    ),
    "vllm-truncated-sampling": (
        "vllm-truncated-sampling", "XP940",
        spec("target trl-0.24", "method grpo(rewards=[accuracy], vllm, top_p=0.8)",
             train="qwen2.5-3b on deepmath-103k for 1 epochs"),
    ),
    "bnpo-by-micro-batch": (
        "bnpo-by-micro-batch", "XP940",
        spec("target trl-0.18", "method grpo(rewards=[accuracy], loss=bnpo)", train=ONLINE,
             batch="gbs=256 micro=16"),
    ),
}  # fmt: skip
"""Maps each case to three values: the name of its advisory, the code that reports the advisory, and a spec that gets
wrong results on one of the stacks.
"""


@pytest.mark.parametrize("name", ADVISORIES)
def test_an_advisory_has_threads_an_effect_and_names_that_are_known(name):
    one = ADVISORIES[name]
    assert one.threads
    assert all(re.fullmatch(r"[\w-]+/[\w.-]+#\d+", thread) for thread in one.threads)
    assert len(one.effect) > 30
    assert [each for each in one.when if not known(each)] == []
    assert not one.rule or one.rule in rule_codes()
    assert one.severity in ("warning", "note")
    reported = not one.rule and not one.runtime and any(one.of(stacks.load(stack)) for stack in stacks.names())
    assert not reported or (one.location and one.help)


def test_there_are_enough_of_them_and_ten_concern_a_stack():
    assert len(ADVISORIES) >= 25
    assert len({name for name, _, _ in SHOWN.values()}) >= 10


@pytest.mark.parametrize(("name", "code", "text"), SHOWN.values(), ids=SHOWN)
def test_a_spec_shows_it_and_another_stack_does_not(name, code, text):
    one = ADVISORIES[name]
    found = checked(text)
    assert code in codes(found), found.problems
    assert one.of(stacks.load(re.search(r"target (\S+)", text)[1]))
    assert one.of(stacks.load(stacks.DEFAULT)) is not bool(one.fixed_in)
    if code != "XP310" and one.fixed_in:  # on every stack, XP310 refuses packing without a mask
        assert code not in codes(checked(re.sub(r"target \S+\n", "", text)))
    if code == "XP940":
        assert any(one.threads[0] in each.message for each in found.problems)


def test_versions_before_the_first_and_after_the_fix_are_not_concerned():
    one = ADVISORIES["zero2-accumulation"]
    assert [one.concerns(version) for version in ("0.16.8", "0.18.2", "0.19.7", "0.19.8", "0.20")] == [
        False, True, True, False, False,
    ]  # fmt: skip
    assert ADVISORIES["fused-dpo-under-ddp"].concerns("9.0")  # no release has fixed the defect


def test_upgrade_lists_what_a_move_mends(tmp_path):
    put(tmp_path, {"a.xp": spec("target trl-0.24", strategy="zero2(overlap_comm=true)")})
    reported = xpc("upgrade", "a.xp", cwd=str(tmp_path)).stdout.decode()
    assert "Wrong on trl-0.24 for this spec, fixed on trl-1.16" in reported
    assert "deepspeedai/DeepSpeed#7965" in reported
    put(tmp_path, {"a.xp": spec("target trl-0.24", strategy="zero3")})
    assert "#7965" not in xpc("upgrade", "a.xp", cwd=str(tmp_path)).stdout.decode()
