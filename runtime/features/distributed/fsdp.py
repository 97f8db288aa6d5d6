"""FSDP: wrap only classes of layers that the model has, check files in a checkpoint, and save complete weights."""

import json
import os
from collections.abc import Iterator
from typing import Any

from ...core.checkpoints import archive_complete, schedule
from ...core.feature import Bundle, Feature, Model, Tokenizer, Trainer
from ...library_internals.accelerate_fsdp import gather_to_generate, list_own_layers, load_sharded_states
from ..saving.transformers_checkpoints import TransformersCheckpoints

WRAPS = {
    "transformer_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "size_based_auto_wrap_policy": "SIZE_BASED_WRAP",
    "NoneType": "NO_WRAP",
}  # fmt: skip
"""Maps the names of torch's wrap policies to their names in accelerate's configuration."""


def _folder_complete(path: str) -> bool:
    sizes = {name: os.path.getsize(os.path.join(path, name)) for name in os.listdir(path)}
    return ".metadata" in sizes and len(sizes) > 1 and all(sizes.values())


class Fsdp(Feature):
    """Hooks for a run with fully sharded data parallelism."""

    def check_checkpoint(self, path: str, world: int) -> str | None:
        """Check FSDP's files: ``pytorch_model_fsdp.bin`` and ``optimizer.bin`` (full), or folders of shards (``_0``).

        In a folder of shards, torch writes the file ``.metadata`` last, when every process has written its shard.
        """
        names = os.listdir(path)
        if not any(name.startswith("pytorch_model_fsdp") for name in names):
            return TransformersCheckpoints().check_checkpoint(path, world)
        late = schedule(path)
        if late is not None:
            return late
        for kind in ("pytorch_model_fsdp", "optimizer"):
            found = [os.path.join(path, name) for name in names if name.startswith(kind)]
            if not found:
                return f"{kind} is missing"
            for place in found:
                if not (_folder_complete(place) if os.path.isdir(place) else archive_complete(place)):
                    return f"{os.path.basename(place)} is cut off"
        return None

    def model_loaded(self, bundle: Bundle, model: Model, tokenizer: Tokenizer) -> None:
        """Let accelerate wrap only classes of layers that the model has."""
        list_own_layers(model)

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Compare accelerate's plugin with accelerate.yaml, because environment variables (``FSDP_...``) may override
        the file."""
        plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
        if plugin is None:
            yield "the sharding of accelerate", "FSDP", "off"
            return
        stated = stated_settings(bundle.inside("accelerate.yaml"))
        for name, value in plugin_settings(plugin).items():
            if name in stated:
                yield f"{name} of accelerate", stated[name], value

    def before_training(self, bundle: Bundle, trainer: Trainer) -> None:
        """Let the trainer load the optimizer's states of a sharded checkpoint, and a model with adapters generate."""
        load_sharded_states()
        if bundle.lora is not None and getattr(trainer.accelerator.state.fsdp_plugin, "fsdp_version", 1) == 2:
            gather_to_generate(trainer.model)

    def before_first_step(self, bundle: Bundle, trainer: Trainer) -> None:
        """Let FSDP2 count a missing gradient as 0, such as that of an expert that got no token in this process.

        Otherwise the processes would add the gradients of different weights, or wait for each other.
        """
        for module in trainer.model.modules():
            if hasattr(module, "set_reduce_scatter_unused_params"):
                module.set_reduce_scatter_unused_params(True, recurse=False)

    def before_final_save(self, bundle: Bundle, trainer: Trainer) -> None:
        """Save the complete weights in one piece, not in shards."""
        use_full_state_dict(trainer.accelerator.state.fsdp_plugin)


def stated_settings(path: str) -> dict[str, str]:
    """FSDP's settings in accelerate.yaml, with values in upper case. Each is one line with a JSON value."""
    out = {}
    with open(path, encoding="utf-8") as handle:
        for line in handle:
            name, _, value = line.strip().partition(": ")
            if name.startswith("fsdp_") and value:
                out[name] = str(json.loads(value)).upper()
    return out


def plugin_settings(plugin: Any) -> dict[str, str]:
    """The settings of accelerate's FSDP plugin that decide how a model is sharded. They have the names of
    accelerate.yaml; their values are in upper case.
    """
    version, offload, policy = getattr(plugin, "fsdp_version", 1), plugin.cpu_offload, plugin.auto_wrap_policy
    out: dict[str, Any] = {
        "fsdp_version": version,
        "fsdp_offload_params": getattr(offload, "offload_params", type(offload).__name__ == "CPUOffloadPolicy"),
        "fsdp_state_dict_type": plugin.state_dict_type.name,
        "fsdp_activation_checkpointing": bool(plugin.activation_checkpointing),
    }
    wrap = WRAPS.get(getattr(getattr(policy, "func", policy), "__name__", type(policy).__name__))
    if wrap is not None:
        out["fsdp_auto_wrap_policy"] = wrap
    if version == 1:
        out["fsdp_sharding_strategy"] = (plugin.sharding_strategy or plugin.reshard_after_forward).name
        out["fsdp_use_orig_params"] = bool(plugin.use_orig_params)
    else:
        out["fsdp_reshard_after_forward"] = plugin.reshard_after_forward
    return {name: str(value).upper() for name, value in out.items()}


def use_full_state_dict(plugin: Any) -> None:
    """Switch accelerate's FSDP plugin to the full state dict, and remove the settings of the sharded state dict.

    With SHARDED_STATE_DICT, which is accelerate's default for FSDP2, ``save_model`` would write nothing at all.
    """
    plugin.state_dict_config = plugin.optim_state_dict_config = None
    plugin.set_state_dict_type("FULL_STATE_DICT")
