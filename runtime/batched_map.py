"""``Dataset.map`` for ``launch.sh --prepare``: on batches, on every core, and with the same results as row by row.

A function of one row is called for each row of a batch, and `batched_calls.py` encodes the texts of many rows together.
So this function, of trl or the bundle, decides the ids and masks. Three functions of trl, which handle every token in
Python, are replaced by functions of Arrow columns (`COLUMNS`). Each core prepares a part of the rows.
"""

import gc
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from runpy import run_path
from typing import TYPE_CHECKING, Any, NoReturn

KNOWN = {
    "batched", "desc", "features", "fn_kwargs", "function", "load_from_cache_file", "num_proc", "remove_columns",
    "with_indices", "writer_batch_size",
}  # fmt: skip
"""A call of ``Dataset.map`` is done in batches only if it has no arguments other than these."""
FEWEST = 1000
"""Each forked process gets at least this many rows: 2,500 rows are mapped by at most two processes."""
if TYPE_CHECKING:
    from .batched_calls import NotBatched, Recorder
    from .core.feature import Rows, Tokenizer
else:
    _calls = run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "batched_calls.py"))
    NotBatched, Recorder = _calls["NotBatched"], _calls["Recorder"]


class Row(MutableMapping[str, Any]):
    """A row of a batch, which the mapped function reads and changes. ``own`` has the values that the function has
    set.
    """

    def __init__(self, batch: Mapping[str, Any], at: int) -> None:
        self.batch, self.at, self.own = batch, at, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        return self.own[name] if name in self.own else self.batch[name][self.at]

    def __setitem__(self, name: str, value: object) -> None:
        self.own[name] = value

    def __delitem__(self, name: str) -> None:
        raise NotBatched(f"it removes {name}")

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.batch

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.batch, *self.own]))

    def __len__(self) -> int:
        return len({*self.batch, *self.own})


def _batched(
    function: Callable[..., Any],
    recorder: "Recorder | None",
    first: int,
    removed: Collection[str],
    options: Mapping[str, Any],
) -> Callable[..., object]:
    """Make a function of a batch of rows from ``function``, a function of one row.

    Each process maps a part of the rows. Row indices count from ``first``, the number of the part's first row.
    """

    def grouped(batch: Mapping[str, Any], indices: Sequence[int] = ()) -> dict[str, list[object]]:
        def called(at: int) -> dict[str, object]:
            row = Row(batch, at)
            out = function(row, *[first + one for one in indices[at : at + 1]], **options)
            if not isinstance(out, Mapping):
                raise NotBatched(f"it returns {type(out).__name__}")
            own = {name: value for name, value in row.own.items() if name not in removed}
            return own if out is row else own | dict(out)

        many, rows, begin = len(next(iter(batch.values()))), list[dict[str, Any]](), 0
        while begin < many:
            places = range(begin, min(begin + (recorder.rows if recorder else many), many))
            rows += recorder.results(called, places) if recorder else map(called, places)
            begin = places.stop
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: _compact([_value(batch, row, at, name) for at, row in enumerate(rows)]) for name in names}

    return grouped


def _value(batch: Mapping[str, Any], row: Mapping[str, object], at: int, name: str) -> object:
    """The value of a column: the value that the function has set, or else the stored value. Raises NotBatched if the
    row has no such column.
    """
    if name in row:
        return row[name]
    if name not in batch:
        raise NotBatched(f"some rows have no {name}")
    return batch[name][at]


def _compact(values: list[object]) -> list[Any]:
    """Convert lists of whole numbers to arrays, because datasets writes an array without reading each number. Other
    values are returned unchanged."""
    import numpy

    if not any(values) or not all(isinstance(one, list) for one in values):
        return values
    arrays = [numpy.asarray(one) if one else numpy.empty(0, dtype="int64") for one in values]
    return arrays if all(one.dtype == "int64" and one.ndim == 1 for one in arrays) else values


def _build_labels(table: object, mask_columns: Sequence[str]) -> dict[str, Any]:
    """The labels for SFT, as Arrow columns: a token's id, or -100 for a token whose mask is 0."""
    import pyarrow.compute as compute

    flat, lengths = _tokens(table, "input_ids")
    flat = flat.cast("int64")
    for name in mask_columns:
        mask, masked = _tokens(table, name)
        if (masked != lengths).any():
            raise NotBatched
        flat = compute.if_else(compute.equal(mask, 0), -100, flat)
    return {"labels": _lists(flat, lengths)}


def _truncate(table: Any, sl: slice) -> dict[str, object]:
    """SFT's token ids and labels, as Arrow columns: each row is cut to the slice ``sl``."""
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


def _any_learned(table: object) -> list[bool]:
    """For each row of SFT's labels, whether any token is learned. trl drops rows with no learned token."""
    import numpy

    flat, lengths = _tokens(table, "labels")
    learned = numpy.append(0, numpy.cumsum(flat.to_numpy() != -100))
    ends = numpy.cumsum(lengths)
    kept: list[bool] = (learned[ends] > learned[ends - lengths]).tolist()
    return kept


def _tokens(table: Any, name: str) -> tuple[Any, Any]:
    """The values of a column of lists in one array, and the length of each list. Raises NotBatched for nulls."""
    column = table[name].combine_chunks()
    flat = column.flatten()
    if column.null_count or flat.null_count:
        raise NotBatched
    return flat, column.value_lengths().to_numpy(zero_copy_only=False).astype("int64")


def _lists(flat: object, lengths: Any) -> object:
    """A column of lists: the values ``flat``, divided into lists of these lengths."""
    import numpy
    import pyarrow

    return pyarrow.ListArray.from_arrays(numpy.append(0, numpy.cumsum(lengths)).astype("int32"), flat)


COLUMNS: Mapping[str, Callable[..., object]] = {
    "9e1026bc84d33724": _build_labels,
    "38267dd5b0b71f1e": _truncate,
    "48560174eed0b75b": _any_learned,
}
"""Maps the digest of the source code of trl's function to the function above that computes the same result from an
Arrow table. The functions are those of trl 1.16's SFT trainer. A function with another digest is called for each row.
"""


def on_columns(function: Callable[..., object]) -> Callable[..., Any] | None:
    """The function of an Arrow table that replaces ``function``, a function of one row. None if `COLUMNS` has no
    replacement."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return COLUMNS.get(sha256(source.encode()).hexdigest()[:16])


def _of_filter(function: Callable[..., object]) -> Callable[..., Any]:
    """Replace the row-by-row condition of ``Dataset.filter`` by a condition on Arrow tables. ``function`` is the
    argument with which ``Dataset.filter`` calls ``Dataset.map``. Raises NotBatched if `COLUMNS` has no replacement.
    """
    if isinstance(function, partial) and function.func.__name__ == "get_indices_from_mask_function":
        keeps, *form, indices = function.args
        columns = on_columns(keeps)
        if columns is not None and form == [False, False, False, None]:
            return partial(function.func, columns, True, *form[1:], indices)
    raise NotBatched


def _of_tables(
    function: Callable[..., dict[str, Any]], removed: Sequence[str], options: Mapping[str, Any]
) -> Callable[..., object]:
    """Make a function of an Arrow table for ``Dataset.map``. It adds the columns that ``function`` computes, and drops
    the columns in ``removed``.
    """

    def made(table: Any, *_: Any) -> object:
        out = table.drop_columns(removed)
        for name, values in function(table, **options).items():
            at = out.schema.get_field_index(name)
            out = out.append_column(name, values) if at < 0 else out.set_column(at, name, values)
        return out

    return made


def mapped(
    real: Callable[..., Any],
    rows: "Rows",
    path: str,
    tokenizer: "Tokenizer",
    note: Callable[[str], None],
    **options: Any,
) -> object:
    """Do the work of ``Dataset.map`` with these options. Write the result to files whose names begin with ``path``. If
    a function is called row by row, ``note`` gets the reason.
    """
    function = options.get("function")
    as_it_is = {**options, "cache_file_name": f"{path}.arrow", "load_from_cache_file": False}
    if function is not None and options.get("batched") and not rows.format["type"]:
        with suppress(NotBatched):
            return real(rows.with_format("arrow"), **{**as_it_is, "function": _of_filter(function)})
    if function is None or options.get("batched") or not len(rows):
        return real(rows, **as_it_is)
    try:
        if unknown := options.keys() - KNOWN:
            raise NotBatched(f"`Dataset.map` gets the argument {', '.join(sorted(unknown))}")
        return _in_forks(real, rows, path, tokenizer, options)
    except Exception as error:  # if the mapped function fails, the call below raises its error again
        note(_reason(error))
        return real(rows, **as_it_is)


def _reason(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0][:200]
    return text if isinstance(error, NotBatched) else f"{type(error).__name__}: {text}"


def _in_forks(
    real: Callable[..., object], rows: "Rows", path: str, tokenizer: "Tokenizer", options: dict[str, object]
) -> object:
    """Map contiguous parts of the rows in forks, and join the forks' files. Raises NotBatched if a fork fails."""
    import datasets

    cores = max(1, min(len(os.sched_getaffinity(0)), len(rows) // FEWEST))
    bounds = [len(rows) * at // cores for at in range(cores + 1)]
    names = [f"{path}-{at}.arrow" for at in range(cores)]

    def part(at: int) -> Any:
        some = rows if cores == 1 else rows.select(range(bounds[at], bounds[at + 1]))
        return _part(real, some, bounds[at], names[at], tokenizer, options)

    gc.freeze()  # otherwise, each garbage collection would scan all existing objects
    children = {}
    try:
        for at in range(1, cores):
            sys.stdout.flush()
            if (child := os.fork()) == 0:
                _in_child(part, at, f"{names[at]}.txt")
            children[child] = f"{names[at]}.txt"
        parts = [part(0)]
    finally:
        failed = [name for child, name in children.items() if os.waitpid(child, 0)[1]]
        gc.unfreeze()
    if failed:
        raise NotBatched(_read(failed[0]))
    parts += [datasets.Dataset.from_file(name) for name in names[1:]]
    if len({repr(one.features) for one in parts}) > 1:  # a part whose lists are all empty has another Arrow type
        raise NotBatched("the function's results have different types in different parts of the rows")
    return parts[0] if cores == 1 else datasets.concatenate_datasets(parts)


def _part(
    real: Callable[..., Any], rows: "Rows", first: int, name: str, tokenizer: "Tokenizer", options: dict[str, Any]
) -> object:
    """Map these rows and write them to the file ``name``. ``first`` is the number of the first row."""
    arguments, removed = options.get("fn_kwargs") or {}, options.get("remove_columns") or ()
    removed = [removed] if isinstance(removed, str) else list(removed)
    columns = None if rows.format["type"] else on_columns(options["function"])
    if columns is None:
        recorder = Recorder(tokenizer) if getattr(tokenizer, "is_fast", False) else None
        grouped = _batched(options["function"], recorder, first, removed, arguments)
    else:
        rows, grouped = rows.with_format("arrow"), _of_tables(columns, removed, arguments)
    given = {one: value for one, value in options.items() if one not in ("function", "num_proc", "fn_kwargs")}
    own = {"batched": True, "cache_file_name": name, "load_from_cache_file": False}
    out = real(rows, grouped, **{**given, **own, "new_fingerprint": os.path.basename(name)})
    return out if columns is None else out.with_format(None)


def _in_child(part: Callable[[int], object], at: int, failed: str) -> NoReturn:
    """Map a part of the rows in a forked process, and write the reason of a failure to the file ``failed``."""
    try:
        part(at)
        os._exit(0)
    except Exception as error:
        with open(failed, "w", encoding="utf-8") as out:
            out.write(_reason(error))
    finally:
        os._exit(1)


def _read(failed: str) -> str:
    """Read the reason that a failed process wrote to this file. Without a file, return a general reason."""
    if not os.path.exists(failed):
        return "a process ended early"
    with open(failed, encoding="utf-8") as handle:
        reason = handle.read()
    os.remove(failed)
    return reason
