"""Sample completions during training with the parameters that the bundle states."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from types import ModuleType
from typing import Any

from ...core.feature import Bundle, Feature, Model
from ...library_internals.trl_modules import replaced


class Sampling(Feature):
    """Hooks for a run in which the model generates completions."""

    def before_arguments(self, bundle: Bundle, values: dict[str, object]) -> None:
        """Set the host of the vLLM server, because it is known only at the launch."""
        if values.get("use_vllm") and os.environ.get("XPC_VLLM_HOST"):
            values["vllm_server_host"] = os.environ["XPC_VLLM_HOST"]

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Make `generate` sample with the parameters in the bundle (`sample_as_stated`)."""
        sample_as_stated(model)

    def making_trainer(
        self, bundle: Bundle, model: Model, module: ModuleType, load: Callable[[], Model]
    ) -> AbstractContextManager[object]:
        """Make vLLM load the model at the commit that the bundle pins."""
        return vllm_at_commit(bundle, module)


def vllm_at_commit(bundle: Bundle, module: object) -> AbstractContextManager[None]:
    """A context manager for vLLM in the training process: vLLM's engine loads the model at the bundle's commit.

    trl itself passes only the model's name to the engine.
    """
    # trl 1.16 creates vLLM's engine in the module of VLLMGeneration, and earlier versions in the trainer's module
    maker = getattr(module, "VLLMGeneration", None)
    module = module if maker is None else sys.modules[maker.__module__]
    llm = getattr(module, "LLM", None)  # None without vLLM
    if not bundle.arguments.get("use_vllm") or llm is None or bundle.model["id"] is None:
        return nullcontext()
    revision = bundle.loading()["revision"]
    return replaced(module, {"LLM": partial(llm, revision=revision, tokenizer_revision=revision)})


def sample_as_stated(model: Model) -> None:
    """Make ``generate`` sample with the trainer's parameters.

    If a value is the default (temperature 1.0, top_p 1.0), transformers 4.50 to 4.57 replaces it by the value in the
    model's generation_config.json, unless an earlier version has saved this file (generation/utils.py,
    ``_prepare_generation_config``). Therefore the configuration in memory is marked as saved by an earlier version. The
    mark is never saved.
    """
    if "use_model_defaults" in signature(model.generate).parameters:
        model.generation_config.transformers_version = "4.49.0"
