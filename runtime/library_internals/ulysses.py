"""DeepSpeed's sequence parallelism (Ulysses, deepspeed 0.19): correct the start of each epoch, the position after a
resume, and the scale of the gradient."""

import warnings
from typing import Any

from ..core.errors import RunError
from ..core.feature import Bundle, Feature, Model, Trainer


class Ulysses(Feature):
    """Hooks for a run with DeepSpeed's sequence parallelism (Ulysses)."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """Filter torch's warning that transformers, in each step, calls a collective by its old name."""
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.integrations\.deepspeed")

    def before_training(self, bundle: Bundle, trainer: Trainer) -> None:
        """Correct the loader and the loss of transformers' trainer. Raises RunError if accelerate splits a sequence
        over another number of processes than the bundle states.
        """
        size, mesh = bundle.run["context_parallel"], trainer.accelerator.parallelism_config
        if getattr(mesh, "sp_size", 1) != size:
            raise RunError(f"{size} processes share a sequence, but accelerate is not set up for this; use launch.sh")
        _epochs()
        _gradient()


def _gradient() -> None:
    """Prevent the gradient from being multiplied by the number of processes that share a sequence.

    Each process has the complete loss, and the gradient of gathered values is summed over the processes. DeepSpeed
    averages only over groups (github.com/deepspeedai/DeepSpeed/issues/5248), except under ZeRO-3 with reduce-scatter
    (coalesced_collectives.py). By the same factor, clipping by norm would begin too early.
    """
    from transformers import trainer

    compute = trainer.deepspeed_sp_compute_loss

    def computed(accelerator: object, model: Model, inputs: object, return_outputs: bool, pc: Any) -> object:
        loss, outputs = compute(accelerator, model, inputs, True, pc)
        if model.zero_optimization_stage() != 3 or not model.zero_reduce_scatter():
            share = loss / pc.sp_size
            loss = share + (loss - share).detach()
        return (loss, outputs) if return_outputs else loss

    trainer.deepspeed_sp_compute_loss = computed


def _epochs() -> None:
    """Start each epoch with its first rows, and a resumed epoch at its next rows.

    DeepSpeed's loader wraps accelerate's and hides two parts of it that transformers uses: the epoch, which decides the
    shuffle, and the sampler, in which rows are skipped. DeepSpeed's loader starts again only if a row after the last
    one is requested. transformers never requests one, so every later epoch would lose its first step.
    """
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPDataLoaderAdapter
    from transformers import trainer

    skip = trainer.skip_first_batches

    def skipped(loader: object, num_batches: int = 0) -> object:
        if not isinstance(loader, UlyssesSPDataLoaderAdapter):
            return skip(loader, num_batches)
        loader.skipped = num_batches
        return loader

    def begun(loader: Any) -> object:
        loader.iter = iter(loader.dl)
        loader.micro_batches.clear()
        for _ in range(loader.__dict__.pop("skipped", 0)):
            next(loader)
        return loader

    trainer.skip_first_batches = skipped
    UlyssesSPDataLoaderAdapter.__iter__ = begun
    UlyssesSPDataLoaderAdapter.set_epoch = lambda self, epoch: self.dl.set_epoch(epoch)
