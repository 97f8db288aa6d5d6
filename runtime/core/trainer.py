"""trl's trainer of the run's method with what every run adds to it, and the parts that it is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .arguments import named
from .bundle import Bundle
from .fault_tolerance import FaultTolerant


class RunTrainer(FaultTolerant):
    """What every trainer here does otherwise than trl's: saved configurations have the key-value cache on.

    In training it is off. Every save goes through ``save_model`` (checkpoints too: Trainer._save_checkpoint,
    transformers 4.52 and 5.23), so a checkpoint that somebody loads to look at generates as fast as the weights do.
    """

    use_cache_saved = True
    data_facts: dict[str, int] | None = None
    model: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves as trl does, and never pushes: features/hub.py does."""
        self.model.config.use_cache = self.use_cache_saved
        try:
            super().save_model(output_dir, True)  # type: ignore[misc]
        finally:
            self.model.config.use_cache = False

    def create_optimizer(self, *given: Any) -> Any:
        """transformers' optimizer without a group that has no weights, as that of biases under adapters.

        DeepSpeed 0.16 drops such a group from its optimizer and not from the schedule, which torch 2.13 refuses. Where
        deepspeed.json names the optimizer, DeepSpeed makes it later, and there are no groups yet.
        """
        optimizer = super().create_optimizer(*given)  # type: ignore[misc]
        groups = getattr(optimizer, "param_groups", None)
        if groups is not None:
            groups[:] = [group for group in groups if group["params"]]
        return optimizer


def library_class(bundle: Bundle) -> Any:
    """trl's own trainer of the bundle's class of arguments: "trl.DPOConfig" has "trl.DPOTrainer"."""
    return named(bundle.config.removesuffix("Config") + "Trainer")


def trainer_class(bundle: Bundle) -> Any:
    """trl's trainer of the bundle's method, with what this run adds to it."""
    added: list[Any] = [RunTrainer]
    below: list[Any] = []
    if bundle.uses("evaluation"):
        from ..features import evaluation

        added.insert(0, evaluation.Evaluating)
        below.append(evaluation.named_log())
    if bundle.uses("checkpoint_rotation"):
        from ..features.checkpoint_rotation import Rotating

        added.insert(0, Rotating)
    if bundle.uses("hub"):
        from ..features.hub import Publishing

        added.insert(0, Publishing)
    if bundle.uses("adapters"):
        from ..features.adapters import Adapting

        added.insert(0, Adapting)
    if bundle.uses("distillation"):
        from ..features import distillation

        if distillation.lacks(library_class(bundle)):
            added.append(distillation.OnPolicy)
    return type("Trainer", (*added, library_class(bundle), *below), {})


def build(bundle: Bundle, args: Any, model: Any, load: Callable[[], Any], **parts: Any) -> Any:
    """The trainer of the bundle's method over ``model``, with adapters and rewards. Raises RunError.

    ``load`` makes the model anew, for the methods that hold a frozen copy beside the trained one.
    """
    kind, module = trainer_class(bundle), sys.modules[library_class(bundle).__module__]
    if bundle.uses("adapters"):
        from ..features import adapters

        parts["peft_config"] = adapters.adapter(bundle)
    if bundle.uses("frozen_weights"):
        from ..features import frozen_weights

        frozen_weights.freeze(bundle, model)
    if bundle.uses("rewards"):
        from ..features import rewards

        parts["reward_funcs"] = rewards.functions(bundle)
        rewards.read_tokens_alone(parts["processing_class"], model)
    if bundle.uses("sampling"):
        from ..features import sampling

        sampling.sample_as_stated(model)
    if bundle.uses("distillation"):
        from ..features import distillation

        parts["teacher_model"] = distillation.teacher(bundle)
    with ExitStack() as replaced:
        if bundle.uses("reference_model"):
            from ..features import reference_model

            if reference_model.is_given(bundle):
                parts["ref_model"] = load()
            replaced.enter_context(reference_model.loaded_by(bundle, module, load, model))
        if bundle.uses("weight_dtypes"):
            from ..features import weight_dtypes

            kept = replaced.enter_context(weight_dtypes.unrounded(bundle, module))
        trainer = kind(model=model, args=args, **parts)
    if bundle.uses("distillation"):
        from ..features import distillation

        distillation.learn_as_written(trainer, parts["processing_class"])
    if bundle.method in bundle.stack["losses_not_divided"]:
        # The other trainers of trl 0.18 say so themselves. Without it transformers takes their loss, a mean over the
        # pairs of a micro-batch, for one that is already divided by the accumulation: a sum of gradients, not a mean.
        trainer.model_accepts_loss_kwargs = False
    if bundle.uses("weight_dtypes"):
        from ..features import weight_dtypes

        weight_dtypes.restore(trainer.model, kept)
        models = (trainer.model, getattr(trainer, "ref_model", None))
        weight_dtypes.check(bundle, *(one for one in models if one is not None))
    if bundle.uses("adapters"):
        from ..features import adapters

        adapters.settle(bundle, trainer)
    return trainer
