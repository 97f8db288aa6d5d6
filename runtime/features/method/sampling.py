"""Completions that the model writes while it trains are sampled as the bundle states."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from typing import Any

from ...core.feature import Bundle, Feature
from ...library_internals.trl_modules import replaced


class Sampling(Feature):
    """Completions that the model writes while it trains."""

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Where the vLLM server is: a host is the launch's, and not the bundle's."""
        if values.get("use_vllm") and os.environ.get("XPC_VLLM_HOST"):
            values["vllm_server_host"] = os.environ["XPC_VLLM_HOST"]

    def trainer_options(self, bundle: Bundle, model: Any, load: Callable[[], Any], options: dict[str, Any]) -> None:
        """Has the model sample as stated."""
        sample_as_stated(model)

    def making_trainer(
        self, bundle: Bundle, model: Any, module: Any, load: Callable[[], Any]
    ) -> AbstractContextManager[Any]:
        """Has vLLM load the commit of the bundle."""
        return vllm_at_commit(bundle, module)


def vllm_at_commit(bundle: Bundle, module: Any) -> AbstractContextManager[None]:
    """While it lasts, a vLLM inside of the run loads the commit that the bundle names: trl passes the model's name."""
    maker = getattr(module, "VLLMGeneration", None)  # of trl 1.16; before, the trainer's module makes it
    module = module if maker is None else sys.modules[maker.__module__]
    llm = getattr(module, "LLM", None)  # there where vLLM is installed
    if not bundle.arguments.get("use_vllm") or llm is None or bundle.model["id"] is None:
        return nullcontext()
    revision = bundle.loading()["revision"]
    return replaced(module, {"LLM": partial(llm, revision=revision, tokenizer_revision=revision)})


def sample_as_stated(model: Any) -> None:
    """Has ``generate`` sample as the trainer states it.

    transformers 4.50 to 4.57 puts values of the model's own generation_config.json in the place of those that are
    stated and happen to be defaults (temperature 1.0, top_p 1.0), for models that such a version has saved
    (generation/utils.py, ``_prepare_generation_config``). What is saved names the version that saves, as always.
    """
    if "use_model_defaults" in signature(model.generate).parameters:
        model.generation_config.transformers_version = "4.49.0"
