"""Build trl's trainer for the run's method, with the additions of the run's features."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from . import made
from .arguments import load_class
from .feature import Bundle


def build(bundle: Bundle, kind: Callable[[], Any], model: Any, load: Callable[[], Any], **options: Any) -> Any:
    """The trainer of ``model``, made from the class that ``kind()`` returns; ``load()`` loads the model once more.

    trl's class for "trl.DPOConfig" is "trl.DPOTrainer". Raises RunError.
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
    made.check(bundle, trainer, stated)
    return trainer
