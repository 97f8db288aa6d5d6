"""Store the reference in a checkpoint if the run updates it (`sync_reference`), because trl does not save it."""

import os
from typing import Any


class SyncedReferenceTrainer:
    """A base class before trl's trainer in the class order (MRO). It saves and restores the reference's weights.

    Without them, a resumed run would compare with the initial model. If ZeRO-3 or FSDP shards the reference, each
    process saves its shards; otherwise, process 0 saves all weights.
    """

    args: Any
    accelerator: Any
    ref_model: Any
    is_fsdp_enabled: bool

    def _save_rng_state(self, output_dir: str) -> None:
        import torch

        super()._save_rng_state(output_dir)  # type: ignore[misc]
        path = self.reference_file(output_dir)
        if path.endswith(f"_{self.args.process_index}.pt"):
            torch.save([_local(one) for one in self.ref_model.parameters()], path)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        import torch

        super()._load_rng_state(checkpoint)  # type: ignore[misc]
        if checkpoint is not None:
            saved = torch.load(self.reference_file(checkpoint), map_location="cpu", weights_only=True, mmap=True)
            for one, weight in zip(self.ref_model.parameters(), saved, strict=True):
                _local(one).copy_(weight)

    def reference_file(self, checkpoint: str) -> str:
        """The path of the file in a checkpoint from which this process reads its part of the reference."""
        plugin = self.accelerator.state.deepspeed_plugin
        sharded = self.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3)
        return os.path.join(checkpoint, f"reference_{self.args.process_index if sharded else 0}.pt")


def _local(weight: Any) -> Any:
    """A weight, or this process's shard of it."""
    shard = getattr(weight, "ds_tensor", weight)
    return (shard.to_local() if hasattr(shard, "to_local") else shard).data
