"""Load the model and its tokenizer exactly as the bundle states, and save them."""

import os

from . import made
from .checkpoint_integrity import set_default_mode
from .errors import RunError, first_line
from .feature import Bundle, Model, ModelClass, Tokenizer, Trainer


def load_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer with the bundle's template, end and padding tokens. Raises RunError for an unknown token."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(bundle.model_path, **bundle.loading())
    except (OSError, ValueError) as error:
        raise RunError(f"cannot load the tokenizer of {bundle.model_path}: {first_line(error)}") from error
    for feature in bundle.features:
        feature.tokenizer_loaded(bundle, tokenizer)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(bundle: Bundle, tokenizer: Tokenizer) -> Model:
    """The model object in the dtype that the bundle states. trl gets this object and not the model's name, because with
    a name trl would choose the dtype itself.

    The run's TrainingArguments already exist, so ``zero.Init`` of ZeRO-3 is active here.
    """
    import torch
    from transformers import AutoModelForCausalLM

    plan = bundle.model
    for feature in bundle.features:
        feature.before_model(bundle)
    options = bundle.loading()
    options[bundle.stack["dtype_keyword"]] = getattr(torch, plan["dtype"])
    options["attn_implementation"] = plan["attn_implementation"]
    if not plan.get("pickle"):  # unpickling weights can run code, so it is allowed only with `pickle` in the spec
        options["use_safetensors"] = True
    try:
        kind: ModelClass = AutoModelForCausalLM
        for feature in bundle.features:
            kind = feature.model_class(bundle, kind)
            feature.model_options(bundle, options)
        model, info = kind.from_pretrained(bundle.model_path, output_loading_info=True, **options)
    except (OSError, ValueError, ImportError) as error:
        if not plan.get("pickle") and "safetensors" in str(error):
            advice = "`model { pickle }` in the spec allows pickled weights"
            raise RunError(f"{bundle.model_path} has no weights in safetensors; {advice}") from error
        raise RunError(f"cannot load {bundle.model_path}: {first_line(error)}") from error
    made.loaded(model, info, bundle.model_path, bundle.plan["method"]["scores"])
    model.config.use_cache = False  # the KV cache is useless in training, and conflicts with activation checkpointing
    for feature in bundle.features:
        feature.model_loaded(bundle, model, tokenizer)
    align_tokens(model, tokenizer)
    return model


def align_tokens(model: Model, tokenizer: Tokenizer) -> None:
    """Give the model the tokenizer's end and padding tokens. The model keeps other end tokens (Llama 3 has three)."""
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.config.eos_token_id = eos
    model.config.pad_token_id = pad
    generation = getattr(model, "generation_config", None)
    if generation is None:  # a reward model does not generate, so it needs no generation settings
        return
    token_ids = generation.eos_token_id
    token_ids = [] if token_ids is None else [token_ids] if isinstance(token_ids, int) else list(token_ids)
    others = [token for token in token_ids if token != eos]
    generation.eos_token_id = [eos, *others] if others else eos
    generation.pad_token_id = pad


def save_final(bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
    """Save weights, configuration and tokenizer to output_dir. Raises RunError if no weights were written."""
    output_dir = trainer.args.output_dir
    for feature in bundle.features:
        feature.before_final_save(bundle, trainer)
    trainer.save_model(output_dir)
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(output_dir)
        set_default_mode(output_dir, os.listdir(output_dir))
        if not any(name.endswith(".safetensors") for name in os.listdir(output_dir)):
            raise RunError(f"the final save wrote no weights to {output_dir}; the newest checkpoint still has them")
    trainer.create_model_card()
    for feature in bundle.features:
        feature.final_saved(bundle, trainer, tokenizer)
