"""A trainer that survives what happens to it: whole checkpoints, an agreed stop, and losses that are numbers."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

from . import checkpoint_integrity, checkpoints, signals
from .errors import RunError, rank, say

WRITERS = (
    "inline_container", "PytorchStreamWriter", "file write failed", "iostream error", "No space left", "I/O error",
)  # fmt: skip
"""How torch and safetensors say that a file could not be written: their exceptions carry no number."""


class Interrupted(Exception):
    """The evaluation ends here: the run was asked to stop."""


class Steady:
    """What trl's trainers get beside ``trainer.Ours``. Every method that agrees is called by all processes at once."""

    allow_nan = False
    stopping = False
    epoch_ended = False
    evaluate_first = False
    held = False
    sound: Sequence[int] = ()
    window: Any = None
    carried: Any = None
    windows: Sequence[float] = ()
    worst: Any = None
    staging: str | None = None
    told_of_nan = False
    args: Any
    state: Any
    control: Any

    # The loss of each step, and what is logged of it

    def training_step(self, *given: Any, **named: Any) -> Any:
        """trl's step; notes a loss that is no number, and adds what an earlier start had not logged yet."""
        import torch

        loss = super().training_step(*given, **named)  # type: ignore[misc]
        bad = torch.isnan(loss).int() * 2 + torch.isinf(loss).int()
        self.worst = bad if self.worst is None else torch.maximum(self.worst, bad)
        if self.carried is not None:
            loss, self.carried = loss + self.carried.to(loss.device), None
        self.window = loss.float().clone() if self.window is None else self.window + loss
        return loss

    def logged(self) -> None:
        """A loss was logged: the mean of the next one begins here."""
        self.window = None

    def get_batch_samples(self, *given: Any, **named: Any) -> Any:
        """transformers' batches, and none for a run that was killed after its last step, which has nothing to train."""
        if self.state.global_step >= self.state.max_steps:
            return [], None
        return super().get_batch_samples(*given, **named)  # type: ignore[misc]

    def unlogged(self) -> dict[str, Any]:
        """What a checkpoint must hold of the steps since the last log, for the next log to tell of them, too."""
        kept = {
            key: list(values)
            for key, values in self._gathered().items()
            if key != "num_tokens" and all(isinstance(one, int | float) for one in values)
        }
        since = getattr(self, "_globalstep_last_logged", 0)  # transformers asks before it trains, too
        return {"from": since, "losses": list(self.windows), "metrics": kept}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Goes on with what ``unlogged`` told."""
        import torch

        self._globalstep_last_logged = kept["from"]
        if kept["from"] < self.state.global_step and self.args.process_index < len(kept["losses"]):
            self.carried = torch.tensor(kept["losses"][self.args.process_index], dtype=torch.float32)
        for key, values in kept["metrics"].items():
            self._gathered()[key].extend(values)

    def _gathered(self) -> Any:
        """trl's lists of metrics since the last log, by name; preference methods of trl 0.18 call them otherwise."""
        for name in ("_metrics", "_stored_metrics"):
            if hasattr(self, name):
                return getattr(self, name)["train"]
        return {}

    # Agreeing

    def agree(self) -> None:
        """At the end of a step: whether all stop here, and whether the loss of any process was no number.

        One reduction of two numbers. Raises RunError where it was none and the bundle does not allow that.
        """
        import torch

        worst = torch.zeros((), dtype=torch.int32) if self.worst is None else self.worst.int().reshape(())
        self.worst = None
        wish = torch.tensor(int(signals.asked() is not None), dtype=torch.int32, device=self.args.device)
        stop, bad = self._largest(torch.stack((wish, worst.to(self.args.device))))
        step = self.state.global_step
        if bad:
            self._no_number("nan" if bad > 1 else "infinite", step)
        if stop and step < self.state.max_steps:
            self.stopping = True
            signals.agreed()

    def _largest(self, values: Any) -> list[int]:
        import torch

        if self.args.world_size > 1:
            torch.distributed.all_reduce(values, op=torch.distributed.ReduceOp.MAX)
        return [int(one) for one in values.tolist()]

    def _no_number(self, word: str, step: int) -> None:
        if not self.allow_nan:
            good = f"checkpoint-{self.sound[-1]} is the newest one" if self.sound else "there is no checkpoint yet"
            raise RunError(
                f"the loss is {word} at step {step}; nothing is saved of it ({good}); lower the learning rate, look at "
                "the rows of this step, or let it train on with `nan = allow`"
            )
        if not self.told_of_nan:
            say(f"the loss is {word} at step {step}; training goes on, as `nan = allow` says (told once)")
            self.told_of_nan = True

    def prediction_step(self, *given: Any, **named: Any) -> Any:
        """trl's; raises Interrupted on all processes when one was asked to stop. The evaluation is done at the next
        start, before the step that would have followed it."""
        import torch

        if signals.is_training() and self.state.global_step < self.state.max_steps:
            wish = torch.tensor([int(signals.asked() is not None)], dtype=torch.int32, device=self.args.device)
            if self._largest(wish)[0]:
                signals.agreed()
                raise Interrupted
        return super().prediction_step(*given, **named)  # type: ignore[misc]

    def catch_up(self) -> None:
        """Evaluates what the last start had no time for, as if it had."""
        self.evaluate_first = False
        try:
            metrics = self._evaluate(None, None)  # type: ignore[attr-defined]
        except Interrupted:  # once more
            raise signals.Stopped from None
        best = self._determine_best_metric(metrics=metrics, trial=None)  # type: ignore[attr-defined]
        if best and getattr(self.args.save_strategy, "value", self.args.save_strategy) == "best":
            self._save_checkpoint(self.model_wrapped, None)  # type: ignore[attr-defined]

    # Saving

    def _maybe_log_save_evaluate(self, *given: Any, **named: Any) -> None:
        """transformers', after each step and each epoch; what is due after the last step of an epoch is saved last.

        transformers saves before it logs and evaluates an epoch's end; a run that goes on from there would do neither.
        Raises Stopped when all have agreed to stop.
        """
        control, follow = self.control, super()._maybe_log_save_evaluate  # type: ignore[misc]
        early = not self.epoch_ended and float(self.state.epoch).is_integer()
        if early:
            self.held, control.should_save = control.should_save, False
        elif self.epoch_ended:
            control.should_save, self.held = control.should_save or self.held, False
        if self.stopping:
            control.should_evaluate, control.should_save = False, not early
        drawn = random_states() if control.should_evaluate else None
        try:
            follow(*given, **named)
        except Interrupted:
            self.stopping = True
            assert drawn is not None
            draw_again(*drawn)  # the evaluation will be done at the next start, and draw from the same states
            control.should_evaluate, control.should_save = False, not early
            follow(*given, **named)
        if self.stopping and not early:
            raise signals.Stopped

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """transformers', written aside; the checkpoint gets its name when every file of it is on the disk.

        One that is saved because the run must stop holds all that training goes on from, whatever `full_state` is.
        Raises RunError when it cannot be written.
        """
        name, kept = f"checkpoint-{self.state.global_step}", self.args.save_only_model
        self.windows = self._all_windows()
        with writing(name, self.args.output_dir, self.sound):
            if rank() == 0:
                checkpoint_integrity.clear(self.args.output_dir)
            self._wait()
            self.staging = written = checkpoint_integrity.staging(self.args.output_dir)
            pushes, self.args.push_to_hub = self.args.push_to_hub, False
            self.args.save_only_model = kept and not self.stopping
            try:
                super()._save_checkpoint(model, trial)  # type: ignore[misc]
            finally:
                self.args.push_to_hub, self.args.save_only_model = pushes, kept
                self.staging = None
            folder = os.path.join(written, name)
            self._name_best(folder)
            seals = self._everyones(checkpoint_integrity.seal(folder, rank()))
            if rank() == 0:
                checkpoint_integrity.finish(self.args.output_dir, name, seals)
        if rank() == 0:
            self._rotate()
        if pushes:
            self._push_from_checkpoint(os.path.join(self.args.output_dir, name))  # type: ignore[attr-defined]

    def _get_output_dir(self, trial: Any) -> str:
        """transformers' folder, or the one aside while a checkpoint is written."""
        return self.staging or super()._get_output_dir(trial)  # type: ignore[misc]

    def _name_best(self, folder: str) -> None:
        """transformers looks for the best checkpoint beside the one that it writes, where it is not."""
        if not self.state.best_global_step:
            return
        best, before = f"checkpoint-{self.state.best_global_step}", self.state.best_model_checkpoint
        final = os.path.join(self.args.output_dir, best)
        if best == os.path.basename(folder) or os.path.isdir(final):
            self.state.best_model_checkpoint = final
        if rank() == 0 and self.state.best_model_checkpoint != before:
            self.state.save_to_json(os.path.join(folder, "trainer_state.json"))

    def _rotate(self) -> None:
        """Deletes all but the newest `save.keep` checkpoints that are whole, and the best; the new one is whole by now.

        What could not be gone on from counts for nothing, and goes.
        """
        self.sound = sorted({*self.sound, self.state.global_step})
        limit, best = self.args.save_total_limit, os.path.basename(self.state.best_model_checkpoint or "")
        if not limit:
            return
        stay = {f"checkpoint-{step}" for step in self.sound[-limit:]} | {best}
        for _, path in checkpoints.steps(os.path.abspath(self.args.output_dir)):
            if os.path.basename(path) not in stay:
                checkpoint_integrity.remove(path)
        self.sound = [step for step in self.sound if f"checkpoint-{step}" in stay]

    def _all_windows(self) -> list[float]:
        """Of every process, the sum of the losses that are not logged yet."""
        import torch

        mine = torch.zeros((), device=self.args.device) if self.window is None else self.window.to(self.args.device)
        if self.args.world_size == 1:
            return [float(mine)]
        everyones = [torch.zeros_like(mine) for _ in range(self.args.world_size)]
        torch.distributed.all_gather(everyones, mine)
        return [float(one) for one in everyones]

    def _everyones(self, seals: dict[str, checkpoint_integrity.Seal]) -> dict[str, checkpoint_integrity.Seal]:
        import torch

        if self.args.world_size == 1:
            return seals
        told: list[Any] = [None] * self.args.world_size
        torch.distributed.all_gather_object(told, seals)
        return {name: one for each in told for name, one in each.items()}

    def _wait(self) -> None:
        import torch

        if self.args.world_size > 1:
            torch.distributed.barrier()


def random_states() -> tuple[Any, Any, Any, Any]:
    """Those of Python, numpy, torch and the GPU of this process."""
    import torch

    numpy = sys.modules["numpy"]  # transformers' own: no bundle pins it
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state(), cuda


def draw_again(python: Any, array: Any, cpu: Any, cuda: Any) -> None:
    """Goes back to what ``random_states`` gave."""
    import torch

    random.setstate(python)
    sys.modules["numpy"].random.set_state(array)
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)


@contextmanager
def writing(what: str, output_dir: str, sound: Sequence[int]) -> Iterator[None]:
    """A file that cannot be written becomes one sentence, and what there is of a checkpoint is deleted.

    Whoever meets it tells it: it may be one process alone. Raises RunError.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not any(word in str(error) for word in WRITERS):
            raise
        why = reason(error, output_dir)
        if rank() == 0:
            checkpoint_integrity.clear(output_dir)
        good = f"goes on from checkpoint-{sound[-1]}" if sound else "starts anew"
        told = RunError(
            f"{what} cannot be written to {os.path.abspath(output_dir)}: {why}; free some space, and the "
            f"same command {good}"
        )
        told.local = True  # type: ignore[attr-defined]
        raise told from error


def reason(error: BaseException, output_dir: str) -> str:
    """Why a file could not be written, in the words of the system where it gives any: torch keeps them to itself."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    try:
        with TemporaryFile(dir=output_dir, buffering=0) as handle:
            for _ in range(64):
                handle.write(bytes(1 << 20))
    except OSError as found:
        return found.strerror or str(found)
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
