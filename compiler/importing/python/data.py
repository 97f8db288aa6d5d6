"""Trace a script's dataset from the trainer back to the call that loads it."""

from __future__ import annotations

from xpc.compiler.importing.python import rows
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.operators import LESS
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Column,
    Function,
    Object,
    Place,
    Row,
    Scalar,
    Text,
    Unknown,
)
from xpc.grammar.record import field, mutable

UNCHANGED = (
    "remove_columns",
    "select_columns",
    "with_format",
    "set_format",
    "flatten_indices",
    "cast_column",
    "cast",
    "to_iterable_dataset",
    "iterrows",
    "to_dict",
    "to_pandas",
    "reset_index",
    "cache",
    "align_labels_with_mapping",
)
MOST = 60
BUILT = (
    "from_list",
    "from_dict",
    "from_pandas",
    "from_records",
    "DataFrame",
    "Dataset",
    "DatasetDict",
    "list",
    "to_list",
    "from_generator",
)
"""Functions that build a dataset from rows in memory, such as `Dataset.from_list`."""
OPENED = (
    "open",
    "load",
    "read_text",
    "read_json",
    "read_csv",
    "read_parquet",
    "from_json",
    "from_csv",
    "from_parquet",
    "load_jsonl",
    "read_jsonl",
)


@mutable
class Chain:
    """How a script makes a dataset: the call that loads it, the later operations (`steps`) in order, and values that
    cannot be traced (`unknown`). `parts` are the datasets of a concatenation.
    """

    loaded: Object | None = None
    file: Argument | None = None
    rows: list[dict[str, object]] = field(factory=list)
    """The rows, if the script contains them literally."""
    place: Place = field(default=Place("", 0))
    steps: list[Object] = field(factory=list)
    unknown: list[Unknown] = field(factory=list)
    parts: list[Chain] = field(factory=list)
    columns: dict[str, object] = field(factory=dict)
    """Columns that a loop of the script builds for each row."""


@mutable
class Data:
    """What the operations on a dataset mean: its split, the selected rows, the held-out rows, and computed columns."""

    split: str = ""
    take: Argument | None = None
    limit: Argument | None = None
    seed: Argument | None = None
    shuffled: bool = False
    holdout: Argument | None = None
    held: str = ""
    last: bool = False
    """Whether the last rows are held out, and not rows in a random order."""
    conversations: bool = False
    removed: bool = False
    """Whether the script removes columns."""
    length: Argument | None = None
    end: str = ""
    """What follows the tokens of an answer that the script puts together itself; empty if it does not."""
    columns: dict[str, object] = field(factory=dict)
    made: dict[str, Place] = field(factory=dict)
    problems: list[tuple[Object, str, str]] = field(factory=list)
    functions: dict[str, Function] = field(factory=dict)
    """The function that computes each column from a single row."""
    for_rewards: dict[str, tuple[object, Place]] = field(factory=dict)
    """Computed columns that only reward functions read."""


def chain_of(value: object, depth: int = 0) -> Chain:
    """Trace a dataset back to the call or file that loads it."""
    out = Chain()
    for _ in range(MOST):
        if isinstance(value, Unknown):
            out.unknown.append(value)
            value = value.hidden
            continue
        if isinstance(value, Bound):
            value = value.receiver
            continue
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
            continue
        if isinstance(value, list | tuple) and value and isinstance(value[0], dict | Row):
            place = next((one.place for one in out.steps), Place("", 0))
            if place.line:
                out.unknown.append(Unknown("the script makes several rows of one", place))
            value = value[0]
            continue
        if isinstance(value, dict | Row):
            out.columns = dict(value.written if isinstance(value, Row) else value)
            value = value.source if isinstance(value, Row) else _made_of(value)
            continue
        if not isinstance(value, Object):
            break
        if value.last in ("load_dataset", "load_from_disk"):
            out.loaded = value
            break
        if value.last in OPENED and value.positional and isinstance(value.positional[0].value, str | Unknown):
            out.file = value.positional[0]
            break
        literal = literal_rows(value)
        if literal:
            out.rows, out.place = literal, value.place
            break
        if value.last in BUILT and value.positional and not isinstance(value.receiver, Object):
            table = value.positional[0].value
            if value.last == "from_dict" and isinstance(table, Object) and table.last in ("load", "loads"):
                why = "the file has a list for each column, and a spec reads rows"
                out.unknown.append(Unknown(why, value.place))
            value = table
            continue
        if value.last == "concatenate_datasets" and depth < 3:
            inner = value.positional[0].value if value.positional else None
            if isinstance(inner, list | tuple):
                out.parts = [chain_of(one, depth + 1) for one in inner[:20]]
                break
        prepared = _prepared(value)
        if prepared is not None:
            value = prepared
            continue
        out.steps.append(value)
        first = value.positional[0].value if value.positional else None
        below = value.receiver if isinstance(value.receiver, Object) else first
        value = below
    out.steps.reverse()
    return out


def _prepared(value: Object) -> object:
    """The dataset that `accelerator.prepare(...)` returns, also if it is one of several return values; None for other
    calls.
    """
    if value.last == "prepare" and len(value.positional) == 1:
        return value.positional[0].value
    call, key = value.receiver, value.positional[0].value if value.positional else None
    if value.path.endswith(".prepare[]") and isinstance(call, Object) and isinstance(key, int):
        return call.positional[key].value if key < len(call.positional) else None
    return None


MOST_ROWS = 5_000


def literal_rows(value: Object) -> list[dict[str, object]]:
    """The rows of `Dataset.from_list` or `from_dict` if all their values are known; otherwise an empty list."""
    given = value.positional[0].value if value.positional else None
    if value.last == "from_dict" and isinstance(given, dict):
        lists = [one for one in given.values() if isinstance(one, list)]
        same = len(lists) == len(given) and len({len(one) for one in lists}) == 1
        given = [dict(zip(given, row)) for row in zip(*lists)] if same else None
    if value.last not in ("from_list", "from_dict") or not isinstance(given, list) or len(given) > MOST_ROWS:
        return []
    if not all(isinstance(one, dict) and _is_literal(one) for one in given):
        return []
    return [{str(key): one for key, one in row.items()} for row in given]


def _is_literal(value: object, depth: int = 0) -> bool:
    if isinstance(value, dict | list | tuple) and depth < 6:
        inside = value.values() if isinstance(value, dict) else value
        return all(_is_literal(one, depth + 1) for one in inside)
    return isinstance(value, Scalar)


def _made_of(value: object, depth: int = 0) -> object:
    """The dataset whose rows the value is computed from; None if it uses no column."""
    if isinstance(value, Column):
        return value.source
    inner: list[object] = []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, Text):
        inner = list(value.parts)
    elif isinstance(value, list | tuple):
        inner = list(value)
    elif isinstance(value, Object):
        inner = [value.receiver, *(one.value for one in value.positional)]
    for one in inner[:50] if depth < 8 else []:
        found = _made_of(one, depth + 1)
        if found is not None:
            return found
    return None


def understood(machine: Machine, chain: Chain) -> Data:
    """Interpret the operations on a dataset, such as `shuffle`, `select`, `map` and `train_test_split`."""
    out = Data(columns={str(key): one for key, one in chain.columns.items()})
    for step in chain.steps:
        _step(machine, out, step)
    return out


def _step(machine: Machine, out: Data, step: Object) -> None:
    name = step.last
    given = step.positional[0] if step.positional else None
    removed = step.keywords.get("remove_columns")
    out.removed |= name in ("remove_columns", "select_columns") or (removed is not None and bool(removed.value))
    if step.path.endswith("[]"):
        _item(out, step, given)
    elif name == "shuffle":
        out.shuffled, out.seed = True, step.argument("seed", 0) or out.seed
    elif name == "select":
        _select(out, step, given)
    elif name == "take":
        out.limit = given
    elif name == "train_test_split":
        out.holdout = step.argument("test_size", 0) or Argument(0.25, step.place)
        out.seed = step.keywords.get("seed") or out.seed
        if "train_size" in step.keywords and "test_size" not in step.keywords:
            out.problems.append((step, "`train_size` is set instead of `test_size`", ""))
    elif name in ("map", "filter"):
        _mapped(machine, out, step)
    elif name in ("rename_column", "rename_columns"):
        _renamed(out, step)
    elif name in ("standardize_sharegpt", "standardize_data_formats"):
        out.conversations = True
    elif name not in UNCHANGED:
        out.problems.append((step, f"the rows go through `{name.strip('[]:') or 'a slice'}`, which is not read", ""))


def _item(out: Data, step: Object, given: Argument | None) -> None:
    key = given.value if given is not None else None
    if not isinstance(key, str):
        out.problems.append((step, "a part of the data that is not known", ""))
    elif out.holdout is not None:
        out.held = key
    else:
        out.split = key


def _select(out: Data, step: Object, given: Argument | None) -> None:
    value = given.value if given is not None else None
    count: object = None
    if isinstance(value, Object) and value.path == "range" and len(value.positional) == 1:
        count = value.positional[0].value
    elif isinstance(value, list) and value and value[0] == 0 and all(a == n for n, a in enumerate(value)):
        count = len(value)
    ends = [one.value for one in value.positional] if isinstance(value, Object) and value.path == "range" else []
    held = next((found for one in ends if (found := _excluded(one)) is not None), None)
    if held is not None and (len(ends) == 1 or ends[0] == 0 or (len(ends) == 2 and _excluded(ends[1]) is None)):
        out.holdout, out.held = held, "train" if _excluded(ends[-1]) is not None else "test"
        out.last = not out.shuffled
        return
    if not isinstance(count, int) or isinstance(count, bool):
        why = "the rows that are selected are not known, or do not begin with the first"
        out.problems.append((step, why, "write `take = N` or `limit = N` at the source"))
    elif out.shuffled:
        out.take = Argument(count, step.place)
    else:
        out.limit = Argument(count, step.place)


def _excluded(value: object) -> Argument | None:
    """The rows or the share that `range(len(rows) - 50)` leaves out; None for another number."""
    part = value.hidden if isinstance(value, Unknown) else None
    return part.positional[0] if isinstance(part, Object) and part.path == LESS else None


def _mapped(machine: Machine, out: Data, step: Object) -> None:
    function = step.argument("function", 0)
    if step.last == "map" and function is None:
        return  # only removes columns
    cut = out.length.value if out.length is not None else None
    if step.last == "filter" and function is not None and rows.keeps_cut_rows(machine, function.value, cut):
        return
    if step.last == "filter":
        why = "a spec cannot say which rows a function keeps"
        out.problems.append((step, why, "filter the rows once, and name the file that has them"))
        return
    batched = step.keywords.get("batched")
    made = rows.apply(
        machine,
        None if function is None else function.value,
        batched is not None and batched.value is True,
        out.columns,
        step,
    )
    if made.why:
        why = f"the columns that the function makes are not read: {made.why}"
        out.problems.append((step, why, "map the rows once, and name the file that has them"))
    out.length, out.end = made.length or out.length, made.end or out.end
    for key, value in made.columns.items():
        out.columns[key] = value
        out.made[key] = step.place
        alone = not {"fn_kwargs", "input_columns"} & set(step.keywords) and (batched is None or not batched.value)
        if function is not None and isinstance(function.value, Function) and alone:
            out.functions[key] = function.value


def _renamed(out: Data, step: Object) -> None:
    pairs: dict[object, object] = {}
    values = [one.value for one in step.positional] + [one.value for one in step.keywords.values()]
    if len(values) == 2 and all(isinstance(one, str) for one in values):
        pairs = {values[0]: values[1]}
    elif len(values) == 1 and isinstance(values[0], dict):
        pairs = dict(values[0])
    for old, new in pairs.items():
        if isinstance(old, str) and isinstance(new, str):
            out.columns[new] = out.columns.pop(old, Column(old))
            out.made[new] = step.place
    if not pairs:
        out.problems.append((step, "the names of the columns are not known", ""))
