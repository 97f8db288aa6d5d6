"""Tokenize many rows together, and count the results: lengths, truncated and dropped rows, tokens in the loss, packed
sequences, and steps.
"""

import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from . import stored
from .prepare import unchecked
from .printed import Say, collected, progress
from .reading import ANSWERS, IGNORED, PROMPTS, Capture
from .session import Session

ROW = "xpc_row"
"""The name of a column that identifies rows. Its value is the index of the source times `SOURCES`, plus the row's index
in the source.
"""
SOURCES = 2**40
PLACES = 2**32
"""A factor for numbers that identify tokens. Such a number is the index of the row times `PLACES`, plus the position of
the token in the row.
"""
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
LABELS = ("labels", "completion_labels", "chosen_labels", "rejected_labels")
MASKS = ("assistant_masks", "completion_mask")


class Scan:
    """Prepares all training rows, or the first rows of each source, in one trainer.

    `rows` is the largest number of rows that are read from a local source, and `of_hub` the largest number from a
    source on the hub. None means all rows. `say` prints the progress.
    """

    def __init__(self, session: Session, rows: int | None, of_hub: int | None, say: Say) -> None:
        self.session, self.capture, self.say = session, Capture(session), say
        self.sources: list[Mapping[str, Any]] = list(session.bundle.data["sources"])
        self.packs: list[list[tuple[int, int, int]]] | None = None
        self.messages: list[str] = []
        with self._first_rows(rows, of_hub), unchecked(session), progress(say):
            with collected(self.messages):
                given, _ = session.rows()
            self.given = len(given)
            say(f"converted rows: {self.given:,}; now trl prepares them")
            with self.capture.watching(), self._packing():
                self.trainer = session.trainer(given)
        self.prepared = self.trainer.train_dataset
        self.by_shape = _numbers_by_shape(given)
        self.tokenized = _flat(self.capture.tokenized if self.capture.tokenized is not None else given)

    @contextmanager
    def _first_rows(self, rows: int | None, of_hub: int | None) -> Iterator[None]:
        """A context in which only the first rows of each source are read: at most `of_hub` rows of a source on the hub,
        and at most `rows` of any other source. None means no limit.
        """
        session, data = self.session, self.session.bundle.data
        limits = [rows if source["id"] is None else of_hub for source in self.sources]
        for source, limit in zip(self.sources, limits, strict=True):
            if source["id"] is not None:
                name = session.core("rows").name(source)
                what = "all rows" if limit is None else f"the first {limit:,} rows"
                self.say(f"{what} of {name} are read from the hub: --rows N or --rows all changes this number")
        if not any(limits):
            with self._numbered():
                yield
            return
        import datasets

        kept = dict(data)
        parts: dict[int, Any] = {}
        for at, (source, limit) in enumerate(zip(self.sources, limits, strict=True)):
            if limit is None:
                continue
            tables, found = [], 0
            for table in stored.stream(session, source):
                tables.append(table.slice(0, limit - found))
                found += len(tables[-1])
                if found >= limit:
                    break
            if tables:
                parts[at] = datasets.concatenate_datasets([datasets.Dataset(one) for one in tables])
        read = [at for at, limit in enumerate(limits) if limit is None or at in parts]
        if not read:
            raise session.errors("the data has no rows")
        data.update(sources=[self.sources[at] for at in read], holdout=None)
        data.update({name: None for name in ("eval_split", "evaluation") if name in data})
        session.chosen.by_source = {id(self.sources[at]): part for at, part in parts.items()}
        try:
            with self._numbered():
                yield
        finally:
            data.clear()
            data.update(kept)
            session.chosen.by_source = None

    @contextmanager
    def _numbered(self) -> Iterator[None]:
        """A context in which every row gets the column `ROW`, except if the spec has `data(unique)`: the search for
        duplicates compares all columns, and a column `ROW` would make all rows different.
        """
        if self.session.bundle.data.get("unique"):
            yield
            return
        order = {id(source): at for at, source in enumerate(self.sources)}
        base = self.session.core("feature").Feature

        class Numbered(base):  # type: ignore[misc, valid-type]  # a class of the bundle
            def source_mapped(self, bundle: Any, source: Mapping[str, Any], rows: Any) -> Any:
                first = order.get(id(source), 0) * SOURCES
                return rows.add_column(ROW, list(range(first, first + len(rows))))

        features = self.session.bundle.features
        self.session.bundle.features = [*features, Numbered()]
        try:
            yield
        finally:
            self.session.bundle.features = features

    @contextmanager
    def _packing(self) -> Iterator[None]:
        """A context that records, for each token in a packed sequence, from which row it comes."""
        module = importlib.import_module(
            next(one.__module__ for one in self.session.trainer_class().__mro__ if one.__module__.startswith("trl."))
        )
        real = getattr(module, "pack_dataset", None)
        if real is None:
            yield
            return

        def packed(rows: Any, *args: Any, **kwargs: Any) -> Any:
            lengths = _lengths(_flat(rows), "input_ids")
            locations = rows.map(
                lambda row, at: {
                    name: list(range(at * PLACES, at * PLACES + len(row[name]))) for name in rows.column_names
                },
                with_indices=True, desc=None,
            )  # fmt: skip
            origin = _flat(real(locations, *args, **kwargs))
            self.packs = [_parts(one) for one in origin["input_ids"]]
            self.packed_lengths, self.packed_order = lengths, getattr(rows, "_indices", None)
            return real(rows, *args, **kwargs)

        module.pack_dataset = packed  # type: ignore[attr-defined]
        try:
            yield
        finally:
            module.pack_dataset = real  # type: ignore[attr-defined]

    # -- counts -------------------------------------------------------------------------------------------------------

    def lengths(self) -> list[int]:
        """The length of each row in tokens, before truncation. For a preference pair, it is the length of the prompt
        with the longer answer.
        """
        if self.session.processor is not None:
            count = importlib.import_module("trainer.features.model.vision").row_tokens
            return [count(self.session.processor, row)[0] for row in self.tokenized]
        names = self.tokenized.column_names
        prompt = next((_lengths(self.tokenized, name) for name in PROMPTS if name in names), None)
        answers = [_lengths(self.tokenized, name) for name in (*_answer_columns(names),)]
        if not answers:
            return [] if prompt is None else prompt
        longest = [max(each) for each in zip(*answers, strict=True)]
        alone = "input_ids" in names or prompt is None
        return longest if alone else [a + b for a, b in zip(prompt or (), longest, strict=True)]

    def numbers(self) -> list[int] | None:
        """The number (see `ROW`) of each tokenized row. None if the column `ROW` is lost and cannot be restored."""
        if ROW in self.tokenized.column_names:
            return list(self.tokenized[ROW])
        return self._mixed_numbers(getattr(self.capture.tokenized, "_indices", None))

    def _mixed_numbers(self, order: Any) -> list[int] | None:
        """The number (see `ROW`) of each row, if the rows have several shapes (formats). `order` has the index of each
        row in the joined table.
        """
        if self.by_shape is None or len(self.by_shape) != len(self.tokenized):  # one shape, or split rows
            return None
        return self.by_shape if order is None else [self.by_shape[one.as_py()] for one in order.column(0)]

    def location(self, number: int) -> tuple[Mapping[str, Any], int]:
        """Convert the number of a row (see `ROW`) to the row's data source and the row's index in this source."""
        return self.sources[number // SOURCES], number % SOURCES

    def label(self, number: int) -> str:
        """The name by which a row is printed: its index or, if there are several sources, the name of its source and
        its index.
        """
        source, row = self.location(number)
        return str(row) if len(self.sources) == 1 else f"{self.session.core('rows').name(source)}:{row}"

    def counts(self) -> dict[str, Any]:
        """The counts over all rows, as JSON data. They are printed, and stored for later commands."""
        lengths = sorted(self.lengths())
        most = self.session.core("truncation").limit(self.session.bundle)
        out: dict[str, Any] = {"rows": self.given, "tokens": sum(lengths), "limit": most}
        out["quantiles"] = {str(one): _quantile(lengths, one) for one in QUANTILES} if lengths else {}
        out["cut"] = 0 if most is None else sum(one > most for one in lengths)
        packing = self.packs is not None
        out["dropped"] = 0 if packing else max(0, self.given - len(self.prepared))
        out["sequences"] = len(self.prepared)
        kept, learned = self._tokens()
        out["kept_tokens"], out["learned_tokens"] = kept, learned
        if packing and kept and self.session.stated.get("max_length"):
            out["fill"] = round(kept / (len(self.prepared) * self.session.stated["max_length"]), 4)
        out["steps"] = self._steps()
        return out

    def _tokens(self) -> tuple[int | None, int | None]:
        """Return a pair: the number of tokens that the trainer keeps, and how many of these count in the loss. Both are
        None if TRL decides them only during training.
        """
        rows = _flat(self.prepared)
        names = rows.column_names
        if "input_ids" in names:
            kept = sum(_lengths(rows, "input_ids"))
            if "labels" in names:
                return kept, _ones(rows, "labels", lambda one: one != IGNORED)
            masks = [name for name in MASKS if name in names]
            return kept, _ones(rows, masks[0], bool) if masks else kept
        labelled = [name for name in LABELS if name in names]
        if labelled:
            return (
                sum(sum(_lengths(rows, name)) for name in labelled),
                sum(_ones(rows, name, lambda one: one != IGNORED) for name in labelled),
            )
        return None, None

    def _steps(self) -> dict[str, Any]:
        """The number of optimizer steps in an epoch and in the run, counted as transformers counts them."""
        args = self.trainer.args
        if not len(self.prepared):
            return {"epoch": 0, "run": 0}
        batches = len(self.trainer.get_train_dataloader())
        accumulation = self.trainer.args.gradient_accumulation_steps
        if self.session.plan["method"]["rewarded"] and hasattr(args, "steps_per_generation"):
            batches *= args.steps_per_generation or 1
        epoch = max(math.ceil(batches / accumulation), 1)
        total = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * epoch)
        return {"epoch": epoch, "run": total}

    # -- chosen rows --------------------------------------------------------------------------------------------------

    def longest(self, many: int) -> list[int]:
        """The numbers (values of the column `ROW`) of the `many` longest rows, the longest first."""
        return self._sorted(lambda length: True)[:many]

    def cut(self, many: int) -> list[int]:
        """The numbers (values of the column `ROW`) of the first `many` rows that exceed the length limit."""
        most = self.session.core("truncation").limit(self.session.bundle)
        return [] if most is None else sorted(self._sorted(lambda length: length > most))[:many]

    def _sorted(self, wanted: Callable[[int], bool]) -> list[int]:
        numbers = self.numbers()
        if numbers is None:
            raise self.session.errors(
                "the rows cannot be identified, because this run splits texts of a mixture, or drops equal rows"
            )
        lengths = self.lengths()
        if len(lengths) != len(numbers):
            raise self.session.errors(
                "the prompts of this method are tokenized while it trains, so their lengths are not known; write "
                "`--row` or `--random`"
            )
        both = sorted(zip(lengths, numbers, strict=True), key=lambda one: (-one[0], one[1]))
        return [number for length, number in both if wanted(length)]

    def order(self, steps: int) -> list[list[list[str]]]:
        """The names of the rows in the first steps, as nested lists: steps, micro-batches of a step, and rows (or
        packed sequences of rows) of a micro-batch.
        """
        if not len(self.prepared):
            return []
        if self.session.bundle.data.get("streaming"):
            raise self.session.errors("a preview reads complete rows, and cannot show the order of a stream")
        names, generates = self._names(), self.session.plan["method"]["generates"]
        self.trainer.train_dataset = _Places(len(self.prepared))
        self.trainer.data_collator = lambda rows: {"places": rows}
        self.trainer.args.remove_unused_columns = False
        accumulation, out = self.trainer.args.gradient_accumulation_steps, list[list[list[str]]]()
        for at, batch in enumerate(self.trainer.get_train_dataloader()):
            if at >= steps * accumulation:
                break
            if at % accumulation == 0:
                out.append([])
            locations: list[int] = batch["places"] if isinstance(batch, Mapping) else batch
            shown = [_times(names[location], many) for location, many in Counter(locations).items()]
            # several micro-batches train on the completions of one generation batch, so this batch is shown once
            if not (generates and shown in out[-1]):
                out[-1].append(shown)
        return out

    def _names(self) -> list[str]:
        """The name by which each prepared sequence is printed. It is the name of the sequence's row or, for a packed
        sequence, the names of all its rows with their numbers of tokens.
        """
        numbers = self.numbers()
        if self.packs is None:
            rows = _flat(self.prepared)
            numbers = rows[ROW] if ROW in rows.column_names else numbers
            if numbers is not None and len(numbers) == len(rows):
                return [self.label(number) for number in numbers]
            return [f"(sequence {at})" for at in range(len(rows))]
        shown: list[str] = []
        locations = list(range(len(numbers or ())))
        if self.by_shape is not None:
            numbers = self._mixed_numbers(self.packed_order)
        elif self.packed_order is not None:
            locations = [one.as_py() for one in self.packed_order.column(0)]
        for parts in self.packs:
            labels = []
            for row, start, many in parts:
                complete = many == self.packed_lengths[row]
                which = f"{many:,} tokens" if complete else f"tokens {start:,} to {start + many:,}"
                labels.append(f"{self.label(numbers[locations[row]]) if numbers else row} ({which})")
            shown.append("[" + " + ".join(labels) + "]")
        return shown


def _numbers_by_shape(given: Any) -> list[int] | None:
    """For a mixture of shapes (formats of rows), the number of each row, in the trainer's order: all rows of the first
    row's shape, then all rows of the next shape, and so on. None if the rows are not such a mixture.
    """
    if not {ROW, "kind"} <= {*given.column_names}:
        return None
    by_shape: dict[str, list[int]] = {}
    for kind, number in zip(given["kind"], given[ROW], strict=True):
        by_shape.setdefault(kind, []).append(number)
    return [number for numbers in by_shape.values() for number in numbers]


def _times(name: str, many: int) -> str:
    """The name of a row. If the batch has several completions of this row, the text ` (N completions)` is appended."""
    return name if many == 1 else f"{name} ({many} completions)"


class _Places:
    """A dataset whose items are the numbers 0, 1, 2, ... If a dataloader reads it, the order of the numbers is the
    order in which the dataloader would return rows.
    """

    def __init__(self, many: int) -> None:
        self.many = many

    def __len__(self) -> int:
        return self.many

    def __getitem__(self, location: int) -> int:
        return int(location)


def _answer_columns(names: Sequence[str]) -> Iterator[str]:
    for _, columns in ANSWERS:
        yield from (one for one in columns if one in names)


def _flat(rows: Any) -> Any:
    """A copy of the dataset without its mapping of indices, so that the columns of its Arrow table are in the order of
    the rows.
    """
    rows = rows.with_format(None)
    return rows.flatten_indices() if getattr(rows, "_indices", None) is not None else rows


def _lengths(rows: Any, name: str) -> list[int]:
    import pyarrow.compute

    return [one or 0 for one in pyarrow.compute.list_value_length(rows.data.column(name)).to_pylist()]


def _ones(rows: Any, name: str, wanted: Callable[[Any], bool]) -> int:
    import pyarrow.compute

    total = 0
    for chunk in rows.data.column(name).chunks:
        values = pyarrow.compute.value_counts(pyarrow.compute.list_flatten(chunk))
        if len(values):
            total += sum(one["counts"] for one in values.to_pylist() if wanted(one["values"]))
    return total


def _parts(locations: Sequence[int]) -> list[tuple[int, int, int]]:
    """The parts of a packed sequence, one for each row in the sequence. Each part is a triple: the index of the row,
    the position of the part's first token in the row, and the number of the part's tokens.
    """
    out: list[tuple[int, int, int]] = []
    for row, location in (divmod(one, PLACES) for one in locations):
        if out and (out[-1][0], sum(out[-1][1:])) == (row, location):
            out[-1] = (row, out[-1][1], out[-1][2] + 1)
        else:
            out.append((row, location, 1))
    return out


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
