"""The length of a run, as far as it is known: its steps, samples, tokens and warm-up. The module also describes how the
lengths of two runs differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xpc.compiler.data.row_counts import epoch, sampled, sequences_of_steps, trained
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.lower.optimizer import warmup_of
from xpc.compiler.review.differences.change import Change, short
from xpc.compiler.review.meaning import plain
from xpc.compiler.rules.numerics.batch import total_steps
from xpc.compiler.spec import Spec
from xpc.grammar.record import record

SHOWN = 3
"""Maximum number of settings that the first line of a comparison names."""


@record
class RunLength:
    """The length of one run. `samples` is the number of sequences that the whole run trains on. `rows` is the number of
    rows in one epoch. `epochs` is the number of epochs that the spec states.

    An unknown quantity is None, such as the number of rows of most datasets, or the number of sequences after packing.
    `group` is the number of completions per prompt. `each` is `group` times the number of training iterations over each
    completion. `per_epoch` is the number of steps in an epoch; 0 if it is unknown.
    """

    steps: int | None
    samples: int | None
    rows: int | None
    epochs: float | None
    gbs: int
    seq: int
    packed: bool
    online: bool
    warmup: Amount | None
    data: object
    each: int = 1
    group: int = 1
    per_epoch: int = 0

    @property
    def tokens(self) -> int | None:
        """The largest number of tokens that the run can train on: samples times `seq`."""
        return None if self.samples is None or self.online else self.samples * self.seq

    @property
    def warm(self) -> tuple[int, float] | None:
        """The warm-up in two forms: in steps, and as a share of the run. None if the number of steps or the share is
        unknown.
        """
        if self.warmup is None or not self.steps:
            return None
        count = self.warmup.steps(self.steps)
        return count, count / self.steps

    def steps_why(self) -> str:
        """Explain, as text, how the number of steps was calculated."""
        if self.epochs is None:
            return "as written"
        if self.rows is None:
            return ""
        each = f" x {self.group} completions" if self.group > 1 else ""
        again = f" x {self.each // self.group} iterations" if self.each > self.group else ""
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs:g} epochs"
        total = f"{self.rows:,} rows{each}{again}"
        if (self.steps or 0) * self.gbs == self.rows * self.each * self.epochs:
            return f"{total} x {epochs} / {self.gbs}"
        rounded = "" if self.steps == self.per_epoch * self.epochs else ", rounded up"
        count = f"{epochs} of {self.per_epoch:,} step{'' if self.per_epoch == 1 else 's'}{rounded}"
        more = self.per_epoch * self.gbs - self.rows * self.each
        how = ", rounded up" if more > 0 else ", without an incomplete last batch" if more else ""
        return f"{count}: {total} / {self.gbs}{how}"

    def tokens_why(self) -> str:
        """Explain, as text, how the number of tokens was calculated."""
        return "" if self.samples is None else f"{self.samples:,} sequences x {self.seq}"

    def headline(self, other: RunLength, settings: Sequence[Change]) -> str:
        """The part of a comparison's first line about the length: `gbs 528 -> 264: 7,500 steps instead of 3,750, same
        tokens`.
        """
        by_name: dict[str, list[Change]] = {}
        for each in settings:
            by_name.setdefault(each.name, []).append(each)
        named = [_short_change(name, found) for name, found in list(by_name.items())[:SHOWN]]
        if len(by_name) > SHOWN:
            more = len(by_name) - SHOWN
            named.append(f"{more} more setting{'s' if more > 1 else ''}")
        parts = [*self._steps(other), *self._samples(other), *self._prompts(other)]
        head = ", ".join(named)
        return f"{head}: {', '.join(parts)}" if head and parts else head or ", ".join(parts)

    def _steps(self, other: RunLength) -> Iterator[str]:
        if self.steps is not None and other.steps is not None:
            if self.steps != other.steps:
                yield f"{other.steps:,} step{'s' if other.steps != 1 else ''} instead of {self.steps:,}"
        elif self._comparable(other) and self._pace() != other._pace():
            yield f"{_times(other._pace() / self._pace())} the steps"

    def _prompts(self, other: RunLength) -> Iterator[str]:
        """A phrase that says how the number of prompts per step has changed."""
        was, now = self.gbs / self.group, other.gbs / other.group
        if max(self.group, other.group) > 1 and was != now:
            yield f"{now:g} prompt{'' if now == 1 else 's'} a step instead of {was:g}"

    def _samples(self, other: RunLength) -> Iterator[str]:
        """A phrase about the change of the number of tokens. Empty if neither the batch nor the length of the run has
        changed.
        """
        moved = (self.gbs, self.epochs, self.steps, self.seq) != (other.gbs, other.epochs, other.steps, other.seq)
        if not moved or self.online or other.online or self.seq != other.seq or self.packed != other.packed:
            return
        if self.epochs is not None and other.epochs is not None and self.data == other.data:
            ratio = other.epochs / self.epochs if self.epochs else 1.0
        elif self.samples and other.samples:
            ratio = other.samples / self.samples
        else:
            return
        yield "same tokens" if ratio == 1 else f"{_times(ratio)} the tokens"

    def _comparable(self, other: RunLength) -> bool:
        """Whether the ratio between the two runs' numbers of steps is known. It may be known although the numbers
        themselves are not.
        """
        return bool(self.epochs and other.epochs and self.data == other.data)

    def _pace(self) -> float:
        """The number of optimizer steps per row or, with packing, per token. For two runs on the same rows, the ratio
        of this quantity equals the ratio of their numbers of steps.
        """
        return (self.epochs or 0) * self.each / self.gbs / (self.seq if self.packed else 1)


def run_length(spec: Spec, planned: int | None = None) -> RunLength:
    """The length of a run. `planned` is the plan's number of steps, which is known even for online methods."""
    steps, written = total_steps(spec), spec.get("train.steps")
    steps = planned if steps is None else steps
    epochs = None if isinstance(written, int) else spec.real("train.epochs")
    gbs, packed, online = spec.integer("batch.gbs"), spec.flag("batch.packing"), spec.online
    rows = None if packed else trained(spec)
    samples = None
    if isinstance(written, int):
        samples = written * gbs if online else sequences_of_steps(spec, rows, written)
    elif rows is not None and epochs is not None and not online:
        samples = round(rows * epochs)
    warmup = warmup_of(spec) if spec.get("schedule.warmup") is not None else None
    held = [
        spec.get(path) for path in ("data.holdout", "data.exhausted", "data.long", "data.unique", "data.min_tokens")
    ]
    data = plain((spec.data, held, packed, spec.text("method")))
    group = int(spec.get("method.generations") or 1) if spec.method.grouped else 1
    each = group * int(spec.get("method.iterations") or 1) if spec.method.grouped else 1
    length = spec.integer("batch.seq")
    per_epoch = 0 if rows is None else epoch(spec, sampled(spec, rows))[0]
    return RunLength(steps, samples, rows, epochs, gbs, length, packed, online, warmup, data, each, group, per_epoch)


def _short(path: str) -> str:
    """The name of a setting without its clause: `lr` for `optimizer.lr`. A path of more than two parts stays
    complete.
    """
    name = path.rpartition(".")[2]
    row = BY_PATH.get(path)
    return name if row is not None and not row.inner and "." in path else path


def _short_change(name: str, found: Sequence[Change]) -> str:
    """A changed setting, as text for a comparison's first line. If several data sources have changed, the text has
    their number instead of their names.
    """
    if len(found) > 1:
        return f"{name} ({len(found)} sources change)"
    before, after = short(found[0].before, found[0].after)
    return f"{_short(name)} {before} -> {after}"


def _times(ratio: float) -> str:
    text = f"{ratio:.3g}" if abs(ratio - 1) > 0.005 else f"{ratio:.6g}"
    return {2.0: "twice", 0.5: "half", 1.0: "the same"}.get(ratio, f"{text} times")
