"""Compare the objects that the libraries built with the bundle: loaded weights, precision, batch, trained weights.

A setting can be accepted and still have no effect: peft skips a target that matches no module, transformers initializes
a head that the checkpoint lacks, and accelerate reads its precision from the environment. So before the first step,
``check`` compares `Row` tuples (what, stated, made), such as ("the micro-batch", 4, 4). Features add their own.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..library_internals.transformers_trainer import attention
from .errors import RunError
from .feature import Bundle, Model, Trainer

Row = tuple[str, object, object]
"""A name for messages, the value that the bundle states, and the value that the built object has."""
OTHER_TASKS = ("Classification", "QuestionAnswering", "MultipleChoice")
"""Class names of models that have a head for another task than text generation end with one of these words."""
PRECISION_VARIABLE = "ACCELERATE_MIXED_PRECISION"


def loaded(model: Model, info: Mapping[str, Any], place: str, scores: bool = False) -> object:
    """Return the model that was loaded from ``place``. Raises RunError if the checkpoint lacks some of its weights.

    ``info`` is transformers' loading info. With ``scores`` (a reward model), the checkpoint may lack the head.
    """
    saved = next(iter(getattr(model.config, "architectures", None) or ()), "")
    if not scores and saved.endswith(OTHER_TASKS):
        raise RunError(
            f"{place} is a checkpoint of {saved}, whose output head was not trained for text; name a language model"
        )
    prefix = f"{model.base_model_prefix}."
    missing = {name for name in info["missing_keys"] if not scores or name.startswith(prefix)}
    missing &= {name for name, _ in model.named_parameters()}
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RunError(
            f"{place} has no weights for {min(missing)}{more}, and {type(model).__name__} needs them: they would be "
            "initialized at random" + (f" (the checkpoint was saved by {saved})" if saved else "")
        )
    return model


def trained(model: Model) -> set[str]:
    """The names of the trained weights (weights that require a gradient)."""
    return {name for name, weight in model.named_parameters() if weight.requires_grad}


def check(bundle: Bundle, trainer: Trainer, stated: set[str]) -> None:
    """Compare the trainer with the bundle. ``stated`` has the names of the weights that should be trained.

    Raises RunError that lists both values of each difference.
    """
    rows = compared(bundle, trainer, stated)
    wrong = [f"{what} is {made}, and the bundle states {value}" for what, value, made in rows if made != value]
    if wrong:
        found = os.environ.get(PRECISION_VARIABLE)
        hint = f" (the environment has {PRECISION_VARIABLE}={found})" if found and "precision" in wrong[0] else ""
        raise RunError(f"the libraries did not build the run as stated: {'; '.join(wrong)}{hint}")


def compared(bundle: Bundle, trainer: Trainer, stated: set[str]) -> Iterator[Row]:
    """Yield all comparisons (tuples, see `Row`): first those that every run makes, then those of the run's features."""
    plan, run, args = bundle.arguments, bundle.run, trainer.args
    accelerator, model = trainer.accelerator, trainer.model
    precision = "bf16" if plan.get("bf16") else "fp16" if plan.get("fp16") else "fp8" if "fp8" in run else "no"
    yield "the mixed precision of accelerate", precision, str(accelerator.mixed_precision)
    yield "the device", run["device"], accelerator.device.type
    yield "the micro-batch", plan["per_device_train_batch_size"], args.train_batch_size
    yield "the gradient accumulation", plan["gradient_accumulation_steps"], args.gradient_accumulation_steps
    compiler = plan.get("torch_compile_backend") or ("inductor" if plan.get("torch_compile") else "no")
    yield "the compiler (torch_compile)", compiler, accelerator.state.dynamo_plugin.backend.value.lower()
    if not bundle.on_cpu:
        stated_tf32 = bool(plan.get("tf32"))
        tf32 = {"0": False, "1": True}.get(os.environ.get("NVIDIA_TF32_OVERRIDE", ""), stated_tf32)
        yield "TF32 (NVIDIA_TF32_OVERRIDE)", stated_tf32, tf32
    yield "the attention", bundle.model["attn_implementation"], attention(model)
    if bundle.lora is None:
        changed = stated ^ trained(model)
        yield "the number of trained weights", len(stated), len(stated ^ changed)
        kinds = {str(one.dtype).removeprefix("torch.") for one in model.parameters() if one.requires_grad}
        kinds -= {"float32"} if len(kinds) > 1 else set()  # ignore the few weights that some models keep in float32
        yield "the dtype of trained weights", bundle.model["dtype"], ", ".join(sorted(kinds))
    for feature in bundle.features:
        yield from feature.made(bundle, trainer)
