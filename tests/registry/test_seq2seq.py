"""The table of encoder-decoder families is right: transformers has no causal head for any of them. A spec with such a
model is refused in one sentence.
"""

from __future__ import annotations

import pytest
from compile_support import checked, only

from xpc.compiler import registry
from xpc.compiler.registry import build

FAMILIES = build.read("seq2seq.toml")


@pytest.mark.slow
def test_no_family_has_a_causal_head_in_transformers():
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    assert set(FAMILIES) <= set(auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    assert not set(FAMILIES) & set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert not set(FAMILIES) & set(registry.families())


@pytest.mark.parametrize("name", ["google/flan-t5-xl", "flan-t5-xl", "FLAN-T5-XL", "lmsys/fastchat-t5-3b-v1.0"])
def test_flan_t5_is_refused_in_one_sentence(name):
    found = only(checked(f"xpc 1\ntrain {name} on ultrachat-200k for 3 epochs\n"), "XP128")
    assert found.message == f"`{name}` is a t5 model, with an encoder: xpc trains models without an encoder only"
    assert found.severity == "error"


def test_a_model_that_only_sounds_like_one_is_not():
    assert registry.encoder_decoder("org/flan-t5-llama") is None
    assert registry.encoder_decoder("Qwen/Qwen2.5-3B") is None
    assert registry.encoder_decoder("mt5") == "mt5"
