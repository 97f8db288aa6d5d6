"""FSDP: check its files in a checkpoint, and save complete weights at the end."""

import os
from typing import Any

from ...core.checkpoints import archive_complete, schedule
from ...core.feature import Bundle, Feature
from ..saving.transformers_checkpoints import TransformersCheckpoints


def _folder_complete(path: str) -> bool:
    sizes = {name: os.path.getsize(os.path.join(path, name)) for name in os.listdir(path)}
    return ".metadata" in sizes and len(sizes) > 1 and all(sizes.values())


class Fsdp(Feature):
    """The feature of a run with fully sharded data parallelism."""

    def check_checkpoint(self, path: str, world: int) -> str | None:
        """Check FSDP's files: ``pytorch_model_fsdp.bin`` and ``optimizer.bin`` (full), or folders of shards (``_0``).

        torch writes the ``.metadata`` of such a folder last, when every process has written its shard.
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

    def before_final_save(self, bundle: Bundle, trainer: Any) -> None:
        """Save the final model unsharded."""
        use_full_state_dict(trainer.accelerator.state.fsdp_plugin)


def use_full_state_dict(plugin: Any) -> None:
    """Switch accelerate's FSDP plugin to the full state dict, without the settings of the sharded one.

    With SHARDED_STATE_DICT, accelerate's default for FSDP2, ``save_model`` writes nothing at all.
    """
    plugin.state_dict_config = plugin.optim_state_dict_config = None
    plugin.set_state_dict_type("FULL_STATE_DICT")
