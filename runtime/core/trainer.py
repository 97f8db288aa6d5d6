"""trl's trainer of the run's method with what every run adds to it."""

import sys
from collections.abc import Callable
from typing import Any

from .arguments import named
from .bundle import Bundle
from .fault_tolerance import FaultTolerant


def library_class(bundle: Bundle) -> Any:
    """trl's own trainer of the bundle's class of arguments: "trl.DPOConfig" has "trl.DPOTrainer"."""
    return named(bundle.config.removesuffix("Config") + "Trainer")


def trainer_class(bundle: Bundle) -> Any:
    """trl's trainer of the bundle's method, with what this run adds to it."""
    mixins = [part.TrainerMixin for part in reversed(bundle.parts("TrainerMixin"))]
    return type("Trainer", (*mixins, FaultTolerant, *bundle.changed("bases", [library_class(bundle)])), {})


def build(bundle: Bundle, args: Any, model: Any, load: Callable[[], Any], **parts: Any) -> Any:
    """The trainer over ``model``; ``load`` makes a frozen copy, for the methods that need one. Raises RunError."""
    kind, library = trainer_class(bundle), library_class(bundle)
    make = bundle.changed("trainer_maker", kind, sys.modules[library.__module__], load)
    return make(model=model, args=args, **parts)
