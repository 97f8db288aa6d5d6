"""Two specs that differ in one setting differ in the plan by the bytes of a closed form."""

from __future__ import annotations

import os

import pytest
from compile_support import REPOSITORY, checked

from xpc.compiler.plan.experiment import Plan, plan
from xpc.compiler.plan.from_spec import load_of

WORDS, WIDTH, LAYERS = 152064, 3584, 28
"""Sizes of Qwen2.5 7B: vocabulary, hidden size and layers."""
TABLE, PARAMS = WORDS * WIDTH, 7615616512
LAYER = (PARAMS - 2 * TABLE - WIDTH) // LAYERS
CARD = 79.1 * 2**30
CHATS, PAIRS, PROMPTS = "infinity-instruct:0625", "intel-orca-dpo-pairs", "deepmath-103k"
GRPO = "method grpo(generations=8, rewards=[accuracy]{})"
SPEC = """xpc 1
train qwen2.5-7b on {data} for 100 steps
hardware 8 x h100-80gb
memory(checkpointing)
batch gbs=64 micro={micro}
save "out"
{more}
"""


def planned(more: str, data: str = CHATS, micro: int = 8) -> Plan:
    found = checked(SPEC.format(more=more, data=data, micro=micro)).spec
    assert found is not None
    return plan(found)


def component(found: Plan, phase: str, name: str) -> float:
    assert found.memory is not None
    return found.memory.phases[phase].get(name, 0.0)


SAVED = "ddp\nlora(rank=16, modules_to_save=[{}])"


@pytest.mark.parametrize(("one", "other", "data", "phase", "name", "bytes_"), [
    # the head's gradient exists from the start of the backward pass; TRL's head sums it up in float32
    (SAVED.format("embed_tokens"), SAVED.format("lm_head"), CHATS, "backward", "gradients", 4 * TABLE),
    (SAVED.format("embed_tokens"), SAVED.format("lm_head"), CHATS, "forward", "logits and loss", (4 + 2) * TABLE),
    ("fsdp", "fsdp(reshard=false)", CHATS, "forward", "gathered weights", 2 * (LAYERS - 2) * LAYER),
    ("fsdp1", "fsdp1(reshard=false)", CHATS, "backward", "gathered weights", 2 * (LAYERS - 2) * LAYER),
    ("zero2", "zero2(reduce_bucket=500000000)", CHATS, "backward", "communication", 2 * 2 * (5e8 - WIDTH**2)),
    ("zero3", "zero3(reduce_bucket=500000000)", CHATS, "backward", "communication", 7 * 2 * (5e8 - WIDTH**2)),
    # a bucket of adapters' gradients is not full
    ("zero3\nlora(rank=16)", "zero3(reduce_bucket=500000000)\nlora(rank=16)", CHATS, "backward", "communication",
     2 * (5e8 - WIDTH**2) + 6 * 2 * (16 * 2_523_136 - WIDTH**2)),
    ("zero3(offload=optimizer)", "zero3", CHATS, "evaluate", "gradients", 2 * PARAMS / 8),
    ("zero3(offload=optimizer)", "zero3", CHATS, "save", "gradients", 2 * PARAMS / 8),
    ("zero3\nmethod reward", "zero3\nmethod dpo", PAIRS, "step", "optimizer", 8 * TABLE / 8),
    ("zero3\nmethod reward", "zero3\nmethod orpo", PAIRS, "forward", "logits and loss", 8 * WORDS * 2 * 8 * 1024),
    ("zero2\n" + GRPO.format(""), "zero3\n" + GRPO.format(""), PROMPTS, "generate", "gathered weights", 2 * PARAMS),
    ("zero2\n" + GRPO.format(""), "zero2\n" + GRPO.format(", vllm(mode=colocate, sleep)"), PROMPTS, "generate", "vllm",
     0.3 * CARD),
    ("zero2\n" + GRPO.format(", vllm(mode=colocate, sleep)"), "zero2\n" + GRPO.format(", vllm(mode=colocate)"),
     PROMPTS, "step", "vllm", 0.3 * CARD),
    ("zero2\n" + GRPO.format(""), "zero2\n" + GRPO.format(", steps_per_generation=2"), PROMPTS, "generate",
     "key-value cache", 2 * LAYERS * 2 * 4 * 128 * 8 * 1024),
])  # fmt: skip
def test_one_setting_changes_one_component_by_its_bytes(
    one: str, other: str, data: str, phase: str, name: str, bytes_: float
) -> None:
    more = "\ndata(holdout=64)\neval(every=50)" if data == CHATS else ""
    before, after = (component(planned(text + more, data), phase, name) for text in (one, other))
    assert after - before == pytest.approx(bytes_, rel=2e-3)


@pytest.mark.parametrize(("more", "data", "why"), [
    (GRPO.format(""), PROMPTS, "the time to generate completions was not measured"),
    ("zero2(offload=optimizer)", CHATS, "the time of copies to host memory was not measured"),
    ("fsdp\nprecision fp8", CHATS, "the speed of fp8 was not measured"),
    ("zero3(offload=cpu)", CHATS, "the time of copies to host memory was not measured"),
])  # fmt: skip
def test_the_hours_of_what_was_not_measured_are_unknown(more: str, data: str, why: str) -> None:
    found = planned(more, data)
    assert found.hours is None
    assert found.unknown["hours"] == why


def test_the_reference_of_dpo_takes_a_forward_pass() -> None:
    """With LoRA and recomputation, a row takes three passes over the matrices, and DPO's reference a fourth. With
    `precompute`, the reference runs once: in two epochs, half as often.
    """
    lora = "ddp\nlora(rank=16)\n"
    found = [planned(f"{lora}method {one}", PAIRS).speed for one in ("orpo", "dpo", "dpo(precompute)")]
    orpo, dpo, precomputed = (one.tokens for one in found if one is not None)
    assert 5 / 4 < orpo / dpo <= 4 / 3
    assert precomputed == dpo
    text = SPEC.format(more=f"{lora}method dpo(precompute)", data=PAIRS, micro=8)
    twice = checked(text.replace("for 100 steps", "for 2 epochs")).spec
    assert twice is not None
    speed = plan(twice).speed
    assert speed is not None
    assert 1 / speed.tokens == pytest.approx((1 / orpo + 1 / dpo) / 2)


@pytest.mark.parametrize(("target", "every", "number"), [
    ("trl-1.16", "30", 4), ("trl-1.16", "25", 4), ("trl-1.16", "1000", 1), ("trl-1.16", "30%", 4),
    ("trl-0.24", "30", 3), ("trl-0.18", "1000", 0),
])  # fmt: skip
def test_a_run_may_also_evaluate_after_its_last_step(target: str, every: str, number: int) -> None:
    """The run has 100 steps. transformers 5 also evaluates after the last step; transformers 4 does not."""
    found = planned(f"target {target}\nddp\nlora(rank=8)\ndata(holdout=64)\neval(every={every})")
    assert found.evaluations == number


def test_the_frozen_part_that_reads_images_has_no_gradient() -> None:
    folder = os.path.join(REPOSITORY, "golden", "specs")
    with open(os.path.join(folder, "sft-images.xp"), encoding="utf-8") as handle:
        found = checked(handle.read().replace("lora(rank=16)\n", ""), folder).spec
    assert found is not None
    load = load_of(found)
    assert load.trained == load.facts.language_params < load.facts.params
