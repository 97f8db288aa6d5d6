"""An optimizer has no group without weights, as that of biases under adapters is, or in a model that has none."""

from typing import Any

from ...core.fault_tolerance import FaultTolerant


class NonemptyGroupsTrainer(FaultTolerant):
    """What the trainer of a run gets whose weights may all be of one group."""

    def create_optimizer(self, *args: Any) -> Any:
        """transformers' optimizer without such groups.

        DeepSpeed 0.16 drops them from its optimizer and not from the schedule, which torch 2.13 refuses. Where
        deepspeed.json names the optimizer, DeepSpeed makes it later, and there are no groups yet.
        """
        optimizer = super().create_optimizer(*args)  # type: ignore[misc]
        groups = getattr(optimizer, "param_groups", None)
        if groups is not None:
            groups[:] = [group for group in groups if group["params"]]
        return optimizer
