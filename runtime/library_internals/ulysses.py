"""Sequences that processes of DeepSpeed share (Ulysses): where each epoch begins, where a run goes on in it, and how
large the gradient is (deepspeed 0.19)."""

import warnings
from typing import Any

from ..core.errors import RunError
from ..core.feature import Bundle, Feature


class Ulysses(Feature):
    """Sequences that processes of DeepSpeed share."""

    def libraries_imported(self, bundle: Bundle) -> None:
        """Leaves out torch's warning of a collective that transformers calls by its old name in each step."""
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.integrations\.deepspeed")

    def before_training(self, bundle: Bundle, trainer: Any) -> None:
        """Changes the loader and the loss of transformers' trainer. Raises RunError where accelerate was not told."""
        size, mesh = bundle.run["context_parallel"], trainer.accelerator.parallelism_config
        if getattr(mesh, "sp_size", 1) != size:
            raise RunError(
                f"{size} processes share a sequence, of which accelerate was not told; start it with its launch.sh"
            )
        _epochs()
        _gradient()


def _gradient() -> None:
    """The gradient is that of the loss, and not as many times it as processes share a sequence.

    Each of them has the whole loss, and the gradient of what they gather is the sum of theirs; DeepSpeed averages over
    the groups alone (github.com/deepspeedai/DeepSpeed/issues/5248), but for ZeRO-3 where it scatters what it reduces
    (coalesced_collectives.py). Clipping by a norm would clip as much earlier.
    """
    from transformers import trainer

    compute = trainer.deepspeed_sp_compute_loss

    def computed(accelerator: Any, model: Any, inputs: Any, return_outputs: bool, pc: Any) -> Any:
        loss, outputs = compute(accelerator, model, inputs, True, pc)
        if model.zero_optimization_stage() != 3 or not model.zero_reduce_scatter():
            share = loss / pc.sp_size
            loss = share + (loss - share).detach()
        return (loss, outputs) if return_outputs else loss

    trainer.deepspeed_sp_compute_loss = computed


def _epochs() -> None:
    """Each epoch begins with its first rows, and a run that goes on gets the rows of its epoch that come next.

    The loader stands around accelerate's and hides what transformers asks that for: its epoch, by which rows are
    shuffled, and its sampler, in which rows are skipped. It begins anew when it is asked for a row behind the last one,
    which transformers never does: every later epoch would lose its first step.
    """
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPDataLoaderAdapter
    from transformers import trainer

    skip = trainer.skip_first_batches

    def skipped(loader: Any, num_batches: int = 0) -> Any:
        if not isinstance(loader, UlyssesSPDataLoaderAdapter):
            return skip(loader, num_batches)
        loader.skipped = num_batches
        return loader

    def begun(loader: Any) -> Any:
        loader.iter = iter(loader.dl)
        loader.micro_batches.clear()
        for _ in range(loader.__dict__.pop("skipped", 0)):
            next(loader)
        return loader

    trainer.skip_first_batches = skipped
    UlyssesSPDataLoaderAdapter.__iter__ = begun
    UlyssesSPDataLoaderAdapter.set_epoch = lambda self, epoch: self.dl.set_epoch(epoch)
