"""Trace a script's dataset from the trainer back to the call or file that loads it."""

from __future__ import annotations

from xpc.compiler.importing.python.interpreter.row_lists import source_of
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Column,
    Location,
    Object,
    Row,
    Scalar,
    Unknown,
)
from xpc.grammar.record import field, mutable

MOST = 60
MOST_FILES = 20
"""The largest number of files that a loop of the script may read."""
BUILT = (
    "from_list", "from_dict", "from_pandas", "from_records", "DataFrame", "Dataset", "DatasetDict", "list",
    "to_list", "from_generator",
)  # fmt: skip
"""Functions that build a dataset from rows in memory, such as `Dataset.from_list`."""
OPENED = (
    "open", "load", "read_text", "read_json", "read_csv", "read_parquet", "from_json", "from_csv", "from_parquet",
    "load_jsonl", "read_jsonl",
)  # fmt: skip


MIXES = "interleave_datasets"
"""The function of the library datasets that mixes several datasets."""


@mutable
class Chain:
    """The origin of a dataset in a script: the call that loads it, the operations on it in order (`steps`), and values
    that cannot be traced (`unknown`). `parts` are the chains of the datasets that were joined or mixed, if any.
    """

    loaded: Object | None = None
    file: Argument | None = None
    rows: list[dict[str, object]] = field(factory=list)
    """The rows, if the script contains them literally."""
    location: Location = field(default=Location("", 0))
    steps: list[Object] = field(factory=list)
    unknown: list[Unknown] = field(factory=list)
    parts: list[Chain] = field(factory=list)
    mixed: Object | None = None
    """The call of `interleave_datasets` that mixes the datasets in `parts`."""
    looped: bool = False
    """Whether the script collects the rows in a loop."""
    columns: dict[str, object] = field(factory=dict)
    """Maps each column that a loop of the script builds for every row to the column's value."""


def chain_of(value: object, depth: int = 0) -> Chain:
    """Trace a dataset back to the call or file that loads it."""
    out = Chain()
    frames: list[Object] = []
    for _ in range(MOST):
        if isinstance(value, Object) and (value.path.startswith("pandas.") or ".to_pandas" in value.path):
            frames.append(value)
        parts = _parts(value) if depth < 3 else None
        if parts is not None:
            out.parts = [chain_of(one, depth + 1) for one in parts]
            out.mixed = value if isinstance(value, Object) and value.last == MIXES else None
            break
        if not isinstance(value, Object):
            value = _inside(out, value)
        elif _has_rows(out, value):
            break
        else:
            value = _before(out, value)
    out.steps.reverse()
    for frame in reversed(frames):
        out.columns.update(_set_columns(frame))
    return out


def _parts(value: object) -> list[object] | None:
    """The datasets of which a value consists: a concatenation or several files. None for any other value."""
    if isinstance(value, Object) and (value.last in ("concatenate_datasets", MIXES) or value.path == "pandas.concat"):
        given = value.argument("objs" if value.path == "pandas.concat" else "datasets", 0)
        inner = given.value if given is not None else None
        return list(inner[:20]) if isinstance(inner, list | tuple) else None
    return _of_several_files(value) or None


def _inside(chain: Chain, value: object) -> object:
    """Trace a dataset back by one step that is not a call: return the value that `value` contains, such as the only
    item of a list, or None. `_before` traces calls.
    """
    if isinstance(value, Unknown):
        chain.unknown.append(value)
        return value.hidden
    if isinstance(value, Bound):
        return value.receiver
    if isinstance(value, list | tuple) and value and (len(value) == 1 or isinstance(value[0], dict | Row)):
        location = next((one.location for one in chain.steps), Location("", 0))
        if len(value) > 1 and location.line:
            chain.unknown.append(Unknown("the script makes several rows out of one row", location))
        return value[0]
    if isinstance(value, dict | Row):
        chain.looped = True
        chain.columns = dict(value.written if isinstance(value, Row) else value)
        return source_of(value)
    return None


def _has_rows(chain: Chain, call: Object) -> bool:
    """Store in `chain` the call that loads rows, such as `load_dataset`, or the rows that it contains, such as
    `Dataset.from_list`. Returns False for any other call.
    """
    if call.last in ("load_dataset", "load_from_disk"):
        chain.loaded = call
    elif call.last in OPENED and call.positional and isinstance(call.positional[0].value, str | Unknown):
        chain.file = call.positional[0]
    elif literal := literal_rows(call):
        chain.rows, chain.location = literal, call.location
    else:
        return False
    return True


def _before(chain: Chain, call: Object) -> object:
    """The value to which a call is applied: `rows` for `rows.map(f)`. The call becomes a step of `chain`, unless it
    only converts the value to a dataset, as `Dataset.from_list` does.
    """
    first = call.positional[0].value if call.positional else None
    if call.last in BUILT and call.positional and not isinstance(call.receiver, Object):
        if call.last == "from_dict" and isinstance(first, Object) and first.last in ("load", "loads"):
            why = "the file has a list for each column; a spec reads only rows"
            chain.unknown.append(Unknown(why, call.location))
        return first
    prepared = _prepared(call)
    if prepared is not None:
        return prepared
    chain.steps.append(call)
    return call.receiver if isinstance(call.receiver, Object) else first


def _set_columns(frame: Object) -> dict[str, object]:
    """The columns that a script sets on a pandas frame. Only the value of a copy, `frame["text"] = frame["answer"]`, is
    known.
    """
    out: dict[str, object] = {}
    for name, value in frame.attributes.items():
        column = _column_name(name)
        source = _item_of(value) if isinstance(value, Object) and value.receiver is frame else None
        if column is None or column == source:
            # the script assigns the column to itself
            continue
        why = f"the script computes the column `{column}` of its table"
        out[column] = Column(source) if source is not None else Unknown(why, frame.location)
    return out


def _column_name(attribute: str) -> str | None:
    """The name of the column that a subscript reads: `text` for `['text']`. None for an attribute such as `.shape`."""
    return attribute[2:-2] if attribute.startswith("['") and attribute.endswith("']") else None


def _item_of(value: Object) -> str | None:
    """The name of the column that `frame["name"]` reads; None for any other value."""
    key = value.positional[0].value if value.path.endswith("[]") and len(value.positional) == 1 else None
    return key if isinstance(key, str) else None


def _of_several_files(value: object) -> list[object]:
    """The rows that a loop over several files collects in `value`, a list of rows or a dict of columns. Each row
    represents one file. Empty for any other value.
    """
    if isinstance(value, dict) and value and all(isinstance(one, list) for one in value.values()):
        sizes = {len(one) for one in value.values()}
        lists = list(value.values()) if len(sizes) == 1 else []
        value = [dict(zip(value, row)) for row in zip(*lists)]
    if not isinstance(value, list | tuple) or not 1 < len(value) <= MOST_FILES:
        return []
    if not all(isinstance(one, dict | Row) for one in value):
        return []
    sources = [source_of(one) for one in value]
    names = [
        one.positional[0].value if isinstance(one, Object) and one.last in OPENED and one.positional else None
        for one in sources
    ]
    return list(value) if all(isinstance(one, str) for one in names) and len({*names}) == len(names) else []


def _prepared(value: Object) -> object:
    """The object that was passed to `accelerator.prepare`, if `value` is its result, such as `prepare(dataset)`, or an
    item of it, such as `prepare(model, dataset)[1]`. None for any other value.
    """
    if value.last == "prepare" and len(value.positional) == 1:
        return value.positional[0].value
    call, key = value.receiver, value.positional[0].value if value.positional else None
    if value.path.endswith(".prepare[]") and isinstance(call, Object) and isinstance(key, int):
        return call.positional[key].value if key < len(call.positional) else None
    return None


MOST_ROWS = 5_000


def literal_rows(value: Object) -> list[dict[str, object]]:
    """The rows in a call of `Dataset.from_list` or `from_dict`; empty if one of their values is unknown."""
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
