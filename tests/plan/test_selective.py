"""With `checkpointing(selective)`, TRL's policy keeps some tensors that full recomputation would drop. The plan counts
the bytes of these tensors. The tests measure them in a real model.
"""

from __future__ import annotations

import gc

import family_models
import pytest
import torch
from trl.models import enable_selective_activation_checkpointing

from xpc.compiler.plan.load import Load
from xpc.compiler.plan.memory import memory

pytestmark = pytest.mark.slow
SHAPE = (96, 96, 4, 2, 24, 4, 2)
TOKENS = 64


def held(family: str, attention: str, dtype: torch.dtype, selective: bool) -> int:
    """Run a forward pass; return the bytes of the tensors that are kept for the backward pass."""
    model = family_models.built(family, SHAPE, 2, attention, dtype)
    if selective:
        enable_selective_activation_checkpointing(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    gc.collect()
    out = model(input_ids=torch.zeros((1, TOKENS), dtype=torch.long)).last_hidden_state
    gc.collect()
    storages = {}
    for one in gc.get_objects():
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    out.sum().backward()
    return sum(storages.values())


def planned(family: str, element: int, selective: bool) -> float:
    """The bytes of activations that the plan predicts for the measured tiny model."""
    facts = family_models.facts(family, SHAPE, 2)
    found = memory(Load(
        facts=facts, family=family, engine="none", stage=0, world=1, shard=1, offload=0, element=element,
        weight=float(element), amp=False, moments=8.0, temporary=0.0, micro=1, length=TOKENS, accumulates=False,
        checkpointing=True, attention="sdpa", loss="kept", trained=float(facts.params), selective=selective,
    ))  # fmt: skip
    return found.phases["forward"]["activations"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3_text"])
def test_the_plan_counts_what_is_kept(family: str, dtype: torch.dtype) -> None:
    more = held(family, "sdpa", dtype, True) - held(family, "sdpa", dtype, False)
    assert more > 0
    assert planned(family, dtype.itemsize, True) - planned(family, dtype.itemsize, False) == more


def test_of_eager_attention_nothing_is_kept() -> None:
    """With eager attention, `checkpointing(selective)` keeps nothing that full recomputation would drop (XP483), except
    for one or two empty tensors.
    """
    assert abs(held("llama", "eager", torch.float32, True) - held("llama", "eager", torch.float32, False)) < 100
