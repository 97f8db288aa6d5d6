"""Find out from a `config.json` whether every layer of a model attends to the complete past."""

from __future__ import annotations

from collections.abc import Mapping

ALTERNATING = ("cohere2", "cwm", "exaone4", "gemma2", "gemma3_text", "gpt_oss", "olmo3")
"""Families in which some layers have a sliding window, even if config.json has no `layer_types`."""
SWITCHED = ("qwen2", "qwen2_5_vl", "qwen3", "qwen3_moe", "smollm3")
"""Families that read `sliding_window` only if `use_sliding_window` is on."""
DEFAULTS = {"mistral": 4096, "qwen2": 4096, "qwen2_5_vl": 4096, "qwen3": 4096, "qwen3_moe": 4096, "gemma2": 4096,
            "gemma3_text": 4096, "gpt_oss": 128, "cohere2": 4096, "cwm": 8192, "exaone4": 4096,
            "olmo3": 4096}  # fmt: skip
"""Maps a family to the size of its window in tokens. The size is used if config.json has no `sliding_window`."""
LATE = ("qwen2", "qwen2_5_vl", "qwen3")
"""Families whose first `max_window_layers` layers attend to the complete past."""


def windowed(config: Mapping[str, object]) -> bool:
    """Whether some layer does not attend to all earlier tokens, because it has a window, chunks or a recurrent state.
    False if config.json does not show such a layer.

    A window of null or 0 counts as no window. Source: `layer_types` and `sliding_window` of transformers 5.23's
    configuration classes, as accelerate 1.15 `big_modeling._attach_context_parallel_hooks` reads them.
    """
    kinds, model_type = config.get("layer_types"), str(config.get("model_type"))
    if isinstance(kinds, list):
        return any(kind != "full_attention" for kind in kinds)
    if model_type in ALTERNATING:
        return True
    window = config.get("sliding_window", DEFAULTS.get(model_type))
    if not window or (model_type in SWITCHED and config.get("use_sliding_window") is not True):
        return False
    if model_type in LATE:
        layers, full = config.get("num_hidden_layers"), config.get("max_window_layers", 28)
        return isinstance(layers, int) and isinstance(full, int) and layers > full
    # only layers without rotary positions have a sliding window; by default, this is every fourth layer
    if model_type == "smollm3":
        layers, every = config.get("num_hidden_layers"), config.get("no_rope_layer_interval", 4)
        return isinstance(layers, int) and isinstance(every, int) and layers >= every
    return True


def window(config: Mapping[str, object]) -> tuple[int, int]:
    """Return a pair: the size of the sliding window in tokens, and the number of layers that have it. Returns (0, 0) if
    no layer has a window, or if this is unknown.

    Source: the configuration classes of transformers 5.23, which list the kind of each layer.
    """
    layers, model_type = config.get("num_hidden_layers"), str(config.get("model_type"))
    tokens = config.get("sliding_window", DEFAULTS.get(model_type))
    if model_type in SWITCHED and config.get("use_sliding_window") is not True:
        tokens = None
    if not windowed(config) or not isinstance(tokens, int) or not isinstance(layers, int):
        return 0, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return tokens, kinds.count("sliding_attention")
    whole = 0
    if model_type in ("gemma2", "gpt_oss"):
        whole = layers // 2
    elif model_type == "olmo3":
        whole = layers // 4
    # in cwm, the first of every four layers attends to all earlier tokens; in olmo3, the last of every four
    elif model_type == "cwm":
        whole = -(-layers // 4)
    elif model_type in ("cohere2", "exaone4", "gemma3_text"):
        every = config.get("sliding_window_pattern", 6 if model_type == "gemma3_text" else 4)
        whole = layers // every if isinstance(every, int) and every else 0
    elif model_type == "smollm3":
        every = config.get("no_rope_layer_interval", 4)
        whole = layers - layers // every if isinstance(every, int) and every else 0
    elif model_type in LATE:
        full = config.get("max_window_layers", 28)
        whole = full if isinstance(full, int) else 0
    return tokens, layers - whole
