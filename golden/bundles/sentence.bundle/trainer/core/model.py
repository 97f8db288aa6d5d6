"""The model and its tokenizer, loaded by what the bundle says and nothing else."""

from __future__ import annotations

from typing import Any

from . import bundle_integrity
from .bundle import Bundle
from .errors import RunError


def dtype_keyword() -> str:
    """What the installed transformers calls the type of the weights: `torch_dtype` before 4.56."""
    import transformers

    return "dtype" if tuple(map(int, transformers.__version__.split(".")[:2])) >= (4, 56) else "torch_dtype"


def _where(bundle: Bundle) -> str:
    model = bundle.model
    return str(model["id"]) if model["id"] is not None else bundle.find(model["path"])


def common(bundle: Bundle) -> dict[str, Any]:
    """What every loader of the model, its configuration and its tokenizer is told: which commit, and whose code."""
    revision = bundle.model["revision"] if bundle.model["id"] is not None else None
    return {"revision": revision or "main", "trust_remote_code": bundle.model["trust_remote_code"]}


def load_tokenizer(bundle: Bundle) -> Any:
    """The tokenizer with the bundle's template, end and padding tokens. Raises RunError for an unknown token."""
    from transformers import AutoTokenizer

    wanted = bundle.tokenizer
    try:
        tokenizer = AutoTokenizer.from_pretrained(_where(bundle), **common(bundle))
    except (OSError, ValueError) as error:
        raise RunError(f"cannot load the tokenizer of {_where(bundle)}: {_first_line(error)}") from error
    if wanted["chat_template"]:
        template = bundle_integrity.verified(bundle, wanted["chat_template"]).decode("utf-8-sig")
        tokenizer.chat_template = template.replace("\r\n", "\n").replace("\r", "\n")
    if wanted.get("added"):
        from transformers import AddedToken

        tokenizer.add_tokens([AddedToken(one, normalized=False) for one in wanted["added"]])
    vocabulary = tokenizer.get_vocab()
    for kind in ("eos_token", "pad_token"):
        token = wanted[kind] or bundle.arguments.get(kind)
        if token is None:
            continue
        if token not in vocabulary:
            raise RunError(f"the {kind.replace('_', ' ')} {token!r} is not in the vocabulary of {_where(bundle)}")
        setattr(tokenizer, kind, token)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(bundle: Bundle, tokenizer: Any) -> Any:
    """The model, as an object, in exactly the dtype that the bundle names.

    An object and not a name, because the two stacks differ in what they make of a name: trl 1.16 loads it in float32
    unless told and adds ``device_map="auto"`` outside DDP and DeepSpeed, trl 0.18 takes the checkpoint's dtype
    (RULES P08). The arguments object exists by now, so ``zero.Init`` of ZeRO-3 is active here (transformers keeps it
    alive through ``args.hf_deepspeed_config``), and FSDP's rank-0 loading reads the launcher's environment.

    A reward model is the same weights with one new output, its score, drawn with the seed of the run.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    from ..features.adapters import quantization
    from .weight_dtypes import settle

    plan = bundle.model
    options = common(bundle)
    options[dtype_keyword()] = getattr(torch, plan["dtype"])
    options["attn_implementation"] = plan["attn_implementation"]
    if not plan.get("pickle"):  # a pickle is a program, which the spec asks for by `pickle` or not at all
        options["use_safetensors"] = True
    scored = bundle.method == "reward"
    facts = {**(plan.get("config_overrides") or {}), **({"num_labels": 1} if scored else {})}
    kind = AutoModelForSequenceClassification if scored else AutoModelForCausalLM
    try:
        quantized = quantization(bundle)
        if quantized is not None:
            options["quantization_config"] = quantized
        if facts:
            options["config"] = AutoConfig.from_pretrained(_where(bundle), **common(bundle), **facts)
        model = kind.from_pretrained(_where(bundle), **options)
    except (OSError, ValueError, ImportError) as error:
        if not plan.get("pickle") and "safetensors" in str(error):
            raise RunError(
                f"{_where(bundle)} has no weights in safetensors; `model {{ pickle }}` in the spec allows pickled ones"
            ) from error
        raise RunError(f"cannot load {_where(bundle)}: {_first_line(error)}") from error
    settle(bundle, model)
    model.config.use_cache = False  # useless in training, and at odds with activation checkpointing
    if bundle.tokenizer.get("added"):
        grow(bundle, model, tokenizer)
    align_tokens(model, tokenizer)
    if plan["liger"]:
        apply_liger(bundle, model)
    return model


def grow(bundle: Bundle, model: Any, tokenizer: Any) -> None:
    """Gives the model a row for each token of the tokenizer; new rows are drawn with the seed of the run.

    A reference that is loaded later gets the same rows. Models whose embeddings are longer than the vocabulary have
    rows for new tokens already.
    """
    import torch

    if len(tokenizer) <= model.config.get_text_config().vocab_size:
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(bundle.arguments["seed"]))
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)


def align_tokens(model: Any, tokenizer: Any) -> None:
    """Model and tokenizer agree on the tokens that end and pad; else generation runs on past the end of an answer.

    Other tokens that already end a generation (Llama 3 has three) stay, behind the tokenizer's.
    """
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.config.eos_token_id = eos
    model.config.pad_token_id = pad
    generation = getattr(model, "generation_config", None)
    if generation is None:  # a model that gives scores
        return
    known = generation.eos_token_id
    known = [] if known is None else [known] if isinstance(known, int) else list(known)
    others = [token for token in known if token != eos]
    generation.eos_token_id = [eos, *others] if others else eos
    generation.pad_token_id = pad


def liger_problem(model_type: str) -> str | None:
    """Why Liger's kernels cannot be put into this family, or None."""
    try:
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    except ImportError as error:
        return f"liger-kernel cannot be used: {_first_line(error)}"
    if model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        return f"Liger has no kernels for the family {model_type!r}; leave liger out"
    return None


def apply_liger(bundle: Bundle, model: Any) -> None:
    """Liger's layer kernels (norm, rope, gated MLP) put into the loaded model, where the bundle asks for it.

    trl 1.16 deprecates ``use_liger_kernel`` and computes the loss in its own fused head, so the loss kernels stay off.
    With an older trl the argument does it and this is never called. Raises RunError, where Liger itself only logs,
    when it does not know the family.
    """
    problem = liger_problem(model.config.model_type)
    if problem:
        raise RunError(problem)
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False, cross_entropy=False)


def save_final(trainer: Any, tokenizer: Any) -> None:
    """Leaves weights, configuration and tokenizer in output_dir, whatever the checkpoints hold.

    The configuration has its cache on again (trainer.Trainer.save_model).
    With SHARDED_STATE_DICT, accelerate's default for FSDP2, ``save_model`` writes nothing at all (RULES D07): the final
    save switches to the full state dict. Raises RunError when no weights were left behind.
    """
    import os

    output_dir = trainer.args.output_dir
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is not None:
        save_whole(plugin)
    trainer.save_model(output_dir)
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(output_dir)
        if not any(name.endswith(".safetensors") for name in os.listdir(output_dir)):
            raise RunError(f"the final save left no weights in {output_dir}; the newest checkpoint still has them")


def save_whole(plugin: Any) -> None:
    """Switches accelerate's FSDP plugin to the full state dict; the settings of the sharded one do not fit it."""
    plugin.state_dict_config = plugin.optim_state_dict_config = None
    plugin.set_state_dict_type("FULL_STATE_DICT")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
