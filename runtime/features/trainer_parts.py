"""What features add to the making of trl's trainer: the parts that it is made of, and what it needs once made."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from ..core.bundle import Bundle


def trainer_maker(bundle: Bundle, kind: Any, module: Any, load: Callable[[], Any]) -> Callable[..., Any]:
    """What makes the trainer of this class."""
    return partial(_build, bundle, kind, module, load)


def _build(bundle: Bundle, kind: Any, module: Any, load: Callable[[], Any], model: Any, args: Any, **parts: Any) -> Any:
    """The trainer of this class over ``model``, with adapters, rewards and a second model. Raises RunError.

    ``module`` is trl's of the trainer.
    """
    if bundle.uses("adapters"):
        from . import adapters

        parts["peft_config"] = adapters.adapter(bundle)
    if bundle.uses("frozen_weights"):
        from . import frozen_weights

        frozen_weights.freeze(bundle, model)
    if bundle.uses("rewards"):
        from . import rewards

        parts["reward_funcs"] = rewards.functions(bundle)
        rewards.read_tokens_alone(parts["processing_class"], model)
    if bundle.uses("sampling"):
        from . import sampling

        sampling.sample_as_stated(model)
    if bundle.uses("distillation"):
        from . import distillation

        parts["teacher_model"] = distillation.teacher(bundle)
    if bundle.uses("early_stopping"):
        from .early_stopping import EarlyStopping

        parts["callbacks"] = [EarlyStopping(bundle.run["patience"]), *parts["callbacks"]]
    with ExitStack() as replaced:
        if bundle.uses("reference_model"):
            from . import reference_model

            if reference_model.is_given(bundle):
                parts["ref_model"] = load()
            replaced.enter_context(reference_model.loaded_by(bundle, module, load, model))
        if bundle.uses("weight_dtypes"):
            from . import weight_dtypes

            kept = replaced.enter_context(weight_dtypes.unrounded(bundle, module))
        if bundle.uses("sampling"):
            from . import sampling

            replaced.enter_context(sampling.vllm_at_commit(bundle, module))
        trainer = kind(model=model, args=args, **parts)
    if bundle.uses("distillation"):
        from . import distillation

        distillation.learn_as_written(trainer, parts["processing_class"])
    if bundle.method in bundle.stack["losses_not_divided"]:
        # The other trainers of trl 0.18 say so themselves. Without it transformers takes their loss, a mean over the
        # pairs of a micro-batch, for one that is already divided by the accumulation: a sum of gradients, not a mean.
        trainer.model_accepts_loss_kwargs = False
    if bundle.uses("weight_dtypes"):
        from . import weight_dtypes

        weight_dtypes.restore(trainer.model, kept)
        models = (trainer.model, getattr(trainer, "ref_model", None))
        weight_dtypes.check(bundle, *(one for one in models if one is not None))
    if bundle.uses("adapters"):
        from . import adapters

        adapters.settle(bundle, trainer)
    if bundle.uses("hub"):
        from . import hub

        hub.attach(bundle, trainer)
    return trainer
