"""trl's trainer of the run's method with what every run adds to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .arguments import named
from .bundle import Bundle
from .fault_tolerance import FaultTolerant


class RunTrainer(FaultTolerant):
    """Saves configurations with the key-value cache on, for those who load them; it is off in training."""

    use_cache_saved = True
    data_facts: dict[str, int] | None = None
    model: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves as trl does, and pushes nothing."""
        self.model.config.use_cache = self.use_cache_saved
        try:
            super().save_model(output_dir, True)  # type: ignore[misc]
        finally:
            self.model.config.use_cache = False


def library_class(bundle: Bundle) -> Any:
    """trl's own trainer of the bundle's class of arguments: "trl.DPOConfig" has "trl.DPOTrainer"."""
    return named(bundle.config.removesuffix("Config") + "Trainer")


def trainer_class(bundle: Bundle) -> Any:
    """trl's trainer of the bundle's method, with what this run adds to it."""
    bases = [RunTrainer, library_class(bundle)]
    if bundle.uses("trainer_parts"):
        from ..features import trainer_parts

        bases = trainer_parts.bases(bundle, *bases)
    return type("Trainer", tuple(bases), {})


def build(bundle: Bundle, args: Any, model: Any, load: Callable[[], Any], **parts: Any) -> Any:
    """The trainer over ``model``; ``load`` makes a frozen copy, for the methods that need one. Raises RunError."""
    kind, library = trainer_class(bundle), library_class(bundle)
    if bundle.uses("trainer_parts"):
        from ..features import trainer_parts

        return trainer_parts.build(bundle, kind, sys.modules[library.__module__], args, model, load, parts)
    return kind(model=model, args=args, **parts)
