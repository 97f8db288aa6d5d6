"""Continue training the adapter of another run, of which only the weights are loaded."""

import os
from contextlib import nullcontext
from typing import Any

from ...core import bundle_integrity
from ...core.errors import RunError, first_line, say
from ...core.feature import Bundle, Feature
from ..launch import local_files
from ..launch.verified_files import changed

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
    """The feature of a run that continues the adapter of another run."""

    def check_access(self, bundle: Bundle) -> list[str]:
        """Findings about the adapter's folder."""
        try:
            find(bundle)
        except RunError as error:
            return [str(error)]
        return []

    def trainer_made(self, bundle: Bundle, trainer: Any, tokenizer: Any) -> None:
        """Load the weights into the trainer's adapter."""
        load(bundle, trainer)


def load(bundle: Bundle, trainer: Any) -> None:
    """Load the weights into the trainer's adapter. Raises RunError if they do not match.

    Everything else is as in a new run: dtypes, trained weights, the reference.
    """
    import torch
    from peft import load_peft_weights, set_peft_model_state_dict

    place, model = find(bundle), trainer.model
    weights = load_peft_weights(place, device="cpu")
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    shards = [weight for weight in trained if hasattr(weight, "ds_id")]  # modules that ZeRO-3 has already sharded
    gathered: Any = nullcontext()
    if shards:
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(shards, modifier_rank=0)
    try:
        with gathered, torch.no_grad():
            result = set_peft_model_state_dict(model, weights)
    except (RuntimeError, KeyError) as error:
        raise RunError(f"the adapter in {place} does not fit the model: {first_line(error)}") from error
    names = {name for name, weight in model.named_parameters() if weight.requires_grad}
    missing, unexpected = sorted(names & set(result.missing_keys)), list(result.unexpected_keys)
    if missing or unexpected:
        what = f"has no weights for {missing[0]}" if missing else f"has weights for {unexpected[0]}, which is not there"
        raise RunError(f"the adapter in {place} does not fit the model: it {what}")
    say(
        f"training continues the adapter in {place} ({len(weights)} weights); optimizer, schedule, steps, order "
        "of rows and random states start from the beginning"
    )
