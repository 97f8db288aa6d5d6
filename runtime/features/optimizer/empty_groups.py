"""Drop optimizer groups without weights, for example the group of biases if only adapters are trained."""

from ...core.fault_tolerance import FaultTolerant


class NonemptyGroupsTrainer(FaultTolerant):
    """Trainer methods for a run that may leave one of the optimizer's groups of weights empty."""

    def create_optimizer(self, *args: object) -> object:
        """transformers' optimizer without its empty groups.

        DeepSpeed 0.16 drops empty groups from its optimizer but not from the schedule; torch 2.13 refuses such a
        schedule. If deepspeed.json states the optimizer, DeepSpeed creates it later, so there is nothing to drop yet.
        """
        optimizer = super().create_optimizer(*args)  # type: ignore[misc]
        groups = getattr(optimizer, "param_groups", None)
        if groups is not None:
            groups[:] = [group for group in groups if group["params"]]
        return optimizer
