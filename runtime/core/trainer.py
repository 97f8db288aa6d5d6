"""trl's trainer of the run's method with what the features of the run add to it."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .arguments import load_class
from .feature import Bundle


def build(bundle: Bundle, kind: Callable[[], Any], model: Any, load: Callable[[], Any], **options: Any) -> Any:
    """The trainer over ``model``, of the class that ``kind`` gives; ``load`` loads the model once more.

    trl's own class of "trl.DPOConfig" is "trl.DPOTrainer". Raises RunError.
    """
    module = sys.modules[load_class(bundle.config.removesuffix("Config") + "Trainer").__module__]
    for feature in bundle.features:
        feature.trainer_options(bundle, model, load, options)
    with ExitStack() as contexts:
        for feature in bundle.features:
            contexts.enter_context(feature.making_trainer(bundle, model, module, load))
        trainer = kind()(model=model, **options)
    for feature in bundle.features:
        feature.trainer_made(bundle, trainer, options["processing_class"])
    return trainer
