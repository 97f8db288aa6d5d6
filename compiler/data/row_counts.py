"""Compute how many rows a run trains on, and how many optimizer steps they take."""

from __future__ import annotations

from math import ceil

from xpc.compiler.data.rows import count
from xpc.compiler.language.kinds import Amount
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource


def available(source: DataSource) -> int | None:
    """The number of rows in a source that remain after `limit` and `take`. None if it is unknown."""
    there, take = count(source), source.take
    if take is None:
        return there
    if take.unit == "count":
        return int(take.value) if there is None else min(there, int(take.value))
    return None if there is None else int(there * take.value)


def trained(spec: Spec) -> int | None:
    """The number of rows that are trained on: those that remain after `limit` and `take`, without the holdout. None if
    it is unknown, for example because long texts are split.
    """
    if spec.get("data.long") == "chunk":
        return None
    if spec.by_share:
        try:
            found = mixture_rows(spec)
        except MixtureError:
            return None
        return None if found is None else sum(found[0])
    rows = 0
    for source in spec.data:
        there = available(source)
        if there is None:
            return None
        rows += there
    held = spec.get("data.holdout")
    if isinstance(held, Amount):
        rows -= ceil(rows * held.value) if held.unit == "share" else int(held.value)
    return max(0, rows)


class MixtureError(Exception):
    """Raised if there are too few rows for a mixture. The message is a sentence."""


def mixture_rows(spec: Spec) -> tuple[list[int], list[int]] | None:
    """For a mixture with shares, return a pair of lists: the number of training rows of each source, and the number of
    its holdout rows. Return None if the number of rows is unknown, or a source has no share. Raises MixtureError.
    """
    from xpc.runtime.core.errors import RunError
    from xpc.runtime.features.rows.shares import counts

    rows = [available(source) for source in spec.data]
    shares = [source.share for source in spec.data]
    if None in rows or not all(shares):
        return None
    held = spec.get("data.holdout")
    holdout = None
    if isinstance(held, Amount):
        holdout = {"fraction": held.value} if held.unit == "share" else {"rows": int(held.value)}
    try:
        return counts(
            [source.name[:80] for source in spec.data],
            [one for one in rows if one is not None],
            [one for one in shares if one is not None],
            spec.text("data.exhausted"),
            holdout,
        )
    except RunError as error:
        raise MixtureError(str(error)) from None


def steps_of_rows(spec: Spec, rows: int) -> int:
    """The number of optimizer steps in an epoch of `rows` rows. An incomplete last batch counts, unless
    `dataloader_drop_last` is set.
    """
    together = spec.integer("batch.micro") * spec.replicas
    dropped = spec.extra_value("trl", "dataloader_drop_last") is True
    batches = rows // together if dropped else -(-rows // together)
    return ceil(max(1, -(-batches // spec.integer("batch.accum"))) * spec.real("train.epochs"))
