"""Continue training the adapter of another run. Of the other run, only the adapter's weights are loaded."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import ModuleType
from typing import Any

from ...core import bundle_integrity
from ...core.errors import RunError, first_line, say
from ...core.feature import Bundle, Feature, Model, Tokenizer, Trainer
from ...library_internals.trl_modules import replaced
from ..launch import local_files
from ..launch.verified_files import changed
from .adapters import ADAPTER, REFERENCE, add_reference

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def find(bundle: Bundle) -> str:
    """The adapter's folder. Raises RunError if it is missing, has no weights, or its configuration has changed."""
    assert bundle.lora is not None
    stated = bundle.lora["continued"]
    place = local_files.find(bundle.folder, stated["path"])
    for name in (CONFIG, WEIGHTS):
        if not os.path.isfile(os.path.join(place, name)):
            raise RunError(f"{place} has no {name}: training cannot continue the adapter")
    config = os.path.join(place, CONFIG)
    if bundle_integrity.digest(config) != "sha256:" + stated["sha256"]:
        raise changed(config)
    return place


class ContinuedAdapter(Feature):
    """Hooks for a run that continues the adapter of another run."""

    def check_access(self, bundle: Bundle) -> list[str]:
        """A finding if the folder of the adapter to continue is missing or cannot be used."""
        try:
            find(bundle)
        except RunError as error:
            return [str(error)]
        return []

    def making_trainer(
        self, bundle: Bundle, model: Model, module: ModuleType, load: Callable[[], Model]
    ) -> AbstractContextManager[object]:
        """Load the earlier run's adapter into the trainer's model, and a frozen copy of it as the reference.

        This happens here because some trainers use the copy in their constructor. If the installed trl's trainer keeps
        no such copy, this hook does nothing, and `trainer_made` loads the weights.
        """
        if not is_reference(bundle):
            return nullcontext()
        make = module.get_peft_model
        return replaced(
            module, {"get_peft_model": lambda *args, **kwargs: with_reference(bundle, make(*args, **kwargs))}
        )

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Load the weights of the earlier run's adapter into the trainer's adapter."""
        if not is_reference(bundle):
            load_weights(bundle, trainer.model)

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Compare the trainer's reference model with the bundle: the base with this adapter, or the base alone."""
        names = {True: "the adapter", False: "the base"}
        yield "the reference", names[is_reference(bundle)], names[REFERENCE in trainer.model.peft_config]


def is_reference(bundle: Bundle) -> bool:
    """Whether the reference is the adapter from which training starts. If not, the reference is the base."""
    assert bundle.lora is not None
    return bool(bundle.lora["continued"].get("reference"))


def with_reference(bundle: Bundle, model: Model) -> object:
    """Load the earlier run's weights into two adapters: the model's adapter, and a frozen one, "ref", which is trl's
    reference.

    The frozen adapter is not saved: every start of the run makes it again.
    """
    load_weights(bundle, model)
    add_reference(model, model.peft_config[ADAPTER])
    load_weights(bundle, model, REFERENCE)
    model.save_pretrained = partial(model.save_pretrained, selected_adapters=[ADAPTER])
    return model


def load_weights(bundle: Bundle, model: Model, adapter: str = ADAPTER) -> None:
    """Load the weights of the other run's adapter into an adapter of the model. Raises RunError if they do not fit.

    The adapter keeps its dtypes. The same weights are trainable as in a run with a new adapter.
    """
    import torch
    from peft import load_peft_weights, set_peft_model_state_dict

    place = find(bundle)
    weights = load_peft_weights(place, device="cpu")
    own = {name: weight for name, weight in model.named_parameters() if f".{adapter}." in f"{name}."}
    trained = list(own.values())
    # only weights that ZeRO-3 has sharded have a `ds_id`
    shards = [weight for weight in trained if hasattr(weight, "ds_id")]
    gathered: Any = nullcontext()
    if shards:
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(shards, modifier_rank=0)
    try:
        with gathered, torch.no_grad():
            result = set_peft_model_state_dict(model, weights, adapter_name=adapter)
    except (RuntimeError, KeyError) as error:
        raise RunError(f"the adapter in {place} does not fit the model: {first_line(error)}") from error
    missing, unexpected = sorted(own.keys() & set(result.missing_keys)), list(result.unexpected_keys)
    if missing or unexpected:
        what = (
            f"has no weights for {missing[0]}" if missing else f"has weights for {unexpected[0]}, which the model lacks"
        )
        raise RunError(f"the adapter in {place} does not fit the model: it {what}")
    if adapter == REFERENCE:
        return
    say(
        f"training continues the adapter in {place} ({len(weights)} weights); optimizer, schedule, steps, order "
        "of rows and random states start from the beginning"
    )
