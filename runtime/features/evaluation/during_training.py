"""Evaluation during training, on one or several sets. If a stop request interrupts an evaluation, the next start
repeats it.
"""

import os
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import nan
from typing import Any

from ...core import progress, signals
from ...core.errors import RunError, rank
from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Arguments, Bundle, Feature, State, Tokenizer, Trainer
from ...core.metrics_file import METRICS, events, replace, written
from ...library_internals.transformers_evaluation import evaluate_now

REPORTED = ("_loss", "_reward", "_accuracy", "rewards/accuracies", "rewards/margins")
"""Endings of names of metrics. For each evaluation set, summary.json has the last value of these metrics."""


class Interrupted(Exception):
    """Raised to end the evaluation because of a stop request."""


class EvaluatingTrainer(FaultTolerant):
    """Trainer methods for a run that evaluates."""

    prefix = "eval"

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        """Evaluate as trl does. With several sets, trl calls this method once per set; ``metric_key_prefix`` is
        recorded to know the current set. A metric that is None, such as the mean of rewards that are all None, becomes
        nan, because transformers compares the metric that decides which checkpoint is the best.
        """
        before, self.prefix = self.prefix, metric_key_prefix
        try:
            with progress.phase("evaluating"):
                found = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)  # type: ignore[misc]
                return {key: nan if value is None else value for key, value in found.items()}
        finally:
            self.prefix = before

    def get_eval_dataloader(self, eval_dataset: object = None) -> object:
        """trl's data loader of the current evaluation set. Outside of an evaluation, when trl 0.18's reward trainer
        prints rows, this is the first set.
        """
        sets = self.eval_dataset  # type: ignore[attr-defined]
        if eval_dataset is None and isinstance(sets, dict):
            name = self.prefix.removeprefix("eval_")
            eval_dataset = name if name in sets else next(iter(sets))
        loader = super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        with suppress(TypeError):  # the length of a streamed evaluation set is unknown
            progress.Phase.total = len(loader)
        return loader

    def prediction_step(self, *args: Any, **kwargs: object) -> object:
        """Run trl's step. If any process has a stop request, raise Interrupted on all processes. The next start then
        repeats the evaluation before its first step.
        """
        import torch

        if signals.StopRequest.training and self.state.global_step < self.state.max_steps:
            flag = torch.tensor([int(signals.StopRequest.name is not None)], dtype=torch.int32, device=self.args.device)
            if self.largest(flag)[0]:
                signals.ignore_end_signal()
                raise Interrupted
        progress.Phase.done += 1
        return super().prediction_step(*args, **kwargs)  # type: ignore[misc]

    def log_save_evaluate(self, follow: Callable[[], None]) -> None:
        """Log, save and evaluate. If the evaluation is interrupted, restore the random states, so that the next start
        repeats it exactly.
        """

        def followed() -> None:
            states = random_states() if self.control.should_evaluate else None
            try:
                follow()
            except Interrupted:
                assert states is not None
                restore_random_states(*states)
                self.stopping = True
                self.control.should_evaluate, self.control.should_save = False, not self.early
                follow()

        super().log_save_evaluate(followed)
        if self.args.load_best_model_at_end and self.control.should_training_stop:
            progress.now("loading the best checkpoint")

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """Write a checkpoint, and record in it which checkpoint is the best."""

        def write_and_name_best() -> None:
            write()
            self.name_best(os.path.join(str(self.staging), f"checkpoint-{self.state.global_step}"))

        super().save_checkpoint(write_and_name_best)

    def catch_up(self) -> None:
        """Run the evaluation that was due when the run stopped but was not completed."""
        try:
            evaluate_now(self)
        except Interrupted:  # another stop request interrupted the evaluation
            raise signals.Stopped from None

    def name_best(self, folder: str) -> None:
        """Set the path of the best checkpoint to its final folder: transformers sets it to the staging folder."""
        if not self.state.best_global_step:
            return
        best, before = f"checkpoint-{self.state.best_global_step}", self.state.best_model_checkpoint
        final = os.path.join(self.args.output_dir, best)
        if best == os.path.basename(folder) or os.path.isdir(final):
            self.state.best_model_checkpoint = final
        if rank() == 0 and self.state.best_model_checkpoint != before:
            self.state.save_to_json(os.path.join(folder, "trainer_state.json"))


def random_states() -> tuple[object, object, object, object]:
    """The random states of Python, numpy, torch and this process's GPU."""
    import torch

    # no bundle pins numpy, but transformers has imported it
    numpy = sys.modules["numpy"]
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state(), cuda


def restore_random_states(python: Any, array: object, cpu: object, cuda: object) -> None:
    """Set the states of the random generators to the states that ``random_states`` returned."""
    import torch

    random.setstate(python)
    sys.modules["numpy"].random.set_state(array)
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)


def due(args: Arguments, state: State) -> bool:
    """Whether an evaluation is due at the step that the run resumes from (by the rules of transformers'
    DefaultFlowCallback).
    """
    kind = getattr(args.eval_strategy, "value", args.eval_strategy)
    if not 0 < state.global_step < state.max_steps:
        return False
    if kind == "epoch":
        return float(state.epoch).is_integer() and float(state.epoch) >= (args.eval_delay or 0)
    return bool(kind == "steps" and state.global_step % state.eval_steps == 0) and state.global_step >= (
        args.eval_delay or 0
    )


def losses_of(bundle: Bundle) -> dict[str, str]:
    """Maps the name of each evaluation loss to its set's name, which is "" if there is only one set."""
    stated = bundle.data.get("evaluation")
    if not stated or not stated["named"]:
        return {"eval_loss": ""}
    return {f"eval_{one['name']}_loss": one["name"] for one in stated["sets"]}


def is_evaluation(event: Mapping[str, object]) -> bool:
    """Whether an event of metrics.jsonl is an evaluation of a set."""
    return any(key.startswith("eval_") for key in event)


def evaluated(path: str, step: int, sets: int = 1) -> bool:
    """Whether metrics.jsonl has this step's evaluation on every set. If only on some sets, remove their lines."""
    try:
        evaluations = [one for one in events(path) if one["step"] == step and is_evaluation(one)]
        if evaluations and len(evaluations) < sets:
            replace(path, [written(one) for one in events(path) if one not in evaluations])
    except OSError:
        return False
    return len(evaluations) >= sets


class Evaluation(Feature):
    """Hooks for a run that evaluates while it trains."""

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Raise RunError if the trainer leaves out all rows of an evaluation set. Then there would be no eval_loss."""
        found: Any = trainer.eval_dataset
        for name, rows in (found if isinstance(found, dict) else {"": found}).items():
            with suppress(TypeError):  # the length of a streamed evaluation set is unknown
                if len(rows) == 0:
                    raise RunError(
                        f"nothing is left to evaluate{name and f' in {name}'}: the trainer leaves out all rows, in "
                        "which no token within seq counts in the loss"
                    )

    def before_first_step(self, bundle: Bundle, trainer: Trainer) -> None:
        """If an evaluation is due at the step from which the run resumes, and its results are missing, run it. Process
        0 decides, because only process 0 has a complete metrics file.
        """
        from accelerate.utils import broadcast_object_list

        state, path = trainer.state, os.path.join(bundle.output_dir, METRICS)
        if not due(trainer.args, state):
            return
        missed = [rank() == 0 and not evaluated(path, state.global_step, len(losses_of(bundle)))]
        broadcast_object_list(missed)
        if missed[0]:
            trainer.catch_up()

    def log_line(self, bundle: Bundle, event: Mapping[str, object]) -> str:
        """The progress line of an evaluation; "" for any other event."""
        for key, name in losses_of(bundle).items():
            if key in event:
                return f"eval loss {event[key]:.4f}{name and f'  ({name})'}"
        return ""

    def last_evaluation(self, bundle: Bundle, path: str, state: State) -> tuple[dict[str, object] | None, str]:
        """The last evaluation for summary.json, and a text about it for the terminal.

        If the weights of the best evaluation are saved, a second line of the text describes it. Raises OSError.
        """
        evaluation = last(path)
        line = evaluation_summary(bundle, evaluation or {})
        if evaluation and bundle.arguments.get("load_best_model_at_end") and state.best_model_checkpoint is not None:
            evaluation |= {"best_step": state.best_global_step, "best": state.best_metric}
            metric = "eval_" + str(bundle.arguments["metric_for_best_model"]).removeprefix("eval_")
            line += (
                f"best       {metric} {state.best_metric:.4f} at step {state.best_global_step}: its weights are saved\n"
            )
        return evaluation, line


def last(path: str) -> dict[str, Any] | None:
    """The last evaluation for summary.json. Raises OSError."""
    found: dict[str, Any] = {}
    for event in events(path):
        if is_evaluation(event):
            if event["step"] != found.get("step"):
                found = {"step": event["step"]}
            found |= {key: value for key, value in event.items() if key.endswith(REPORTED)}
    return found or None


def evaluation_summary(bundle: Bundle, facts: Mapping[str, Any]) -> str:
    """The line about the last evaluation for the terminal; "" if there was none."""
    losses = [f"{name} {float(facts[key]):.4f}".strip() for key, name in losses_of(bundle).items() if key in facts]
    return f"eval loss  {', '.join(losses)}\n" if losses else ""
