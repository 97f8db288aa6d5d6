"""Some encoders can be loaded as a causal language model, but their tokens still attend to later tokens. transformers
cannot load the other encoders of the registry as a causal language model.
"""

from __future__ import annotations

import json

import pytest
from compile_support import checked, codes, errors, only, put

from xpc.compiler import registry
from xpc.compiler.registry import build

ENCODERS = build.read("families.toml")["encoders"]
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100,
    "embedding_size": 32, "max_position_embeddings": 130,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("family", ENCODERS["causal"])
def test_a_family_that_is_loaded_sees_the_next_token(family: str):
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        assert family == "qdqbert"  # only in transformers 4
        return
    more = {"languages": ["en"], "default_language": "en"} if family == "xmod" else {}
    more |= {"attention_type": "original_full"} if family == "big_bird" else {}
    config = AutoConfig.for_model(family, **SMALL, **more)
    model = AutoModelForCausalLM.from_config(config).eval()
    first = torch.randint(5, 99, (1, 8))
    other = first.clone()
    other[0, -1] = 4 if first[0, -1] != 4 else 3
    with torch.no_grad():
        distance = (model(input_ids=first).logits[0, 0] - model(input_ids=other).logits[0, 0]).abs().max()
    assert distance > 0


@pytest.mark.slow
def test_the_others_are_not_loaded():
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    assert not set(ENCODERS["masked"]) & set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert not {*ENCODERS["causal"], *ENCODERS["masked"]} & set(registry.families())


ROWS = "\n".join(
    json.dumps({"messages": [{"role": "user", "content": f"q {i}"}, {"role": "assistant", "content": f"a {i}"}]})
    for i in range(8)
)


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "xlm-roberta"])
def test_a_local_encoder_is_refused_unless_it_is_a_decoder(family: str, tmp_path):
    text = 'xpc 1\n\ntrain "model" on "rows.jsonl" for 2 steps\n'
    config = {"model_type": family, **SMALL}
    root = put(tmp_path, {"rows.jsonl": ROWS, "model/config.json": json.dumps(config)})
    assert family in only(checked(text, root), "XP169").message
    put(tmp_path, {"model/config.json": json.dumps({**config, "is_decoder": True})})
    assert "XP169" not in codes(checked(text, root))


@pytest.mark.parametrize("name", ["google-bert/bert-base-uncased", "FacebookAI/roberta-large", "me/modernbert-base"])
def test_an_encoder_of_the_hub_is_refused_by_its_name(name: str):
    assert errors(checked(f"xpc 1\ntrain {name} on capybara for 3 epochs\n")) == ["XP169"]
    scored = f"xpc 1\ntrain {name} on ultrafeedback-binarized for 3 epochs\nmethod reward\n"
    assert "XP169" not in errors(checked(scored))


@pytest.mark.parametrize(
    "name", ["org/robert-7b", "jhu-clsp/ettin-decoder-bert", "EleutherAI/gpt-j-6b", "me/bertin-gpt-j"]
)
def test_a_name_that_only_sounds_like_one_is_not(name: str):
    assert registry.encoder(None, name) is None
