"""The trainer's fault tolerance: complete checkpoints, a coordinated stop, and a check for finite losses."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

from ..library_internals.transformers_trainer import TrainerHooks, last_logged, metrics_since, resume_log
from . import checkpoint_integrity, measurements, progress, signals
from .errors import RunError, first_line, rank
from .feature import Control, Model, State

WRITERS = ("inline_container", "PytorchStreamWriter", "file write failed", "iostream error", "No space left",
           "I/O error", "Parent directory")  # fmt: skip
"""Texts in the messages of exceptions for failed writes. Exceptions of torch and safetensors have no errno."""


class FaultTolerant(TrainerHooks):
    """The base class of every run's trainer. All processes must call ``agree`` and ``save_checkpoint`` together."""

    card = ""
    stopping = False
    early = False
    epoch_ended = False
    save_pending = False
    saved: Sequence[int] = ()
    window: Any = None
    carried: Any = None
    windows: Sequence[float] = ()
    worst: Any = None
    data_facts: dict[str, int] | None = None
    model: Model
    state: State
    control: Control
    accelerator: Any

    # Methods about losses: the losses of a step, and losses that are not logged yet

    def training_step(self, *args: object, **kwargs: object) -> object:
        """Run trl's step and record a loss that is not finite. A resumed run's first step adds the restored losses."""
        import torch

        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        bad = torch.isnan(loss).int() * 2 + torch.isinf(loss).int()
        self.worst = bad if self.worst is None else torch.maximum(self.worst, bad)
        if self.carried is not None:
            loss, self.carried = loss + self.carried.to(loss.device), None
        self.window = loss.float().clone() if self.window is None else self.window + loss
        return loss

    def get_batch_samples(self, *args: object, **kwargs: object) -> object:
        """Get the batches of a step from transformers. The list is empty if the run was resumed after its last step."""
        if self.state.global_step >= self.state.max_steps:
            return [], None
        begun = time.monotonic()
        found = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        measurements.batches(found[0], time.monotonic() - begun)
        return found

    def unlogged(self) -> dict[str, object]:
        """Losses and metrics since the last log. They are stored in checkpoints, and a resumed run logs them."""
        kept = {
            key: list(values)
            for key, values in metrics_since(self).items()
            if key != "num_tokens" and all(isinstance(one, int | float) for one in values)
        }
        return {"from": last_logged(self), "losses": list(self.windows), "metrics": kept}

    def restore_unlogged(self, kept: Mapping[str, Any]) -> None:
        """Restore the losses and metrics that ``unlogged`` returned before the checkpoint."""
        import torch

        resume_log(self, kept["from"])
        if kept["from"] < self.state.global_step:
            losses = torch.tensor(kept["losses"], dtype=torch.float32)
            # if the number of processes has changed, every process gets the mean of the saved losses
            same = len(losses) == self.args.world_size
            self.carried = losses[self.args.process_index] if same else losses.mean()
        for key, values in kept["metrics"].items():
            metrics_since(self)[key].extend(values)

    # Methods by which the processes agree with each other

    def agree(self) -> None:
        """At the end of a step, agree with all processes on whether to stop, and whether a loss of any process was not
        finite.

        The processes exchange two numbers. Raises RunError for a loss that is not finite, unless the bundle allows such
        losses.
        """
        import torch

        worst = torch.zeros((), dtype=torch.int32) if self.worst is None else self.worst.int().reshape(())
        self.worst = None
        flag = torch.tensor(int(signals.StopRequest.name is not None), dtype=torch.int32, device=self.args.device)
        stop, bad = self.largest(torch.stack((flag, worst.to(self.args.device))))
        step = self.state.global_step
        if bad:
            self.loss_not_finite("nan" if bad > 1 else "infinite", step)
        if stop and step < self.state.max_steps:
            self.stopping = True
            signals.ignore_end_signal()

    def largest(self, values: Any) -> list[int]:
        """The maximum over all processes of each of these numbers."""
        return [int(one) for one in self.accelerator.gather(values[None]).amax(0).tolist()]

    def loss_not_finite(self, word: str, step: int) -> None:
        """Raise RunError for a loss that is "nan" or "infinite", with advice."""
        good = f"checkpoint-{self.saved[-1]} is the newest one" if self.saved else "there is no checkpoint yet"
        first = "no weight has changed yet, so check the model and the rows of this step (answers may be cut off)"
        advice = first if step == 1 else "lower the learning rate, check the rows of this step"
        if self.args.fp16:
            advice += ", write `precision bf16`, which has the range of fp32"
        raise RunError(
            f"the loss is {word} at step {step}; this step is not saved ({good}); {advice}, or continue training with "
            "`nan = allow`"
        )

    # Methods that save

    def log_save_evaluate(self, follow: Callable[[], None]) -> None:
        """Log, evaluate and save after each step and each epoch; the step that ends an epoch saves last.

        transformers itself saves this step before it logs and evaluates, so a resumed run would skip both. Raises
        Stopped if all processes have agreed to stop.
        """
        control = self.control
        self.early = not self.epoch_ended and float(self.state.epoch).is_integer()
        if self.early:
            self.save_pending, control.should_save = control.should_save, False
        elif self.epoch_ended:
            control.should_save, self.save_pending = control.should_save or self.save_pending, False
        if self.stopping:
            control.should_evaluate, control.should_save = False, not self.early
        follow()
        if self.stopping and not self.early:
            raise signals.Stopped

    def save_checkpoint(self, write: Callable[[], None]) -> None:
        """Write a checkpoint to the staging folder, and rename it when every file is on the disk.

        Raises RunError if it cannot be written.
        """
        import torch
        from accelerate.utils import gather_object

        name = f"checkpoint-{self.state.global_step}"
        window = torch.zeros(()) if self.window is None else self.window  # the sum of the losses since the last log
        self.windows = self.accelerator.gather(window.reshape(1).to(self.args.device)).tolist()
        with writing(name, self.args.output_dir, self.saved):
            if rank() == 0:
                checkpoint_integrity.clear(self.args.output_dir)
            self.accelerator.wait_for_everyone()
            self.staging = written = checkpoint_integrity.staging(self.args.output_dir)
            try:
                write()
            finally:
                self.staging = None
            seals = gather_object([checkpoint_integrity.seal(os.path.join(written, name), rank())])
            if rank() == 0:
                sealed = {name: one for each in seals for name, one in each.items()}
                target = checkpoint_integrity.finish(self.args.output_dir, name, sealed)
                measurements.saved(target, checkpoint_integrity.names(target))
        measurements.exchange()
        if rank() == 0:
            self.saved = sorted({*self.saved, self.state.global_step})
            with writing(measurements.MEASURED, self.args.output_dir, self.saved):
                measurements.append(self.args.output_dir, measurements.now(self.state.global_step))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save as trl does, but do not push. The saved config enables the key-value cache, which training disables."""
        self.model.config.use_cache = True
        try:
            super().save_model(output_dir, True)  # type: ignore[misc]
        finally:
            self.model.config.use_cache = False

    def create_model_card(self, *args: Any, **kwargs: object) -> None:
        """Write the bundle's model card. trl's card does not describe the spec and the data."""
        if rank() == 0 and os.path.isfile(self.card):
            shutil.copyfile(self.card, os.path.join(self.args.output_dir, "README.md"))


@contextmanager
def writing(what: str, output_dir: str, saved: Sequence[int]) -> Iterator[None]:
    """A context manager for writing files. After a failed write, delete the partial checkpoint, and raise one RunError.

    This process prints the error, because the write may have failed only here.
    """
    try:
        with progress.phase(f"writing {what}"):
            yield
    except Exception as error:
        if not isinstance(error, OSError) and not any(word in str(error) for word in WRITERS):
            raise
        why = reason(error, output_dir)
        if rank() == 0:
            checkpoint_integrity.clear(output_dir)
        good = f"resumes from checkpoint-{saved[-1]}" if saved else "starts again"
        failed = f"{what} cannot be written to {os.path.abspath(output_dir)}: {why}"
        raise RunError(f"{failed}; free some space, and the same command {good}", local=True) from error


def reason(error: BaseException, output_dir: str) -> str:
    """Why a file could not be written. torch hides the system's message, so another file is written to get it."""
    if isinstance(error, FileNotFoundError) or "Parent directory" in str(error):
        return "the folder is gone (another process deletes it if it cannot write its own files)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    try:
        with TemporaryFile(dir=output_dir, buffering=0) as handle:
            for _ in range(64):
                handle.write(bytes(1 << 20))
    except OSError as found:
        return found.strerror or str(found)
    return first_line(error)
