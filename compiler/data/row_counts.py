"""Compute how many rows a run trains on, and how many optimizer steps they take."""

from __future__ import annotations

from math import ceil

from xpc.compiler.data.rows import count
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.setting import Path
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


def filters(spec: Spec) -> list[str]:
    """The names of settings that drop rows. How many rows they drop is only known when the run starts."""
    written: tuple[Path, ...] = ("data.unique", "data.min_tokens", "data.max_tokens")
    return [path.rpartition(".")[2] for path in written if spec.get(path)]


def steps_of_rows(spec: Spec, rows: int) -> int:
    """The number of optimizer steps of the run, if an epoch has `rows` rows."""
    return ceil(epoch(spec, rows)[0] * spec.real("train.epochs"))


def epoch(spec: Spec, rows: int) -> tuple[int, int]:
    """Return a pair: the number of optimizer steps in an epoch of `rows` rows, and the number of sequences that these
    steps train on. An incomplete last batch counts, unless `dataloader_drop_last` is set.

    If `gbs` does not divide `rows`, the last step of the epoch has fewer micro-batches than the other steps
    (transformers 4.52 to 5.23, `Trainer`: `remainder`). Several processes complete their last micro-batch with rows
    from the beginning of the epoch (accelerate 1.4 to 1.15, `BatchSamplerShard`).
    """
    together = spec.integer("batch.micro") * spec.replicas
    dropped = spec.extra_value("trl", "dataloader_drop_last") is True
    batches = rows // together if dropped else -(-rows // together)
    steps = max(1, -(-batches // spec.integer("batch.accum")))
    return steps, rows if spec.replicas == 1 and not dropped else batches * together


def sequences_of_steps(spec: Spec, rows: int | None, steps: int) -> int:
    """The number of sequences that `steps` optimizer steps train on, if an epoch has `rows` rows. If `rows` is None, or
    the rows are streamed, every step counts as a complete one.
    """
    gbs = spec.integer("batch.gbs")
    if not rows or spec.flag("data.streaming"):
        return steps * gbs
    each, sequences = epoch(spec, rows)
    complete, rest = divmod(steps, each)
    return complete * sequences + rest * gbs


def sampled(spec: Spec, rows: int) -> int:
    """The number of sequences in an epoch of `rows` rows. An online method samples a group of completions for each
    prompt, and `gbs` counts completions. Some stacks drop prompts of a distillation that do not fill a step.
    """
    if not (spec.method.generates and spec.method.grouped):
        together = spec.integer("batch.gbs") if spec.method.generates and spec.stack.facts.distill_rounds else 1
        return rows - rows % together
    group = spec.get("method.generations") or 1
    rounds = spec.get("method.steps_per_generation") or spec.integer("batch.accum")
    together = max(1, spec.integer("batch.micro") * spec.replicas * rounds // group)
    rows -= rows % together  # trl's RepeatSampler drops prompts that do not fill a last round of generation.
    return rows * group * (spec.get("method.iterations") or 1)  # The run trains `iterations` times on a completion.
