"""Report a run that learns nothing: `idle = warn` or `stop`."""

from collections.abc import Mapping
from typing import Any

from ...core.errors import RunError, say
from ...core.feature import Bundle, Feature, Model, Trainer

WINDOW, FEWEST = 10, 3
"""WINDOW logged steps after the warm-up are checked together. A shorter run is checked at its end if it has logged
FEWEST steps, or if its logs cover WINDOW steps."""
NO_RATE = 1e-15
"""A learning rate below this number changes no float32 weight."""
NO_GRADIENT = 1e-10
"""A gradient with a smaller norm counts as rounding noise: each of its elements is below AdamW's `eps` of 1e-8."""
NO_CHANGE = 1e-9
"""Weights count as unchanged if the norm of their change is below this fraction of their norm. Ten steps of AdamW at a
rate of 1e-8 change weights by at least 1e-7 of their norm, also in bf16."""


class Idle(Feature):
    """Hooks that detect a run whose steps have no effect, for example because the gradient is always 0."""

    def __init__(self) -> None:
        self.warmup = self.last = self.before = 0
        self.rate, self.reported = 0.0, False
        self.window: list[Mapping[str, Any]] = []
        self.trainer: Any = None
        self.start: list[Any] = []

    def before_first_step(self, bundle: Bundle, trainer: Trainer) -> None:
        """Record at which step the warm-up ends, which step is the run's last step, and a sample of the trained
        weights.

        A resumed run takes no sample: if only the last steps of a schedule are left, its weights may stay the same in
        bf16.
        """
        self.last = trainer.state.max_steps
        self.warmup = trainer.args.get_warmup_steps(self.last)
        if trainer.state.global_step == 0:
            self.trainer, self.start = trainer, sample(trainer.model)

    def log_words(self, bundle: Bundle, event: Mapping[str, Any]) -> list[str]:
        """Check the last logged steps; print a warning if nothing is learned. Raises RunError with `idle = stop`."""
        self.rate = max(self.rate, event.get("lr") or 0.0)
        if self.reported or event["step"] <= self.warmup:
            self.before = event["step"]
            return []
        self.window = [*self.window, event][-WINDOW:]
        count, steps = len(self.window), event["step"] - self.before
        ends = event["step"] == self.last and (count >= FEWEST or steps >= WINDOW)
        if count < WINDOW and not ends:
            return []
        if (cause := self._cause(bundle)) is not None:
            self.reported = True
            over = f"{count} logged" if count > 1 else steps
            text = f"nothing is learned: over the last {over} steps {cause}"
            if bundle.run["idle"] == "stop":
                raise RunError(f"{text}; `idle = warn` only reports it", local=True)
            say(f"warning: {text} (reported once)")
        return []

    def _cause(self, bundle: Bundle) -> str | None:
        """The likely cause, if nothing is learned. Rate, gradient and loss count only if several steps are logged."""
        args, method, several = bundle.arguments, bundle.plan["method"], len(self.window) > 1
        if several and "lr" in self.window[-1] and self.rate < NO_RATE:
            return "the learning rate was 0, as in all earlier steps; raise `optimizer.lr` or change the schedule"
        if args.get("mask_truncated_completions") and self._always("completions/clipped_ratio", 1):
            limit = args.get("max_completion_length")
            return f"every completion was cut at {limit} tokens and masked; raise `max_completion`"
        if self._always("frac_reward_zero_std", 1) or self._always("reward_std", 0):
            value, heat = self.window[-1].get("reward"), args.get("temperature", 1)
            why = f"`temperature = {heat:g}` makes them equal" if heat < 0.1 else "the task is too hard or too easy"
            return f"all completions of a prompt had the same reward ({value}): the reward is too coarse, or {why}"
        small = all(isinstance(x := one.get("grad_norm"), int | float) and x < NO_GRADIENT for one in self.window)
        if several and small and "layerwise" not in args.get("optim", ""):  # "layerwise" clears the gradient
            return "the gradient was 0; check which tokens have a loss (`xpc preview`) and what is frozen"
        losses = {one["loss"] for one in self.window if "loss" in one}
        if several and len(losses) == 1 and losses != {0} and not method["generates"]:
            return f"the loss was {losses.pop():.4f}; check `optimizer.lr`, clipping and what is frozen"
        unchanged = "the weights stayed the same, as in all earlier steps; raise `optimizer.lr` or `optimizer.clip`"
        return unchanged if self._unchanged() else None

    def _unchanged(self) -> bool:
        """Whether the sampled weights are nearly as they were before the first step: the norm of their change is below
        `NO_CHANGE` times their norm. Only the first window of logged steps is compared.
        """
        start, self.start = self.start, []
        now = sample(self.trainer.model) if start else []
        if not start or [one.shape for one in now] != [one.shape for one in start]:
            return False
        change = sum(float((one.double() - old.double()).square().sum()) for one, old in zip(now, start))
        size = sum(float(old.double().square().sum()) for old in start)
        return change <= NO_CHANGE**2 * size

    def _always(self, name: str, value: float) -> bool:
        """Whether a metric had the value ``value`` at each of the last logged steps (`window`)."""
        return all(one.get(name) == value for one in self.window)


def sample(model: Model) -> list[Any]:
    """Copy up to 2**20 elements of the trained weights to the CPU (more if there are over 1,024 tensors). They are at
    equal distances in each tensor or, if the weight is sharded, in this process's shard. Weights that DeepSpeed has
    moved to a disk are omitted.
    """
    shards = [getattr(one, "ds_tensor", one) for one in model.parameters() if one.requires_grad]
    here = [one for one in shards if getattr(getattr(one, "status", None), "name", "AVAILABLE") == "AVAILABLE"]
    flat = [(one.to_local() if hasattr(one, "to_local") else one).detach().reshape(-1) for one in here]
    each = max(1024, 2**20 // max(1, len(flat)))
    return [one[:: max(1, one.numel() // each)].cpu().clone() for one in flat]
