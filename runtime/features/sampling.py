"""Completions that the model writes while it trains are sampled as the bundle states."""

from __future__ import annotations

from inspect import signature
from typing import Any


def sample_as_stated(model: Any) -> None:
    """Has ``generate`` sample as the trainer states it.

    transformers 4.50 to 4.57 puts values of the model's own generation_config.json in the place of those that are
    stated and happen to be defaults (temperature 1.0, top_p 1.0), for models that such a version has saved
    (generation/utils.py, ``_prepare_generation_config``). What is saved names the version that saves, as always.
    """
    if "use_model_defaults" in signature(model.generate).parameters:
        model.generation_config.transformers_version = "4.49.0"
