"""Import axolotl's changes to the model's config.json, and its options for reading quantized weights."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.rope import from_mapping
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, is_stated, text

NEUTRAL = {
    "use_cache": "training keeps no cache of keys and values",
    "pad_token_id": "the trainer sets the tokenizer's padding token in the model",
}
"""Maps each key of config.json that does not affect training to the reason."""


def configured(draft: Draft, named: Entries) -> None:
    """Import `model_config`, or `overrides_of_model_config`, which is its newer name.

    RoPE scaling becomes a setting. A value that does not affect training, or that the model or trainer has anyway, has
    no effect. Any other change of config.json is an error.
    """
    known = registry.find_model(draft.model)
    for name in ("model_config", "overrides_of_model_config"):
        for key, one in named.get(name, Entry("", {}, "", 0)).mapping.items():
            if key == "rope_scaling":
                from_mapping(draft, one)
            elif key in NEUTRAL:
                draft.note(one, NEUTRAL[key])
            elif key == "tie_word_embeddings" and known is not None and boolean(one) is known.tied:
                draft.note(one, "the same value as in the model's config.json")
            elif key == "output_router_logits" and boolean(one) and "router_aux_loss_coef" in draft.stack.fields():
                draft.note(
                    one, "a bundle adds the router's auxiliary loss with the coefficient in the model's config.json"
                )
            else:
                draft.error(one, "a bundle uses the model's config.json unchanged",
                            f"set `{key}` in the config.json of a copy of the model")  # fmt: skip


def mxfp4(draft: Draft, named: Entries) -> None:
    """Import `model_quantization_config`. `Mxfp4Config` with `dequantize: true` is kept in a comment, because
    transformers decides how to load MXFP4 weights. Any other value is an error.
    """
    config, more = named.get("model_quantization_config"), named.get("model_quantization_config_kwargs")
    opened = more is not None and "dequantize" in more.mapping and boolean(more.mapping["dequantize"]) is True
    if config is not None and config.value == "Mxfp4Config" and opened and more is not None:
        for one in (config, *more.mapping.values()):
            draft.reserve(one, f"{one.key}: {text(one)}", "transformers decides how to load MXFP4 weights")
    elif is_stated(config):
        draft.error(config, "a bundle loads the weights as they are stored")
