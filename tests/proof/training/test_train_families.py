"""Real trainers train model families that only the newest transformers has. The training changes the saved weights, and
the saved weights can be loaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from method_runs import Warm
from tiny_runs import spec

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

FAMILIES = ("apertus", "exaone4", "glm4_moe", "hunyuan_v1_dense")


def small_model(location: str, family: str) -> dict[str, Any]:
    """Make a folder with a tiny model of the family and the run's tokenizer; returns its weights."""
    import torch
    from tiny_models import config
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(os.path.join(location, "tiny"))
    values = config(family)
    values.vocab_size = len(tokenizer)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(values)
    for made in (model, tokenizer):
        made.save_pretrained(os.path.join(location, family))
    return {name: one.detach().clone() for name, one in model.named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_a_family_is_trained_and_saved(warm: Warm, tmp_path: Path, family: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    before = small_model(warm.location, family)
    text = spec(length="2 steps").replace('"tiny"', f'"{family}"')
    done = warm.train(text, f"family-{family}", DEFAULT, str(tmp_path))
    model = AutoModelForCausalLM.from_pretrained(done.out)
    assert model.config.model_type == family
    after = dict(model.named_parameters())
    assert set(after) == set(before)
    assert not [name for name, one in after.items() if torch.equal(one, before[name])]
