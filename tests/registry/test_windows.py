"""Some models have layers with windows, in which a token does not attend to the complete context. The compiler knows
these models. The tests compare its list with accelerate, which refuses context parallelism for them, and with
transformers' configurations.
"""

import pytest

from xpc.compiler.registry import build, find_model
from xpc.compiler.registry.windows import window, windowed

MODELS = build.read("models.toml")
SIZES = {"num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4}
CASES = [
    {"model_type": "llama"},
    {"model_type": "mistral"},
    {"model_type": "mistral", "sliding_window": None},
    {"model_type": "mistral", "sliding_window": 64},
    {"model_type": "mixtral"},
    {"model_type": "mixtral", "sliding_window": 4096},
    {"model_type": "phi3", "sliding_window": 2047},
    {"model_type": "starcoder2", "sliding_window": 4096},
    {"model_type": "gemma2"},
    {"model_type": "gemma3_text"},
    {"model_type": "gpt_oss"},
    {"model_type": "cohere2"},
    {"model_type": "cwm", "num_hidden_layers": 9, "head_dim": 16},
    {"model_type": "exaone4"},
    {"model_type": "exaone4", "layer_types": ["full_attention"] * 8, "sliding_window": None},
    {"model_type": "olmo3"},
    {"model_type": "gemma3_text", "layer_types": ["full_attention"] * 8},
    {"model_type": "qwen2", "sliding_window": 64},
    {"model_type": "qwen2", "use_sliding_window": True},
    {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2},
    {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2, "sliding_window": None},
    {"model_type": "qwen3", "layer_types": ["full_attention"] * 7 + ["sliding_attention"]},
    {"model_type": "qwen3_moe", "use_sliding_window": True},
    {"model_type": "smollm3"},
    {"model_type": "smollm3", "use_sliding_window": True},
    {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 64},
    {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 64, "no_rope_layer_interval": 16},
]


def refused(config):
    """Whether accelerate refuses context parallelism for a model of this configuration."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    big_modeling = pytest.importorskip("accelerate.big_modeling")
    keys = {key: value for key, value in config.items() if key not in ("model_type", "torch_dtype", "dtype")}
    model = torch.nn.Module()
    model.config = transformers.AutoConfig.for_model(config["model_type"], **keys)
    try:
        big_modeling._attach_context_parallel_hooks(model)
    except ValueError as error:
        return "Context parallelism does not support" in str(error)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("config", CASES, ids=str)
def test_a_window_is_found_where_accelerate_finds_one(config):
    config = {**SIZES, **config}
    assert windowed(config) is refused(config)


@pytest.mark.slow
@pytest.mark.parametrize("config", CASES, ids=str)
def test_the_layers_that_slide_are_the_librarys(config):
    config = {**SIZES, **config}
    transformers = pytest.importorskip("transformers")
    keys = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **keys)
    tokens = getattr(made, "sliding_window", None)
    kinds = getattr(made, "layer_types", None) or ["sliding_attention"] * 8
    sliding = kinds.count("sliding_attention") if tokens else 0
    assert window(config) == ((tokens, sliding) if sliding else (0, 0))


@pytest.mark.slow
def test_windows_of_the_registered_models_are_known():
    disagree = {}
    for alias in MODELS:
        config = build.model_config(MODELS, alias)
        if windowed(config) is not refused(config):
            disagree[alias] = windowed(config)
    assert not disagree


def test_what_is_known_of_published_models():
    known = {"mistral-7b-v0.1": True, "zephyr-7b-beta": True, "mistral-7b-v0.3": False, "mistral-nemo-12b": False,
             "gemma-2-9b": True, "gemma-3-1b": True, "gemma-7b": False, "phi-3-mini-4k": True, "qwen2.5-7b": False,
             "llama-3.1-8b": False, "smollm3-3b": False}  # fmt: skip
    facts = {alias: find_model(alias) for alias in known}
    assert {alias: one.windowed for alias, one in facts.items() if one is not None} == known
