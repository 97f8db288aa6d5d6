"""A mixture with shares: exact numbers of rows of each source, in an order that follows from the seed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...core.errors import say
from ...core.feature import Bundle
from ...core.rows import name
from .mixture import Load, Mixture, build, joined, selected
from .share_counts import counts


class Shares(Mixture):
    """Several sources, each with its share of the mixture."""

    def rows_mapped(
        self, bundle: Bundle, sets: tuple[Any, Any], parts: list[Any], load: Load, tokenizer: Any
    ) -> tuple[Any, Any]:
        """The mixture, and the evaluation set."""
        return build(bundle, parts, load, partial(mix, exhausted=bundle.data["exhausted"]))


def mix(
    parts: list[Any],
    plans: Sequence[Mapping[str, Any]],
    seed: int,
    shuffle: bool,
    holdout: Mapping[str, Any] | None,
    filtered: Callable[..., Any] | None = None,
    *,
    exhausted: str,
) -> tuple[Any, Any]:
    """Draw the training rows and the held-out rows; ``share_counts.counts`` computes their numbers.

    First, ``take`` and ``limit`` select rows of a source, and ``filtered`` drops repeated rows. Then rows are held out
    and drawn, in the order of the source, shuffled with the seed. A source that has no more rows starts again. Without
    ``shuffle`` the sources alternate by their shares. Raises RunError.
    """
    import numpy

    taken = [selected(part, plan, seed, shuffle) for part, plan in zip(parts, plans, strict=True)]
    if filtered is not None:
        seen: set[bytes] = set()
        taken = [filtered(part, seen) for part in taken]
    shares = [float(plan["share"]) for plan in plans]
    used, held = counts([name(plan) for plan in plans], [len(part) for part in taken], shares, exhausted, holdout)
    if shuffle:
        taken = [part.shuffle(seed=seed) for part in taken]
    drawn, out = [], []
    for part, plan, count, held_out in zip(taken, plans, used, held, strict=True):
        left = len(part) - held_out
        drawn.append(part.select(numpy.resize(numpy.arange(left), count)))
        out += [part.select(range(left, len(part)))] if held_out else []
        times = f", {count / left:.4g} times each" if count > left else ""
        say(f"mixture: {count:,} rows of {name(plan)}, which has {left:,}{times}")
    rows = joined(drawn)
    if shuffle:
        rows = rows.shuffle(seed=seed)
    else:
        middles = [(numpy.arange(count) + 0.5) / count for count in used]
        rows = rows.select(numpy.argsort(numpy.concatenate(middles), kind="stable"))
    return rows, None if holdout is None else joined(out)
