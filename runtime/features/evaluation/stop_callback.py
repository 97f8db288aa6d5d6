"""The callback for early stopping: it ends the run after `patience` evaluations in a row without improvement."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainerCallback

from ...core.errors import say
from ...core.feature import Arguments, Control, State


def without_progress(history: Sequence[Mapping[str, Any]], metric: str, greater: bool) -> int:
    """The number of evaluations since the best one. ``history`` is the run's log, in the order of the steps.

    The count comes from the log, because every checkpoint contains the log. The counter of transformers'
    EarlyStoppingCallback (4.52 and 5.23) would restart with each start of the program.
    """
    best: float | None = None
    since = 0
    for event in history:
        if metric not in event:
            continue
        value = float(event[metric])
        if best is None or (value > best if greater else value < best):
            best, since = value, 0
        else:
            since += 1
    return since


class StopCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Ends the run at the step of an evaluation, by making this step the run's last one. So the step is saved as usual,
    and a later start finds the run finished.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_train_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Stop at once if training resumes from the checkpoint of an early stop."""
        self._stop_if_due(args, state, control)

    def on_evaluate(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Stop the run if there was no improvement. All processes call this with the same metrics."""
        if self._stop_if_due(args, state, control):
            say(f"step {state.global_step} is the last: {self.patience} evaluations did not improve {_metric(args)}")

    def _stop_if_due(self, args: Arguments, state: State, control: Control) -> bool:
        if without_progress(state.log_history, _metric(args), bool(args.greater_is_better)) < self.patience:
            return False
        if not 0 < state.global_step < state.max_steps:
            return False
        state.max_steps = state.global_step
        control.should_training_stop = True
        return True


def _metric(args: Any) -> str:
    name = str(args.metric_for_best_model)
    return name if name.startswith("eval_") else f"eval_{name}"
