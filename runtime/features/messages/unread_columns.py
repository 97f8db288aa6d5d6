"""Report stored columns that say how a row should be learned but that no trainer reads, such as `documents`.

`xpc check` reports them for local files. The run reports them for a sample of the rows of every source, because the
compiler reads neither hub datasets nor Parquet files.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import RunError, rank, say
from ...core.feature import Bundle, Feature, Rows, Source
from ...core.row_comparison import FIRST, SPREAD
from ...core.rows import name
from .stored_columns import (
    IN_PROMPTS,
    PROMPTED,
    QUESTIONS,
    SCORES,
    SYSTEM,
    THOUGHTS,
    WORDS,
    not_read_by,
    other_system,
    rewarded,
    unread,
)

SHAPES = ("messages", "conversations", *PROMPTED)


def counted(bundle: Bundle, source: Source, stored: Rows) -> tuple[dict[str, int], dict[str, int], int]:
    """Return three values: a dict from each kind of problem (see `WORDS`) to the number of compared rows that have it,
    a dict to its first row, and the number of compared rows. Columns that cannot have a problem are not loaded.
    """
    counts, first = dict[str, int](), dict[str, int]()
    if source.get("only") or source["shape"] not in SHAPES or not len(stored):
        return counts, first, 0
    present = list(stored.column_names)
    names = list(bundle.row_format().columns(source, present).values())
    known = {"history", "documents", "weight", "label", "prompt", *QUESTIONS, *THOUGHTS, *sum(SCORES, ())}
    others = [one for one in present if one not in names and (one in known or SYSTEM.fullmatch(one))]
    if not others and source["shape"] != "preference":
        return counts, first, 0
    rows = stored.select_columns([*(one for one in names if one in present), *others])
    sampled = sorted({*range(min(FIRST, len(rows))), *range(0, len(rows), max(1, len(rows) // SPREAD))})
    template = bundle.data.get("system_column"), bundle.data.get("prompt_template")
    reported = IN_PROMPTS if rewarded(bundle.method, source["shape"]) else WORDS
    for number in sampled:
        row = rows[number]
        kinds = [*unread(row, source["shape"], names)]
        kinds += ["system_prompt"] * (template == (None, None) and other_system(row, names))
        for kind in (one for one in kinds if one in reported):
            counts[kind] = counts.get(kind, 0) + 1
            first.setdefault(kind, number)
    return counts, first, len(sampled)


def check(bundle: Bundle, source: Source, stored: Rows) -> None:
    """Print a sentence for each kind of column that is not read. Raises RunError if all compared preference pairs have
    their question in such a column.
    """
    if rank() != 0:
        return
    counts, first, many = counted(bundle, source, stored)
    if many and counts.get("question") == many:
        raise RunError(
            f"{name(source)}: the question of each pair is in a column other than `prompt`, which {bundle.method} does "
            "not read: name the column, as in `data(prompt=question)`"
        )
    for kind, count in counts.items():
        say(
            f"{name(source)}: {count:,} of {many:,} compared rows have {WORDS[kind]}, "
            f"{not_read_by(bundle.method, source['shape'])} (row {first[kind]:,} is the first)"
        )


class UnreadColumns(Feature):
    """Checks stored rows for columns that the trainer will not read, before these columns are dropped."""

    def row_types(
        self, bundle: Bundle, source: Source, stored: Rows, dropped: Sequence[str],
        make: Callable[[Any, int], dict[str, Any]],
    ) -> dict[str, object] | None:  # fmt: skip
        """Check the columns of a source. Returns None, because other features decide the types of the columns."""
        check(bundle, source, stored)
        return None
