"""Build trl's trainer for the run's method, with the additions of the run's features."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from . import made
from .arguments import load_class
from .feature import Bundle, Model

Maker = Callable[[], Any]
"""A function without arguments that returns the trainer's class or the loaded model."""


def build(bundle: Bundle, kind: Maker, model: Model, load: Maker, **options: Any) -> tuple[Any, set[str]]:
    """Return a pair: the trainer of ``model``, and the names of the weights that it should train (``made.check``).

    ``kind()`` returns the trainer's class, such as "trl.DPOTrainer" if the arguments' class is "trl.DPOConfig".
    ``load()`` loads the model once more. Raises RunError.
    """
    module = sys.modules[load_class(bundle.config.removesuffix("Config") + "Trainer").__module__]
    for feature in bundle.features:
        feature.trainer_options(bundle, model, load, options)
    stated = made.trained(model)
    with ExitStack() as contexts:
        for feature in bundle.features:
            contexts.enter_context(feature.making_trainer(bundle, model, module, load))
        trainer = kind()(model=model, **options)
    for feature in bundle.features:
        feature.trainer_made(bundle, trainer, options["processing_class"])
    return trainer, stated
