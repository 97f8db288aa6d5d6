"""If there are several evaluation sets, add a set's name to the names of its metrics."""

from transformers import Trainer

BY_PREFIX = ("loss", "runtime", "samples_per_second", "steps_per_second")
"""To the names of these metrics, transformers itself adds the name of the evaluation set."""


class NamedLog(Trainer):  # type: ignore[misc]  # transformers has no types
    """A base class between trl's and transformers' trainer. It adds a set's name to the names of all its metrics.

    transformers calls the loss of a set ``eval_NAME_loss``. But trl's ``log`` adds ``eval_rewards/chosen`` under the
    same name for every set, so that without this class only the last set's value would remain.
    """

    prefix: str

    def log(self, logs: dict[str, object], *rest: object, **more: object) -> None:
        """Log as transformers does, with the set's name in the name of each metric."""
        if self.prefix != "eval" and f"{self.prefix}_loss" in logs:
            own = {f"{self.prefix}_{name}" for name in BY_PREFIX}
            for key in [one for one in logs if one.startswith("eval_") and one not in own]:
                logs[f"{self.prefix}_{key.removeprefix('eval_')}"] = logs.pop(key)
        super().log(logs, *rest, **more)
