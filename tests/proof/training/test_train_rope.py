"""A model with scaled rotary positions (`rope`) trains and saves on every stack. xpc refuses to scale the saved model a
second time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from compile_support import checked, errors
from method_runs import Warm
from tiers import FIRST_AND_LAST
from tiny_runs import spec

pytestmark = pytest.mark.slow


def scaling(folder: str) -> tuple[Any, Any, int]:
    """The kind and factor of the scaling in a config.json, and its context length."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as handle:
        config = json.load(handle)
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found.get("rope_type"), found.get("factor"), config["max_position_embeddings"]


APART = """\
import json, sys, torch
from transformers import AutoModelForCausalLM
text = open(f"{sys.argv[1]}/README.md").read().partition("## Use")[2]
exec(text.partition("```python\\n")[2].partition("```")[0].replace('"out"', json.dumps(sys.argv[1])))
ids = ask.tokenizer("What colour is the red apple?", return_tensors="pt")["input_ids"]
with torch.no_grad():
    one = ask.model.eval()(ids).logits
    two = AutoModelForCausalLM.from_pretrained(f"{sys.argv[1]}/merged").eval()(ids).logits
print(json.dumps({"apart": (one - two).abs().max().item()}))
"""
"""A program that runs the lines of the adapter's model card, which load the adapter on its base model. It compares the
logits with those of the merged model.
"""


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_saved_model_has_the_scaling_and_is_not_scaled_twice(warm: Warm, tmp_path: Path, target: str) -> None:
    for name in ("plain", "rope", "lora"):
        (tmp_path / name).mkdir()
    _, _, context = scaling(os.path.join(warm.location, "tiny"))
    yarn, merged = "model(rope=yarn(factor=4))", 'save "out" { every = never, merge }'
    plain = warm.train(spec(target=target, length="2 steps"), f"rope-plain-{target}", target, str(tmp_path / "plain"))
    done = warm.train(spec(yarn, target=target, length="2 steps"), f"rope-{target}", target, str(tmp_path / "rope"))
    assert scaling(done.out) == ("yarn", 4.0, 4 * context)
    assert scaling(plain.out)[2] == context
    for folder, factor in ((plain.out, 1), (done.out, 4)):
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as handle:
            assert json.load(handle)["model_max_length"] == factor * context
    assert "rope_scaling" not in done.complained  # transformers 5 warns if this old name is set
    again = spec(yarn, target=target, save='save "again"').replace('"tiny"', '"out"')
    # The rows are not in this folder, so the spec has other errors, too.
    assert "XP132" in errors(checked(again, os.path.dirname(done.out)))
    adapted = warm.train(
        spec(yarn, "lora(rank=4)", target=target, length="2 steps", save=merged), f"rope-lora-{target}", target,
        str(tmp_path / "lora"),
    )  # fmt: skip
    assert scaling(os.path.join(adapted.out, "merged")) == ("yarn", 4.0, 4 * context)
    (seen,) = warm.program(target, APART, adapted.out)
    assert seen["apart"] < 1e-4
