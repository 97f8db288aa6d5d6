"""Rules about data from several sources: the shares of a mixture, the rows of each source, and sources that are named
twice (XP540 to XP542, XP610).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xpc.compiler.data.row_counts import MixtureError, available, mixture_rows
from xpc.compiler.rules.core.conditions import mixture
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.data.sources import reading, stored_rows
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource

WHEN = mixture

TOLERANCE = 0.0005
"""The sum of the shares may differ from 1 by this much. For example, a third is written as 33.33%, so three thirds do
not sum to exactly 1.
"""


def _percent(share: float) -> str:
    return f"{round(100 * share, 2):g}%"


@rule("XP540", "shares-of-a-mixture")
def shares(spec: Spec) -> Iterator[Finding]:
    """Either every source of the training data has a `share`, or no source has one. Shares must sum to 100%. Each
    source needs enough rows for its share and for the holdout. `exhausted`, which says what happens when all rows of
    one source are used, needs shares.

    Why it is bad: if a source has no share, or the shares do not sum to 100%, the mixture is ambiguous.

    Without this rule: LLaMA-Factory and `interleave_datasets` raise ValueError for probabilities that do not sum to 1.

    Source: datasets 5.2 and 5.0 `interleave_datasets`; the runtime's `shares.py`; confirmed by running it.
    """
    yield from _without_effect(spec)
    if not spec.by_share:
        return
    stated = [one for one in spec.data if one.share is not None]
    total = sum(one.share or 0.0 for one in stated)
    without = [one for one in spec.data if one.share is None]
    if without:
        missing, rest = without[0], (1 - total) / len(without)
        yield Finding(
            missing.label,
            f"`{missing.name[:80]}` has no share of the mixture, but `{stated[0].name[:80]}` has one",
            f"`share = {_percent(rest)}` makes the sum of all shares 100%"
            if rest > TOLERANCE
            else "give each source a `share`, so that the sum of all shares is 100%",
            (stated[0].share_label,),
        )
        return
    last = stated[-1]
    if abs(total - 1) > TOLERANCE:
        rest = 1 - total + (last.share or 0.0)
        scaled = ", ".join(_percent((one.share or 0.0) / total) for one in stated)
        yield Finding(
            last.share_label or last.label,
            f"all shares of the mixture together are {_percent(total)}, not 100%",
            f"write `share = {_percent(rest)}` here, or {scaled} for the same proportions"
            if rest > TOLERANCE
            else f"write {scaled} for the same proportions",
            tuple(one.share_label for one in stated[:-1]),
            replace=f"share = {_percent(rest)}" if rest > TOLERANCE else None,
        )
        return
    try:
        mixture_rows(spec)
    except MixtureError as error:
        yield Finding(
            last.share_label or last.label,
            f"the rows of the mixture cannot be chosen: {error}",
            "use more rows of this source, or make its `share` or `data(holdout)` smaller",
            severity=None if all(one.path is not None for one in spec.data) else "warning",
        )


def _without_effect(spec: Spec) -> Iterator[Finding]:
    """Report two settings that have no effect: a share in an evaluation set, and `exhausted` in a mixture without
    shares.
    """
    trained = {id(one.share_label) for one in spec.data}
    for source in spec.sources:
        if source.share_label is not None and id(source.share_label) not in trained:
            yield Finding(
                source.share_label,
                "`share` is for training data: an evaluation set has all rows of its sources",
                "leave `share` out; `take = 10%` selects rows",
            )
    if spec.written("data.exhausted") and not spec.by_share:
        yield Finding(
            spec.location("data.exhausted", "no source has a share"),
            "`exhausted` has no effect: the sources are used once, completely",
            "give each source a `share`, such as `share = 50%`, or leave `exhausted` out",
        )


@rule("XP610", "shares-of-split-texts", "warning")
def shares_of_split_texts(spec: Spec) -> Iterator[Finding]:
    """A mixture with shares should not be combined with `long = chunk`: a share counts documents, but each long
    document becomes several rows.

    Why it is bad: the shares of the trained rows differ from the stated ones. With 70% of books and 30% of chats,
    nearly every row may be a chunk of a book.

    Without this rule: nothing is reported, because the chunks are made after the mixture is drawn.

    Source: the runtime's `shares.py` and `chunks.py`; confirmed by running it.
    """
    if spec.by_share and spec.get("data.long") == "chunk":
        yield Finding(
            spec.location("data.long", "makes several rows of one document"),
            "the shares of the mixture count documents, and not the rows that they are split into",
            "write `long = cut`, or leave the shares out",
            tuple(one.share_label for one in spec.data if one.share_label is not None),
        )


OFTEN = 50
"""A source is too small for its share if an epoch uses each row of the source at least this many times. Muennighoff et
al. 2023 (arXiv:2305.16264) measured that more than about 40 repetitions of a row bring no further gain.
"""


@rule("XP541", "rows-of-a-mixture", "note")
def rows_of_a_mixture(spec: Spec) -> Iterator[Finding]:
    """This note states how many rows of each source one epoch uses. xpc computes these numbers from the shares of the
    mixture. The note becomes a warning if an epoch uses the rows of a source at least fifty times.

    Why it is bad: `exhausted = stop` leaves rows of the larger sources unused, and `exhausted = repeat` trains several
    times on each row of the smaller ones.

    Without this rule: only the run prints how many rows of each source it uses, once it has read the data.

    Source: the runtime's `shares.py`, which computes these numbers for the compiler as well.
    """
    location = spec.data[0].share_label
    if location is None or not all(one.share for one in spec.data):
        return
    try:
        found = mixture_rows(spec)
    except MixtureError:
        return
    if found is None:
        unknown = next(one for one in spec.data if available(one) is None)
        yield Finding(
            location,
            f"the size of the mixture is unknown, because the rows of `{unknown.name[:80]}` are not counted",
            "the run prints how many rows of each source it uses; `xpc lock --update` asks the hub how many there are",
        )
        return
    used, held = found
    parts = [_rows(source, count, out) for source, count, out in zip(spec.data, used, held, strict=True)]
    repeat = spec.get("data.exhausted") == "repeat"
    before = ", before long texts are split" if spec.get("data.long") == "chunk" else ""
    yield Finding(
        location,
        f"the mixture has {sum(used):,} rows{before}: {', '.join(parts)}",
        "`exhausted = stop` would end with the first source that has no more rows"
        if repeat
        else "`exhausted = repeat` would use every row, and repeat those of the smaller sources",
        severity="warning" if _most_repeated(spec.data, used, held) >= OFTEN else None,
    )


def _most_repeated(sources: Sequence[DataSource], used: Sequence[int], held: Sequence[int]) -> float:
    """The highest number of repetitions in the mixture: how many times an epoch uses each row of the most repeated
    source.
    """
    rows_left = [(available(source) or 0) - out for source, out in zip(sources, held, strict=True)]
    return max((count / left for count, left in zip(used, rows_left, strict=True) if left > 0), default=0)


def _rows(source: DataSource, used: int, held: int) -> str:
    """A text that says how many rows of a source an epoch uses: "300 of `b.jsonl` (which has 5,000)". If rows are
    repeated, the text also says how often: "360 of `a.jsonl` (which has 2, so 180 times each)".
    """
    there = (available(source) or 0) - held
    times = f", so {used / there:.3g} times each" if used > there else ""
    return f"{used:,} of `{source.name[:60]}` (which has {there:,}{times})"


@rule("XP542", "source-named-twice", "note")
def named_twice(spec: Spec) -> Iterator[Finding]:
    """Two sources should not contain the same rows. Sources contain the same rows if they are one file under two names,
    or a folder and a file in this folder. Two parts of one split, such as `[train:20%]` and `[train:30%]`, share rows,
    too, because every part begins with the split's first row. This note becomes a warning if the spec has a holdout or
    `unique`.

    Why it is bad: with a holdout, held-out rows are also trained on. Without a holdout, each row is trained on twice in
    an epoch, unless `unique` drops the second copy.

    Without this rule: nothing is reported. Of 16 rows that were named twice with `holdout=8`, 6 of the 8 held-out rows
    were trained on.

    Source: the runtime's `mixture.py`; confirmed by running it.
    """
    known: dict[tuple[str, str], int] = {}
    for number, source in enumerate(spec.data):
        rows = [(one, reading(source)) for one in stored_rows(source)]
        earlier = [known[one] for one in rows if one in known]
        for one in rows:
            known.setdefault(one, number)
        if not earlier:
            continue
        first = spec.data[min(earlier)]
        name = f"`{source.name[:80]}`"
        same = f"{name} is named twice" if first.name == source.name else f"{name} shares rows with `{first.name[:80]}`"
        if spec.flag("data.unique"):
            severity, message = "warning", f"{same}, and `unique` drops the repeated rows"
            help = "name the source once, or leave `unique` out"
        elif spec.get("data.holdout") is not None:
            severity, message = "warning", f"{same}: held-out rows would be trained on"
            help = "name the source once; `share` and `exhausted = repeat` use its rows more often"
        else:
            severity, message = "note", f"{same}: those rows are trained on twice in each epoch"
            help = "to train on those rows once, name the source once"
        yield Finding(source.label, message, help, (first.label,), severity=severity)
