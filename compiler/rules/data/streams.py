"""Rules about streams: data whose rows are read while the run trains (XP191 to XP195)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import AmountPath, Path
from xpc.compiler.rules.core.conditions import any_of, enabled, written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label

WHEN = any_of(enabled("data.streaming"), written("data.shuffle_buffer"))

COMPLETE: tuple[tuple[Path, str, str], ...] = (
    ("data.holdout", "", "evaluate on the rows of another file or split"),
    ("data.unique", "", "drop repeated rows before the run"),
    ("data.workers", "", "leave `workers` out: the training process tokenizes the rows"),
    ("data.long", "chunk", "write `packing(strategy=bfd_split)` to keep long texts"),
    ("lora.init", "eva", "write `init = pissa`"),
)
"""Settings that need all rows of the data before the run. Each entry has the path of the setting, the value that needs
all rows ("" for any value except `false`), and the help for a run with a stream. `xpc import` also reads this table.
"""
INTERVALS: tuple[AmountPath, ...] = ("save.every", "eval.every", "track.every")
"""Settings whose value may be a number of epochs."""
LOADER = ("dataloader_num_workers", "train_sampling_strategy", "group_by_length", "ignore_data_skip")
"""Arguments of the data loader that need a complete dataset and not a stream, because they select, repeat or order its
rows.
"""


@rule("XP191", "stream-without-steps")
def without_steps(spec: Spec) -> Iterator[Finding]:
    """`streaming` needs the number of steps: `for 1000 steps`.

    Why it is bad: the rows of a stream are not counted before the run, so the length of an epoch, and with it the
    schedule of the learning rate, is unknown.

    Without this rule: ValueError from the trainer after the model is loaded.

    Source: transformers 5.23, 4.57 and 4.52 `trainer.py` (`__init__`); confirmed by running it.
    """
    if spec.flag("data.streaming") and spec.get("train.steps") is None:
        location = spec.label("train.epochs", "states no number of steps")
        yield Finding(
            location or spec.location("data.streaming", "no number of steps"),
            "the rows of a stream are not counted, so the number of steps of an epoch is not known",
            "write `for 1000 steps`" if location is None else write("for 1000 steps", ", or leave `streaming` out"),
            (spec.label("data.streaming", "the stream"),) if location is not None else (),
        )


@rule("XP192", "stream-needs-complete-rows")
def complete_rows(spec: Spec) -> Iterator[Finding]:
    """`streaming` cannot be combined with settings that need all rows before the run: several sources, `take`, a slice
    such as `[train:20%]`, `holdout`, `unique`, `long = chunk`, `workers`, tokenized rows, and `init = eva`. A stream is
    one source, whose rows are read in their order or shuffled in a buffer.

    Why it is bad: `take`, `holdout`, `unique` and the rule's other settings count, select or compare all rows, and a
    stream is never complete.

    Without this rule: AttributeError or TypeError from the datasets library, whose streams have neither a length nor
    row numbers; `workers` has no effect.

    Source: datasets 5.2 and 5.0 `iterable_dataset.py`, trl 1.16 `sft_trainer.py`; confirmed by running it.
    """
    if not spec.flag("data.streaming"):
        return
    for location, setting, way in _complete(spec):
        yield Finding(
            location,
            f"{setting} needs all rows, and a stream reads them while the run trains",
            f"{way}, or leave `streaming` out",
            (spec.label("data.streaming", "the stream"),),
        )


def _complete(spec: Spec) -> Iterator[tuple[Label, str, str]]:
    for path, value, way in COMPLETE:
        found = spec.get(path)
        if found == value if value else spec.written(path) and found not in (None, False):
            yield spec.location(path), f"`{path.partition('.')[2]}{value and f' = {value}'}`", way
    for source in spec.data[1:]:
        yield source.label, "a mixture of sources", "put the files into one folder and name the folder"
    for source in spec.data:
        if source.take is not None or source.limit is not None or source.slice is not None:
            yield source.label, "the selection of rows", "use all rows, since `for N steps` ends the run"
        if source.shape == "tokens":
            yield source.label, "the check of token ids", "write rows of text, which the run tokenizes"


@rule("XP193", "epochs-of-a-stream")
def epochs(spec: Spec) -> Iterator[Finding]:
    """With a stream, `every` of saving and evaluation must be a number of steps or a share of the run, not an epoch.

    Why it is bad: the number of steps in an epoch of a stream is unknown, so transformers counts all steps as one
    epoch.

    Without this rule: the run saves or evaluates once, at its end.

    Source: transformers 5.23 `trainer.py` (`set_initial_training_values` counts all steps of a stream as one epoch);
    confirmed by running it.
    """
    for path in INTERVALS:
        every = spec.get(path)
        if spec.flag("data.streaming") and every is not None and spec.amount(path).unit == "epoch":
            yield Finding(
                spec.location(path, "a stream has no epochs"),
                f"`{path}` counts epochs, and a stream has none",
                write("every = 10%"),
                (spec.label("data.streaming", "the stream"),),
            )


@rule("XP194", "loader-of-a-stream")
def loader(spec: Spec) -> Iterator[Finding]:
    """A spec with a stream cannot set `dataloader_num_workers`, `train_sampling_strategy`, `group_by_length`,
    `ignore_data_skip` or `context_parallel`: the training process reads the stream itself, from its first row to its
    last.

    Why it is bad: each worker process would read the complete stream, so every row would be trained on once for each
    worker. Sampling and grouping need all rows, so they have no effect on a stream. With `ignore_data_skip`, a resumed
    run starts with the first row again.

    Without this rule: nothing is reported. In a test with `dataloader_num_workers = 2`, the first batches contained
    each row twice.

    Source: torch 2.13 `dataloader.py` (`IterableDataset`), transformers 5.23 `trainer.py` (`_get_dataloader`,
    `ignore_data_skip`); confirmed by running it.
    """
    if not spec.flag("data.streaming"):
        return
    stream = (spec.label("data.streaming", "the stream"),)
    for name in LOADER:
        if spec.extra_value("trl", name):
            yield Finding(
                spec.extra_location("trl", name),
                f"`{name}` cannot be used with a stream, which one process reads in the stored order",
                f"leave `{name}` out, or leave `streaming` out",
                stream,
            )
    if spec.context_parallel > 1:
        yield Finding(
            spec.location("strategy.context_parallel"),
            "`context_parallel` divides a complete dataset among processes, and a stream is read while the run trains",
            "leave `context_parallel` or `streaming` out",
            stream,
        )


@rule("XP195", "buffer-without-stream")
def buffer_without_stream(spec: Spec) -> Iterator[Finding]:
    """`shuffle_buffer` needs `streaming`, and rows that are shuffled.

    Why it is bad: without `streaming`, all rows are shuffled at once and no buffer is used. With `shuffle = false`, no
    rows are shuffled.

    Without this rule: nothing is reported.

    Source: the runtime's `streaming/reading.py`; confirmed by running it.
    """
    if not spec.written("data.shuffle_buffer"):
        return
    if not spec.flag("data.streaming"):
        yield Finding(
            spec.location("data.shuffle_buffer", "only a stream has a buffer"),
            "`shuffle_buffer` has no effect: all rows are shuffled",
            "leave `shuffle_buffer` out, or write `data(streaming)` and `for 1000 steps`",
        )
    elif not spec.flag("data.shuffle"):
        yield Finding(
            spec.location("data.shuffle_buffer", "nothing is shuffled"),
            "`shuffle_buffer` has no effect: the rows keep their order",
            "leave `shuffle_buffer` or `shuffle = false` out",
            (spec.label("data.shuffle", "the stored order"),),
        )
