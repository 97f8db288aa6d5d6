"""The tables say how each model family behaves with a stack's libraries. The tests check this with a tiny model of each
family.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache

import pytest
from interpreters import interpreter

from xpc.compiler import registry, stacks
from xpc.compiler.language.model_choices import ROPE
from xpc.compiler.registry.types import IMAGE_FAMILIES
from xpc.compiler.rules.numerics.attention import FIXED_POSITIONS

pytestmark = pytest.mark.nightly

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support", "families.py")
EXACT, MIXED = 1e-4, 0.05
"""Errors of the logits of packed documents, relative to the logits. If an error is below EXACT, attention keeps the
documents apart; if it is above MIXED, they attend to each other.
"""


@cache
def measured(name: str) -> dict[str, dict]:
    """The output of families.py for every family of the registry, in the target's interpreter."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [interpreter(name), SCRIPT],
        input=json.dumps(list(registry.families())),
        capture_output=True,
        text=True,
        env=variables,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}, after this output:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def known(name: str) -> dict[str, dict]:
    return {family: found for family, found in measured(name).items() if found["known"]}


every_stack = pytest.mark.parametrize("name", stacks.names())
CAPPED = ("gemma2", "vaultgemma")
"""Families with a soft cap on attention scores, which sdpa ignores; transformers 4 nevertheless accepts sdpa
for them.
"""


@every_stack
def test_the_attentions_that_a_family_has(name: str) -> None:
    """The table lists the attention implementations that a model class declares. If a declared implementation fails,
    such as gpt_oss's flash attention, the fact `family_lacks` lists it.
    """
    stack, wrong = stacks.load(name), {}
    for family, found in known(name).items():
        for flag, attention in (("sdpa", "sdpa"), ("flash", "flash2"), ("flex", "flex")):
            works = found[flag] and not str(found["errors"].get(attention)).startswith("ImportError")
            if (attention in stack.family(family).attention) != works:
                wrong[family] = attention
    assert set(wrong.items()) <= {(one, "sdpa") for one in CAPPED}, {one: known(name)[one] for one in wrong}


@pytest.mark.parametrize("name", [one for one in stacks.names() if "flash3" in stacks.load(one).facts.attentions])
def test_families_with_flash3_compute_what_they_compute_with_flash2(name: str) -> None:
    stack = stacks.load(name)
    for family, found in known(name).items():
        if "flash2" in stack.family(family).attention:
            same = found["errors"]["flash3"] == found["errors"]["flash2"]
            assert same is ("flash3" in stack.family(family).attention), (family, found["errors"])


@every_stack
def test_the_masks_that_keep_packed_documents_apart(name: str) -> None:
    stack = stacks.load(name)
    for family, found in known(name).items():
        exact = stack.facts.isolate_mask and stack.family(family).packing == "exact"
        for attention in ("eager", "sdpa"):
            error = found["errors"][attention]
            if isinstance(error, float):
                assert (error < EXACT) if exact else (error > MIXED), (family, attention, error)
            elif attention == "eager":
                assert stack.family(family).packing == "kernel", (family, error)


@every_stack
def test_the_families_whose_flash_attention_mixes_documents(name: str) -> None:
    """Flash attention keeps packed documents apart if its kernel gets the bounds of the documents. The table lists the
    families that do not pass the bounds on.
    """
    facts = stacks.load(name).facts
    mixed = {family for family, found in known(name).items() if _number(found["errors"]["flash2"]) > MIXED}
    state = set(facts.families_stateful)
    assert mixed | set(facts.flash_mixes) == set(facts.flash_mixes) | (mixed & state)
    assert set(facts.flash_mixes) <= mixed
    for family, found in known(name).items():
        close = _number(found["errors"]["flash2"]) < EXACT
        assert family in mixed or close or family in state, (family, found["errors"]["flash2"])


@every_stack
def test_the_families_that_have_no_positions_beyond_their_context(name: str) -> None:
    ending = {family for family, found in known(name).items() if found["ends"]}
    assert ending == set(FIXED_POSITIONS) & set(known(name))


@every_stack
def test_the_families_whose_positions_can_be_scaled(name: str) -> None:
    able = {family for family, found in known(name).items() if set(found["scaled"]) == set(ROPE)}
    assert able == set(stacks.load(name).facts.scaled_families)


@every_stack
def test_the_families_that_are_saved_under_other_names(name: str) -> None:
    renamed = {family for family, found in known(name).items() if found["renamed"]}
    assert renamed == set(stacks.load(name).facts.renames_saved) - set(IMAGE_FAMILIES)


@every_stack
def test_the_families_that_forget_their_prompt_where_layers_are_recomputed(name: str) -> None:
    forgetful = {family for family, found in known(name).items() if found["forgets"]}
    assert forgetful == set(stacks.load(name).facts.recomputed_generation)


@every_stack
def test_the_families_of_which_nothing_is_packed_in_four_bits(name: str) -> None:
    counted = {family: found["packs"] for family, found in known(name).items() if found["packs"] is not None}
    assert counted or not stacks.load(name).facts.quantized_on_cpu
    if counted:
        assert {family for family, count in counted.items() if not count} == set(stacks.load(name).facts.never_packed)


@every_stack
def test_the_table_has_the_families_that_route_tokens_to_few_experts(name: str) -> None:
    """The table lists the families whose layers call only those experts to which some token is routed. Under ZeRO-3,
    two processes that call different experts would wait for each other forever.
    """
    routed = {family: found["routed"] for family, found in known(name).items() if found["routed"]}
    assert routed == dict(stacks.load(name).facts.expert_blocks)


@every_stack
def test_the_families_whose_balancing_loss_the_fused_head_cannot_compute(name: str) -> None:
    facts = stacks.load(name).facts
    failing = {family: found["unbalanced"] for family, found in known(name).items()}
    always = {family for family, when in failing.items() if when == "default"}
    assert always - set(facts.fused_head_fails) == set(facts.router_loss_fails)
    assert {family for family, when in failing.items() if when == "stated"} == set(facts.router_loss_fails_if_stated)


def _number(error: float | str) -> float:
    """A measured error as a number. The number is 0 if the family has no flash attention, or if transformers refuses
    flash attention for the family.
    """
    return error if isinstance(error, float) else 0.0


@every_stack
def test_the_families_of_which_processes_can_share_a_sequence(name: str) -> None:
    """The table names the families whose logits stay the same if two processes share a sequence (DeepSpeed's Ulysses).

    In the tiny models, a sliding window is at least as long as the row.
    """
    stated = set(stacks.load(name).facts.sequence_parallel)
    if not stated:
        return
    script = os.path.join(os.path.dirname(SCRIPT), "shared_sequences.py")
    done = subprocess.run(
        [interpreter(name), script], input=json.dumps(list(registry.families())), capture_output=True, text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {family for family, error in found.items() if isinstance(error, float) and error < EXACT} == stated
    mixed = {family: error for family, error in found.items() if isinstance(error, float) and error >= EXACT}
    assert all(error > MIXED for error in mixed.values()), mixed
