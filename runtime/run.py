"""The run, from top to bottom: read, check, build, train, save, tell."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

from . import bundle as bundles
from . import output, preflight, state
from .bundle import Bundle
from .errors import RunError, rank, say, stop


def main(folder: str, words: Sequence[str]) -> int:
    """The program. ``words`` may be ``--preflight`` and nothing else. Gives the exit status: 0, 1 or 2."""
    if list(words) not in ([], ["--preflight"]):
        if rank() == 0:
            print(f"error: unknown argument {words[0]!r}; only --preflight is accepted", flush=True)
        return 2
    try:
        bundle = bundles.read(folder)
        only_preflight = bool(words)
        if not (only_preflight and "WORLD_SIZE" not in os.environ):  # started by hand, alone, to look at the machine
            bundles.check_world(bundle.run, os.environ)
        state.prepare_environment(bundle)
        if only_preflight or os.environ.get("XPC_PREFLIGHT") != "passed":  # launch.sh has just run it
            preflight.check(bundle, rank(), int(os.environ.get("LOCAL_RANK", "0")))
        if only_preflight:
            say("preflight passed")
            return 0
        train(bundle)
    except RunError as error:
        return stop(error)
    return 0


def train(bundle: Bundle) -> None:
    """Trains and saves. Raises RunError."""
    args = state.build_arguments(bundle)
    state.check_state(bundle, args)
    import datasets
    import transformers

    # torch 2.13 warns of two collectives that DeepSpeed 0.16 to 0.19 calls: nothing the reader of a run can act on.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed.c10d_logger")
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    resumed = _begin(bundle)
    trainer, tokenizer = _trainer(bundle, args)
    started = time.monotonic()
    trainer.train(resume_from_checkpoint=resumed)
    seconds = time.monotonic() - started
    from .callbacks import summary, tell
    from .model import save_final

    save_final(bundle, trainer, tokenizer)
    if trainer.is_world_process_zero():
        tell(bundle, summary(bundle, trainer.state, seconds, os.path.basename(resumed) if resumed else None))
    _leave()


def _begin(bundle: Bundle) -> str | None:
    """Rank 0 decides where the run begins and tells the others, who may not see the same folder."""
    from accelerate.utils import broadcast_object_list

    decided: list[Any] = [None, None]
    if rank() == 0:
        try:
            checkpoint, notes = output.begin(bundle)
            for note in notes:
                say(note)
            output.mark(bundle)
            decided = [checkpoint, None]
        except RunError as error:
            decided = [None, str(error)]
    broadcast_object_list(decided)
    if decided[1] is not None:
        raise RunError(decided[1])
    return decided[0] if decided[0] is None else str(decided[0])


def _trainer(bundle: Bundle, args: Any) -> tuple[Any, Any]:
    """The trl trainer with its model, tokenizer and data."""
    from accelerate import PartialState
    from transformers import set_seed
    from transformers.trainer_callback import PrinterCallback, ProgressCallback
    from trl import SFTTrainer

    from . import data
    from .callbacks import Reporter
    from .model import load_model, load_tokenizer

    set_seed(args.seed)
    tokenizer = load_tokenizer(bundle)
    # The main process maps and caches; the others read the cache. SFTTrainer does the same around its tokenizing, and
    # ddp_timeout bounds how long the others wait.
    with PartialState().main_process_first():
        rows, evaluation = data.build(bundle)
    model = load_model(bundle, tokenizer)
    reporter = Reporter(bundle)
    trainer = SFTTrainer(
        model=model, args=args, train_dataset=rows, eval_dataset=evaluation, processing_class=tokenizer,
        callbacks=[reporter],
    )  # fmt: skip
    reporter.trainer = trainer
    for printer in (PrinterCallback, ProgressCallback):  # the reporter's lines stand in for theirs
        trainer.remove_callback(printer)
    say(f"{len(rows):,} rows to train on, world size {args.world_size}, {bundle.run['distributed_type']}")
    return trainer, tokenizer


def _leave() -> None:
    """Ends the process group in order; without it torch warns, and a rank may die of another's exit."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
