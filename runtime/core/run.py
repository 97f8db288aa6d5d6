"""The run, from top to bottom: read, check, build, train, save, report."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ..enabled import FEATURES, trainer_class
from . import arguments, checkpoint_integrity, measurements, output_folder, preflight, progress, signals
from . import bundle as bundles
from .errors import RunError, first_line, put, rank, say, stop
from .feature import Arguments, Bundle, Tokenizer, Trainer

PEER_ENDED = ("closed by peer", "reset by peer")
"""Parts of gloo's messages for the case that another process of the group has ended."""
PEER_TIMED_OUT = ("Timed out waiting", "Timeout waiting")
"""Parts of gloo's and NCCL's messages for a process that did not answer within `launch.nccl_timeout`."""


def main(folder: str, words: Sequence[str]) -> int:
    """Run the program. ``words`` may contain only ``--preflight``. Returns the exit status."""
    if list(words) not in ([], ["--preflight"]):
        if rank() == 0:
            print(f"error: unknown argument {words[0]!r}; only --preflight is accepted", flush=True)
        return 2
    progress.watch()
    progress.now("checking this machine")
    try:
        bundle = bundles.read(folder, FEATURES)
        # `--preflight` also works without a launcher, which would set WORLD_SIZE
        if not (words and "WORLD_SIZE" not in os.environ):
            bundles.check_world(bundle.run, os.environ)
        arguments.prepare_environment(bundle)
        if words or os.environ.get(preflight.DONE) != "passed":
            preflight.check(bundle, rank(), int(os.environ.get("LOCAL_RANK", "0")))
        if words:
            say("preflight passed")
            return 0
        return train(bundle)
    except output_folder.Finished as done:
        return output_folder.finished(bundle, done, bool(words) or rank() != 0)
    except RunError as error:
        return stop(error)
    except KeyboardInterrupt:
        say("stopped")
        return 130
    except (RuntimeError, OSError) as error:
        if "\tsize mismatch for " in str(error):  # an error of torch's load_state_dict; its last line names a weight
            return stop(RunError("delete the checkpoint, which does not fit the model: " + str(error).split("\t")[-1]))
        if isinstance(error, RuntimeError) and any(words in str(error) for words in PEER_ENDED):
            message = f"process {rank()} stops: another process of the run has ended"
        elif any(words in str(error) for words in PEER_TIMED_OUT) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            message = f"process {rank()} stops: another process of the run does not answer ({first_line(error)})"
        else:
            message = "".join(traceback.format_exception(error)).rstrip()
        put(message, file=sys.stderr)
        return signals.BROKEN


def train(bundle: Bundle) -> int:
    """Train and save. Returns the exit status: 0, or another status if the run was asked to stop. Raises RunError."""
    progress.now("importing the libraries and connecting the processes")
    args = arguments.build_arguments(bundle)
    arguments.check_state(bundle, args)
    import torch
    from accelerate.utils import broadcast_object_list

    from ..library_internals import progress_bars
    from .fault_tolerance import writing
    from .metrics_log import finish
    from .model import save_final

    for feature in bundle.features:
        feature.libraries_imported(bundle)
    progress_bars.capture(rank() == 0)
    progress.Phase.ended = measurements.ended
    progress.now("reading the output folder")
    shared = [_first(lambda: _begin(bundle))]  # process 0 decides for all: on other nodes, the folder may be missing
    broadcast_object_list(shared)
    resumed: str | None = shared[0]
    with _prepared_rows(bundle):
        trainer, tokenizer = _trainer(bundle, args)
    started = time.monotonic()
    try:
        trainer.train(resume_from_checkpoint=resumed)
    except signals.Stopped:
        return _stopped(bundle, trainer)
    except torch.cuda.OutOfMemoryError as error:
        run = bundle.run
        raise RunError(
            f"the GPU of process {rank()} has too little memory for {run['micro']} sequences of {run['seq']} tokens; "
            f"lower batch.micro or batch.seq, or shard more ({str(error).splitlines()[0]})"
        ) from error
    seconds = time.monotonic() - started
    with writing("the final model", bundle.output_dir, trainer.saved):
        if trainer.is_world_process_zero():
            output_folder.finishing(bundle)
        save_final(bundle, trainer, tokenizer)
    measurements.exchange()
    if trainer.is_world_process_zero():
        finish(bundle, trainer, seconds, os.path.basename(resumed) if resumed else None)
    _leave(bundle, trainer, stopped=False)
    return 0


def _prepared_rows(bundle: Bundle) -> AbstractContextManager[None]:
    """A context manager: if $XPC_PREPARED is set, the run reads the prepared rows in that folder."""
    if not os.environ.get("XPC_PREPARED"):
        return nullcontext()
    if TYPE_CHECKING:
        from .. import prepare_rows
    else:
        prepare_rows = bundle.program("prepare_rows.py")
    return prepare_rows.reading(bundle)


def _stopped(bundle: Bundle, trainer: Trainer) -> int:
    """End a run that was asked to stop. Every process has already written its part of the checkpoint."""
    resumes = bundle.run["resume"] == "auto"
    then = "" if resumes else "; this bundle does not resume (`resume = never`)"
    say(f"stopped: checkpoint-{trainer.state.global_step} is complete{then}")
    _leave(bundle, trainer, stopped=True)
    return signals.REQUEUE if resumes else 1


def _begin(bundle: Bundle) -> str | None:
    """The folder of the checkpoint to resume from, or None."""
    checkpoint, notes = output_folder.begin(bundle, digests=True)
    output_folder.lock(bundle)
    checkpoint_integrity.clear(bundle.output_dir)
    for feature in bundle.features:
        feature.output_folder_locked(bundle)
    for note in notes:
        say(note)
    return checkpoint


def _first(make: Callable[[], Any]) -> Any:
    """Run ``make`` on process 0 only; the others wait up to ddp_timeout. Its error is raised on all processes."""
    from accelerate.utils import broadcast_object_list

    made: object = None
    shared: list[Exception | None] = [None]
    if rank() == 0:
        try:
            made = make()
        except (RunError, output_folder.Finished) as error:
            shared[0] = error
    broadcast_object_list(shared)
    if shared[0] is not None:
        raise shared[0]
    return made


def _first_then_all(make: Callable[[], Any]) -> Any:
    """Run ``make`` on process 0, then on the others. If one process fails alone, it reports its RunError."""
    made = _first(make)
    try:
        return make() if made is None else made
    except RunError as error:
        error.local = True
        raise


def _trainer(bundle: Bundle, args: Arguments) -> tuple[Trainer, Tokenizer]:
    """Build trl's trainer with its model, tokenizer and data."""
    from jinja2 import TemplateError
    from transformers import set_seed
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    from . import data, made, truncation
    from . import trainer as trainers
    from .metrics_log import Reporter
    from .model import load_model, load_tokenizer

    progress.now("loading the tokenizer")
    tokenizer = load_tokenizer(bundle)
    progress.now("reading the rows")
    # process 0 maps and caches the rows, then the others read the cache; trl's trainers tokenize in this way, too
    rows, evaluation = _first_then_all(lambda: data.build(bundle, tokenizer))
    set_seed(args.seed)  # the seed determines the initial weights of score heads and adapters
    progress.now("loading the model")
    model = load_model(bundle, tokenizer)
    progress.now("preparing the rows and vLLM" if bundle.arguments.get("use_vllm") else "preparing the rows")
    reporter = Reporter(bundle)
    try:
        with truncation.watching(bundle) as losses:
            trainer, stated = trainers.build(
                bundle, trainer_class, model, lambda: load_model(bundle, tokenizer), args=args,
                train_dataset=rows, eval_dataset=evaluation, processing_class=tokenizer, callbacks=[reporter],
            )  # fmt: skip
            made.check(bundle, trainer, stated)
    except TemplateError as error:
        raise RunError(f"the chat template refuses a row of the data: {error}") from error
    progress.now("preparing the first step")
    truncation.settle(bundle, losses, len(rows), trainer.train_dataset)
    trainer.data_facts = losses.facts()
    reporter.trainer = trainer
    trainer.card = bundle.inside("model_card.md")
    for feature in bundle.features:
        feature.before_training(bundle, trainer)
    for printer in (PrinterCallback, ProgressCallback):  # transformers' printers would print in every process
        trainer.remove_callback(printer)
    by = {"NO": "", "DEEPSPEED": ", DeepSpeed", "FSDP": ", FSDP"}.get(bundle.run["distributed_type"], ", DDP")
    processes = "one process" if args.world_size == 1 else f"{args.world_size} processes"
    many, sequences = len(rows) - losses.left_out, len(trainer.train_dataset)
    split = "split and " if bundle.data.get("long") == "chunk" else ""
    packed = f", {split}packed into {sequences:,} sequences" if bundle.arguments.get("packing") else ""
    say(f"{many if packed else max(many, sequences):,} rows to train on{packed}, {processes}{by}")  # texts may be split
    return trainer, tokenizer


def _leave(bundle: Bundle, trainer: Trainer, stopped: bool) -> None:
    """End the process group. Otherwise torch warns, and when one process exits, another one may fail."""
    progress.now("ending the run")
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()
    for feature in bundle.features:
        feature.run_ended(bundle, trainer, stopped)
