"""Rules that compare the size of the batch with the number of rows, if xpc knows this number (XP208, XP210)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data.row_counts import trained
from xpc.compiler.data.rows import lacks_columns
from xpc.compiler.rules.core.conditions import few_rows
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = few_rows


STEPS = 8
"""If the spec states no batch, the help suggests a batch so small that an epoch has at least this many steps."""


@rule("XP208", "batch-larger-than-the-data", "warning")
def larger_than_the_data(spec: Spec) -> Iterator[Finding]:
    """The global batch must not be larger than the number of rows.

    Why it is bad: a step never contains rows of two epochs, so no step ever has as many rows as the batch.

    Without this rule: nothing is reported; the last step of an epoch uses the remaining rows. If the rows do not fill
    one micro-batch per process, accelerate repeats rows.

    Source: transformers 5.23 and 4.52 `trainer.py`; accelerate 1.15 and 1.4 `data_loader.BatchSamplerShard`
    (`even_batches`); confirmed by running it.
    """
    if spec.flag("batch.packing") or spec.online or "data" in spec.wrong:
        return
    rows, gbs, micro = _rows(spec), spec.integer("batch.gbs"), spec.integer("batch.micro")
    per_pass = micro * spec.replicas
    if rows is None or not 0 < rows < gbs:
        return
    if rows < per_pass and spec.extra_value("trl", "dataloader_drop_last") is True:
        return  # the rule XP210 already reports that all rows are dropped
    text = f"{rows} {'row' if rows == 1 else 'rows'} for each step"
    message = f"gbs={gbs} is never reached: there {'is 1 row' if rows == 1 else f'are {rows} rows'}"
    if rows < per_pass and spec.replicas > 1:
        text = f"{micro} x {spec.replicas} = {per_pass}"
        count = "1 row is" if rows == 1 else f"{rows} rows are"
        message = f"{count} repeated to fill {spec.replicas} micro-batches of {micro}"
    fitting = max(1, rows // spec.replicas) * spec.replicas
    label = spec.label("batch.gbs") or spec.label("batch.micro")
    location = spec.location("batch.gbs", text) if spec.written("batch.gbs") else spec.location("batch.micro", text)
    more = "" if rows < spec.replicas else f"write `batch gbs={fitting} micro={fitting // spec.replicas}`, or "
    if rows >= per_pass and spec.written("batch.gbs") and not spec.written("batch.accum"):
        more = f"write `gbs = {rows // per_pass * per_pass}`, or "
    if label is None and rows >= spec.replicas:
        doublings = max(1, rows // STEPS // spec.replicas).bit_length() - 1
        more = f"write `gbs = {spec.replicas << doublings}`, or "
    yield Finding(
        location,
        message,
        f"{more}train on more rows",
        (spec.data[0].label,),
    )


@rule("XP210", "everything-dropped")
def everything_dropped(spec: Spec) -> Iterator[Finding]:
    """With `dataloader_drop_last`, the rows must fill at least one micro-batch in every process.

    Why it is bad: an incomplete batch is dropped, so a process without a complete micro-batch has no data at all.

    Without this rule: for a run of epochs, ValueError about `max_steps`, after the data is tokenized. A run of a given
    number of steps ends at once and saves the initial model.

    Source: transformers 5.23 and 4.52 `trainer.py`; confirmed by running it.
    """
    if spec.flag("batch.packing") or spec.online or spec.extra_value("trl", "dataloader_drop_last") is not True:
        return
    rows, micro = _rows(spec), spec.integer("batch.micro")
    if rows is not None and rows < micro * spec.replicas:
        location = spec.extra_location("trl", "dataloader_drop_last", f"{micro} x {spec.replicas} > {rows} rows")
        yield Finding(
            location,
            f"{rows} rows are fewer than a micro-batch of {micro} in each of {spec.replicas} processes",
            "write `dataloader_drop_last = false`",
            (spec.label("batch.micro", "the micro-batch"), spec.data[0].label),
            location.typed.partition("=")[0].rstrip() + " = false",
        )


def _rows(spec: Spec) -> int | None:
    """The number of training rows. None if the number is unknown. None also if a file lacks a column (XP553): such a
    file may be one object that contains the rows in a list, so its rows are not counted.
    """
    return None if any(map(lacks_columns, spec.files)) else trained(spec)
