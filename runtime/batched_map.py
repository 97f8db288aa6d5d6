"""``Dataset.map`` for ``launch.sh --prepare``: in batches and on every core, with the results of mapping row by row.

A function of one row is called for each row of a batch, twice if it tokenizes. The first call only collects its texts.
Then one call of the tokenizer's library encodes all texts of the batch, and the second call gets the encodings. So the
function itself, which is trl's or the bundle's, decides the ids and the masks. Two functions of trl that handle every
token in Python are replaced by functions of Arrow columns (`COLUMNS`). Each core prepares a part of the rows.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

KNOWN = {
    "batched", "desc", "features", "fn_kwargs", "function", "load_from_cache_file", "num_proc", "remove_columns",
    "with_indices", "writer_batch_size",
}  # fmt: skip
"""A call of ``Dataset.map`` is done in batches only if it has no arguments other than these."""
FEWEST = 1000
"""Rows for each forked process: 2,500 rows are mapped by at most two processes."""
ROWS = 200
"""The rows whose texts are encoded together; more are not faster, and need more memory."""


class NotBatched(Exception):
    """Raised if a function cannot be called in batches, for example because its columns differ between rows."""


class Row(MutableMapping[str, Any]):
    """A row of a batch, as the function gets it; ``own`` has the values that the function has set."""

    def __init__(self, batch: Mapping[str, Any], at: int) -> None:
        self.batch, self.at, self.own = batch, at, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        return self.own[name] if name in self.own else self.batch[name][self.at]

    def __setitem__(self, name: str, value: Any) -> None:
        self.own[name] = value

    def __delitem__(self, name: str) -> None:
        raise NotBatched

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.batch

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.batch, *self.own]))

    def __len__(self) -> int:
        return len({*self.batch, *self.own})


class Recorded:
    """A tokenizer that collects the texts of a batch, and then returns their encodings in the same order."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.kind = tokenizer, type(tokenizer)
        self.texts: list[tuple[str, dict[str, Any]]] = []
        self.rendered: list[Any] = []
        # For each call of apply_chat_template: whether it returned token ids (of the text that it rendered).
        self.direct: list[bool] = []
        self.last: Any = None
        self.encoded: Iterator[Any] | None = None
        recorded = self

        class Replaced(self.kind):  # type: ignore[misc, name-defined]
            """The class that the tokenizer has while a batch is prepared: its calls are recorded."""

            def __call__(self, text: Any = None, *args: Any, **options: Any) -> Any:
                return recorded.call(text, args, options)

            def apply_chat_template(self, *args: Any, **options: Any) -> Any:
                if recorded.encoded is not None and next(recorded.direct_again):
                    next(recorded.again)
                    return next(recorded.encoded)
                out = super().apply_chat_template(*args, **options)
                if recorded.encoded is None:
                    masked = isinstance(out, MutableMapping) and "assistant_masks" in out
                    recorded.direct.append(bool(recorded.texts) and out is recorded.last and not masked)
                    if masked:
                        out["assistant_masks"] = [1]  # trl refuses a row whose mask has no 1
                return out

        self.replaced = Replaced

    def call(self, text: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Record the text of a call, or return its encoding if the texts are encoded already."""
        if not isinstance(text, str) or args or options.get("text_pair") or options.get("return_tensors"):
            return self.kind.__call__(self.tokenizer, text, *args, **options)
        if self.encoded is not None:
            return next(self.encoded)
        self.texts.append((text, options))
        self.last = _nothing()
        return self.last

    def render(self, real: Callable[..., Any], options: dict[str, Any]) -> Any:
        """Render the chat template in the first call of a function, and return the same text in the second."""
        if self.encoded is not None:
            return next(self.again)
        self.rendered.append(real(**options))
        return self.rendered[-1]

    def encode(self) -> None:
        """Encode the collected texts, with one call of the tokenizer for all texts that have the same options."""
        from transformers import BatchEncoding

        groups: dict[str, list[int]] = {}
        for at, (_, options) in enumerate(self.texts):
            groups.setdefault(repr(sorted(options.items())), []).append(at)
        found: list[Any] = [None] * len(self.texts)
        for places in groups.values():
            options = self.texts[places[0]][1]
            batch = self.kind.__call__(self.tokenizer, [self.texts[at][0] for at in places], **options)
            for at, place in enumerate(places):
                values = {name: column[at] for name, column in batch.items()}
                found[place] = BatchEncoding(values, encoding=batch.encodings[at])
        self.encoded, self.again, self.direct_again = iter(found), iter(self.rendered), iter(self.direct)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A context in which the calls of the tokenizer are recorded."""
        from transformers import tokenization_utils_base as base

        render = base.render_jinja_template
        base.render_jinja_template = lambda **options: self.render(render, options)
        self.tokenizer.__class__ = self.replaced
        try:
            yield
        finally:
            self.tokenizer.__class__ = self.kind
            base.render_jinja_template = render
            self.texts, self.rendered, self.last = [], [], None  # Replaced, and so this object, is freed much later
            self.encoded = self.again = self.direct_again = iter(())


def _nothing() -> Any:
    """The encoding that the tokenizer returns while texts are collected: one token, since trl 0.24 reads the first."""
    from tokenizers import Encoding
    from transformers import BatchEncoding

    return BatchEncoding({"input_ids": [0], "attention_mask": [1]}, encoding=Encoding())


def _batched(
    function: Callable[..., Any], tokenizer: Any, first: int, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Make a function of a batch of rows from a function of one row.

    ``first`` is added to the indices of the rows, because each process maps rows from ``first`` on.
    """

    def called(batch: Mapping[str, Any], places: range, indices: Sequence[int]) -> list[Any]:
        return [function(Row(batch, at), *[first + one for one in indices[at : at + 1]], **options) for at in places]

    def grouped(batch: Mapping[str, Any], indices: Sequence[int] = ()) -> dict[str, list[Any]]:
        many, out = len(next(iter(batch.values()))), list[Any]()
        for begin in range(0, many, ROWS):
            places = range(begin, min(begin + ROWS, many))
            if not getattr(tokenizer, "is_fast", False):
                out += called(batch, places, indices)
                continue
            recorded = Recorded(tokenizer)
            with recorded.recording():
                made = called(batch, places, indices)
                if recorded.texts:
                    recorded.encode()
                    made = called(batch, places, indices)
            out += made
        return _columns(batch, out)

    return grouped


def _columns(batch: Mapping[str, Any], rows: list[Any]) -> dict[str, list[Any]]:
    """The results of a batch as columns. Raises NotBatched if the rows have different columns."""
    kind = rows[0]
    if isinstance(kind, Row):
        names = dict.fromkeys(name for row in rows for name in row.own)
    elif isinstance(kind, Mapping) and all(isinstance(row, Mapping) and row.keys() == kind.keys() for row in rows):
        names = dict.fromkeys(rows[0])
    else:
        raise NotBatched
    return {name: _compact([row[name] for row in rows]) for name in names}


def _compact(values: list[Any]) -> list[Any]:
    """Convert lists of whole numbers to arrays, which datasets writes without reading every number. Other values are
    returned unchanged.
    """
    import numpy

    if not any(values) or not all(isinstance(one, list) for one in values):
        return values
    arrays = [numpy.asarray(one) if one else numpy.empty(0, dtype="int64") for one in values]
    return arrays if all(one.dtype == "int64" and one.ndim == 1 for one in arrays) else values


def _build_labels(table: Any, mask_columns: Sequence[str]) -> dict[str, Any]:
    """Labels of SFT: the token ids, and -100 where a mask is 0."""
    import pyarrow.compute as compute

    flat, lengths = _tokens(table, "input_ids")
    flat = flat.cast("int64")
    for name in mask_columns:
        mask, masked = _tokens(table, name)
        if (masked != lengths).any():
            raise NotBatched
        flat = compute.if_else(compute.equal(mask, 0), -100, flat)
    return {"labels": _lists(flat, lengths)}


def _truncate(table: Any, sl: slice) -> dict[str, Any]:
    """Token ids and labels of SFT, cut to the slice ``sl``."""
    import numpy

    out = {}
    for name in ("input_ids", "labels"):
        flat, lengths = _tokens(table, name)
        kept = numpy.array([sl.indices(one) for one in lengths.tolist()], dtype="int64").reshape(-1, 3)
        if (kept[:, 1] - kept[:, 0] == lengths).all():
            out[name] = table[name]
            continue
        new = numpy.maximum(kept[:, 1] - kept[:, 0], 0)
        shift = numpy.cumsum(lengths) - lengths + kept[:, 0] - (numpy.cumsum(new) - new)
        out[name] = _lists(flat.take(numpy.repeat(shift, new) + numpy.arange(new.sum())), new)
    return out


def _tokens(table: Any, name: str) -> tuple[Any, Any]:
    """The values of a column of lists, and the length of each list. Raises NotBatched for nulls."""
    column = table[name].combine_chunks()
    flat = column.flatten()
    if column.null_count or flat.null_count:
        raise NotBatched
    return flat, column.value_lengths().to_numpy(zero_copy_only=False).astype("int64")


def _lists(flat: Any, lengths: Any) -> Any:
    """A column of lists with these lengths."""
    import numpy
    import pyarrow

    return pyarrow.ListArray.from_arrays(numpy.append(0, numpy.cumsum(lengths)).astype("int32"), flat)


COLUMNS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "9e1026bc84d33724": _build_labels,
    "38267dd5b0b71f1e": _truncate,
}
"""Functions of trl's SFT trainer by the digest of their source (trl 1.16), and what does the same with an Arrow table.
A function with any other source is called for each row.
"""


def on_columns(function: Callable[..., Any]) -> Callable[..., dict[str, Any]] | None:
    """The function of an Arrow table that does the same as a function of one row; None if there is none."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return COLUMNS.get(sha256(source.encode()).hexdigest()[:16])


def _of_tables(
    function: Callable[..., dict[str, Any]], removed: str | Sequence[str] | None, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function of a batch that adds the results of ``function`` and drops the ``removed`` columns."""
    names = [removed] if isinstance(removed, str) else list(removed or ())

    def made(table: Any, *_: Any) -> Any:
        out = table.drop_columns(names)
        for name, values in function(table, **options).items():
            at = out.schema.get_field_index(name)
            out = out.append_column(name, values) if at < 0 else out.set_column(at, name, values)
        return out

    return made


def mapped(real: Callable[..., Any], rows: Any, path: str, tokenizer: Any, **options: Any) -> Any:
    """Do the work of ``Dataset.map`` with these options, and write the result to files whose names begin with
    ``path``.
    """
    function = options.get("function")
    as_it_is = {**options, "cache_file_name": f"{path}.arrow", "load_from_cache_file": False}
    if function is None or options.get("batched") or not options.keys() <= KNOWN or not len(rows):
        return real(rows, **as_it_is)
    try:
        return _in_forks(real, rows, path, tokenizer, options)
    except Exception:  # calling the function row by row raises its own error, if it has one
        return real(rows, **as_it_is)


def _in_forks(real: Callable[..., Any], rows: Any, path: str, tokenizer: Any, options: dict[str, Any]) -> Any:
    """Map contiguous parts of the rows in forks, and join the forks' files. Raises NotBatched if a fork fails."""
    import datasets

    cores = max(1, min(len(os.sched_getaffinity(0)), len(rows) // FEWEST))
    bounds = [len(rows) * at // cores for at in range(cores + 1)]
    given = {name: value for name, value in options.items() if name not in ("function", "num_proc", "fn_kwargs")}
    arguments = options.get("fn_kwargs") or {}
    columns = None if rows.format["type"] else on_columns(options["function"])
    names = [f"{path}-{at}.arrow" for at in range(cores)]

    def part(at: int) -> Any:
        first, last = bounds[at], bounds[at + 1]
        some = rows if cores == 1 else rows.select(range(first, last))
        if columns is None:
            grouped = _batched(options["function"], tokenizer, first, arguments)
        else:
            some, grouped = some.with_format("arrow"), _of_tables(columns, options.get("remove_columns"), arguments)
        out = real(
            some, grouped,
            **{**given, "batched": True, "cache_file_name": names[at], "load_from_cache_file": False,
               "new_fingerprint": f"{os.path.basename(path)}{at}"},
        )  # fmt: skip
        return out if columns is None else out.with_format(None)

    if cores == 1:
        return part(0)
    children = []
    for at in range(1, cores):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                part(at)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    try:
        parts = [part(0)]
    finally:
        failed = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children]
    if any(failed):
        raise NotBatched
    parts += [datasets.Dataset.from_file(name) for name in names[1:]]
    if len({repr(one.features) for one in parts}) > 1:  # types differ, for example if a part has only empty lists
        raise NotBatched
    return datasets.concatenate_datasets(parts)
