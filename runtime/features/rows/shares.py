"""A mixture with shares: each source has an exact number of rows, and the order follows from the seed.

Example: two sources have 700 and 5,000 rows and shares of 70 % and 30 %. With ``stop``, the mixture ends when the first
source has no more rows: 700 and 300 rows. With ``repeat``, it uses every row at least once: 11,667 and 5,000 rows.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Any

from ...core.errors import RunError, say
from ...core.feature import Bundle, Rows, RowSets, Source, Tokenizer
from ...core.rows import name
from ...core.token_counts import TokenCounts
from . import lengths
from .mixture import Load, Mixture, build, joined, selected


class Shares(Mixture):
    """Hooks for a run on several sources, each with its share of the mixture."""

    tokenizer: Tokenizer | None = None

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Remember the tokenizer, which counts the tokens of each source's rows later."""
        self.tokenizer = tokenizer

    def source_mapped(self, bundle: Bundle, source: Source, part: Rows) -> Rows:
        """Drop the rows that the trainer would drop, so that the rows that it trains on have the shares in the spec."""
        kept_in_full = bundle.plan["method"]["scores"]
        drops = kept_in_full or _drops_long_prompts(bundle)
        if source.get("share") is None or self.tokenizer is None or not drops or len(part) == 0:
            return part
        plan, options = bundle.arguments, {"tokenizer": self.tokenizer, "in_full": kept_in_full}
        learned = "messages" not in part.column_names or plan.get("assistant_only_loss")
        if bundle.method == "sft" and not (
            learned if plan.get("completion_only_loss") else "messages" in part.column_names
        ):
            return part  # all tokens of these rows are learned
        kept = part.filter(_is_trained, fn_kwargs={**options, "most": plan["max_length"]}, desc=None)
        if len(kept) < len(part):
            why = "they do not fit in seq" if kept_in_full else "they have no learned token within seq"
            say(f"{name(source)}: {len(part) - len(kept):,} of {len(part):,} rows are left out: {why}")
        return kept

    def tokens_counted(self, bundle: Bundle, counted: TokenCounts, prepared: Rows) -> None:
        """Report rows that the trainer dropped after the mixture was drawn. With packing, report nothing: trl joins
        rows, so it returns fewer sequences than rows."""
        if counted.left_out and not bundle.arguments.get("packing"):
            say(f"mixture: the trainer drops {counted.left_out:,} of the mixed rows, so the shares are not exact")

    def rows_mapped(
        self, bundle: Bundle, sets: RowSets, parts: list[Rows], load: Load, tokenizer: Tokenizer
    ) -> RowSets:
        """Return a pair: the rows of all sources, mixed by their shares, and the evaluation set."""
        return build(bundle, parts, load, partial(mix, exhausted=bundle.data["exhausted"]))


def _drops_long_prompts(bundle: Bundle) -> bool:
    """Whether the trainer drops rows whose answer begins after `seq` tokens, as trl 1.16 does. If the spec limits
    prompts to fewer tokens, no answer begins so late.
    """
    plan = bundle.arguments
    if plan.get("max_length") is None or plan.get("truncation_mode") == "keep_end" or plan.get("packing"):
        return False
    if plan.get("assistant_only_loss") or plan.get("completion_only_loss"):
        return True
    return bundle.method in ("dpo", "kto", "orpo", "cpo") and plan.get("max_prompt_length") is None


def _is_trained(row: Mapping[str, object], tokenizer: Tokenizer, most: int, in_full: bool) -> bool:
    """Whether the trainer keeps a row. With ``in_full``, it keeps a row with at most ``most`` tokens; otherwise, a row
    whose first answer begins within the first ``most`` tokens."""
    if in_full:
        return max(lengths.of_row(row, tokenizer, tokenizer.eos_token or "")) <= most
    return lengths.before_answer(row, tokenizer) < most


def mix(
    parts: list[Rows],
    plans: Sequence[Source],
    seed: int,
    shuffle: bool,
    holdout: Mapping[str, Any] | None,
    filtered: Callable[..., Any] | None = None,
    *,
    exhausted: str,
) -> RowSets:
    """Draw the training rows and the held-out rows; ``counts`` computes their numbers.

    First, ``take`` and ``limit`` select rows of a source, and ``filtered`` drops repeated rows. Then rows are held out
    and drawn, in the order of a shuffle with the seed. A source that has no more rows starts again. Without
    ``shuffle``, rows keep their order, and the sources alternate by their shares. Raises RunError.
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
        say(f"mixture: {count:,} rows of {name(plan)}, which has {left:,} rows{times}")
    rows = joined(drawn)
    if shuffle:
        rows = rows.shuffle(seed=seed)
    else:
        middles = [(numpy.arange(count) + 0.5) / count for count in used]
        rows = rows.select(numpy.argsort(numpy.concatenate(middles), kind="stable"))
    return rows, None if holdout is None else joined(out)


def counts(
    names: Sequence[str],
    rows: Sequence[int],
    shares: Sequence[float],
    exhausted: str,
    holdout: Mapping[str, Any] | None,
) -> tuple[list[int], list[int]]:
    """Return a pair: a list of how many rows to train on, and a list of how many rows to hold out, by source. ``rows``
    has the sources' numbers of rows.

    The held-out rows have the shares of the mixture. A holdout that is a fraction refers to the mixture without
    repeats. Raises RunError for a source that has too few rows.
    """
    parts = [Fraction(share).limit_denominator(10**6) for share in shares]
    parts = [part / sum(parts) for part in parts]
    held = [0] * len(rows)
    if holdout is not None:
        least = floor(min(Fraction(count) / part for count, part in zip(rows, parts, strict=True)))
        requested = int(holdout["rows"]) if "rows" in holdout else ceil(holdout["fraction"] * least)
        if requested == 0:
            raise RunError("the holdout has no rows")
        held = _divided(requested, parts)
    left = [count - out for count, out in zip(rows, held, strict=True)]
    for source, count, out in zip(names, rows, held, strict=True):
        if count == 0:
            raise RunError(f"the source {source} has no row to train on: remove it, or raise batch.seq for longer rows")
        if count <= out:
            raise RunError(f"{source} has {count:,} rows, and the holdout takes {out:,}: no row is left to train on")
    lengths = [Fraction(count) / part for count, part in zip(left, parts, strict=True)]
    used = _divided(ceil(max(lengths)) if exhausted == "repeat" else floor(min(lengths)), parts)
    for source, count in zip(names, used, strict=True):
        if count == 0:
            raise RunError(f"{source} would have none of the mixture's {sum(used):,} rows")
    return used, held


def _divided(total: int, parts: Sequence[Fraction]) -> list[int]:
    """Divide ``total`` into whole numbers in proportion to ``parts``, which sum to 1. The numbers with the largest
    fractions are rounded up, all other numbers down."""
    exact = [total * part for part in parts]
    out = [floor(one) for one in exact]
    order = sorted(range(len(parts)), key=lambda number: out[number] - exact[number])
    for number in order[: total - sum(out)]:
        out[number] += 1
    return out
