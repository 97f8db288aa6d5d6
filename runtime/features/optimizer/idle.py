"""Report a run that learns nothing: `idle = warn` or `stop`."""

from collections.abc import Mapping
from typing import Any

from ...core.errors import RunError, say
from ...core.feature import Bundle, Feature

WINDOW, FEWEST = 10, 3
"""The number of logged steps after the warm-up that are checked together. A shorter run is checked at its end if it has
3."""
NO_RATE = 1e-15
"""A learning rate below this number changes no float32 weight."""


class Idle(Feature):
    """Hooks that detect a run whose steps have no effect, for example because the gradient is always 0."""

    def __init__(self) -> None:
        self.warmup = self.last = 0
        self.rate, self.reported = 0.0, False
        self.window: list[Mapping[str, Any]] = []

    def before_first_step(self, bundle: Bundle, trainer: Any) -> None:
        """Record at which step the warm-up ends, and which step is the last one."""
        self.last = trainer.state.max_steps
        self.warmup = trainer.args.get_warmup_steps(self.last)

    def log_words(self, bundle: Bundle, event: Mapping[str, Any]) -> list[str]:
        """Check the last logged steps; print a warning if nothing is learned. Raises RunError with `idle = stop`."""
        self.rate = max(self.rate, event.get("lr") or 0.0)
        if self.reported or event["step"] <= self.warmup:
            return []
        self.window = [*self.window, event][-WINDOW:]
        if len(self.window) < (FEWEST if event["step"] == self.last else WINDOW):
            return []
        if (cause := self._cause(bundle)) is not None:
            self.reported = True
            text = f"nothing is learned: over the last {len(self.window)} logged steps {cause}"
            if bundle.run["idle"] == "stop":
                raise RunError(f"{text}; `idle = warn` only reports it", local=True)
            say(f"warning: {text} (reported once)")
        return []

    def _cause(self, bundle: Bundle) -> str | None:
        """If the run learns nothing, describe what stayed the same in the last logged steps, and the likely cause."""
        args, method = bundle.arguments, bundle.plan["method"]
        if "lr" in self.window[-1] and self.rate < NO_RATE:
            return "and before, the learning rate was 0; raise `optimizer.lr` or change the schedule"
        if args.get("mask_truncated_completions") and self._always("completions/clipped_ratio", 1):
            limit = args.get("max_completion_length")
            return f"every completion was cut at {limit} tokens and masked; raise `max_completion`"
        if self._always("frac_reward_zero_std", 1) or self._always("reward_std", 0):
            value, heat = self.window[-1].get("reward"), args.get("temperature", 1)
            why = f"`temperature = {heat:g}` makes them equal" if heat < 0.1 else "the task is too hard or too easy"
            return f"all completions of a prompt had the same reward ({value}): the reward is too coarse, or {why}"
        if self._always("grad_norm", 0) and "layerwise" not in args.get("optim", ""):  # "layerwise" clears it
            return "the gradient was 0; check which tokens have a loss (`xpc preview`) and what is frozen"
        losses = {one["loss"] for one in self.window if "loss" in one}
        if len(losses) == 1 and losses != {0} and not method["generates"]:
            return f"the loss was {losses.pop():.4f}; check `optimizer.lr`, clipping and what is frozen"
        return None

    def _always(self, name: str, value: float) -> bool:
        """Whether a metric had the value ``value`` at each step of the window."""
        return all(one.get(name) == value for one in self.window)
