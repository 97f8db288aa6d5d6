"""Interpret the operations on a script's dataset, such as `shuffle`, `select`, `map` and `train_test_split`."""

from __future__ import annotations

import ast
import re

from xpc.compiler.importing.python.chain import Chain
from xpc.compiler.importing.python.interpreter.attributes import item
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.operators import LENGTH, LESS
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Column,
    Function,
    Location,
    Name,
    Object,
    Row,
    Unknown,
)
from xpc.compiler.importing.python.rows import MappedColumns, columns_in, row_of, single
from xpc.compiler.importing.python.token_rows import tokenized, tokens
from xpc.grammar.record import field, mutable

UNCHANGED = (
    "remove_columns", "select_columns", "with_format", "set_format", "flatten_indices", "cast_column", "cast",
    "to_iterable_dataset", "iterrows", "to_dict", "to_pandas", "reset_index", "copy", "cache",
    "align_labels_with_mapping",
)  # fmt: skip
AS_TRAINER = ("extract_prompt", "apply_chat_template")
"""Endings of the names of TRL's functions that its trainers apply to rows anyway: `apply_chat_template` matches
`maybe_apply_chat_template`, too.
"""


@mutable
class Data:
    """The result of a script's operations on a dataset: which split and which rows are used, which rows are held out,
    and which columns are computed.
    """

    split: str = ""
    take: Argument | None = None
    limit: Argument | None = None
    seed: Argument | None = None
    shuffled: bool = False
    holdout: Argument | None = None
    held: str = ""
    last: bool = False
    """Whether the held-out rows are the last rows, and not random rows."""
    drawn_otherwise: bool = False
    """Whether the script draws the held-out rows with a seed, but not as a bundle draws them."""
    after_holdout: bool = False
    """Whether the script first holds rows out and then selects some of the remaining rows."""
    conversations: bool = False
    removed: bool = False
    """Whether the script removes columns."""
    length: Argument | None = None
    end: str = ""
    """The name of the token that the script appends to the tokens of an answer, such as `eos_token_id` (see
    `MappedColumns.end`).
    """
    ended: bool = False
    """Whether each row ends with the end token, added by the script or by the trainer when it packs texts."""
    columns: dict[str, object] = field(factory=dict)
    made: dict[str, Location] = field(factory=dict)
    problems: list[tuple[Object, str, str]] = field(factory=list)
    functions: dict[str, Function] = field(factory=dict)
    """Maps a column to the function that computes it from a single row."""
    for_rewards: dict[str, tuple[object, Location]] = field(factory=dict)
    """The computed columns that only reward functions read."""


def understood(machine: Machine, chain: Chain) -> Data:
    """Interpret the operations on a dataset, such as `shuffle`, `select`, `map` and `train_test_split`."""
    out = Data(columns={str(key): one for key, one in chain.columns.items()})
    loaded = {one.receiver.location for one in chain.steps[:1] if isinstance(one.receiver, Object)}
    out.shuffled = any(
        call.path in ("random.shuffle", "random.Random.shuffle") and call.positional
        and isinstance(call.positional[0].value, Object) and call.positional[0].value.location in loaded
        for call in machine.calls
    )  # fmt: skip
    _own_tokens(out, chain)
    for step in chain.steps:
        before = (out.take, out.limit)
        _step(machine, out, step)
        if (out.take, out.limit) != before:
            out.after_holdout = out.holdout is not None
    for one in (chain.loaded, *chain.steps):
        for call in one.calls if one is not None else ():
            if call.last == "set_transform":
                out.problems.append(
                    (call, "the script applies `set_transform` to the rows, which the import does not support", "")
                )
    return out


def _added(out: Data, step: Object) -> dict[str, object] | None:
    """Interpret `rows.add_column(name, [f(row) for row in rows])`. Returns a dict with the new column and its value for
    each row; None if the values do not come only from loaded columns of the same rows.
    """
    name, given = step.argument("name", 0), step.argument("column", 1)
    values = given.value if given is not None and isinstance(given.value, list) else []
    read = columns_in(values[0]) if len(values) == 1 and isinstance(step.receiver, Object) else []
    own = all(isinstance(one.source, Object) and one.source is step.receiver for one in read)
    if name is None or not isinstance(name.value, str) or not read or not own:
        return None
    return {name.value: values[0]} if not {one.name for one in read} & set(out.columns) else None


def _own_tokens(out: Data, chain: Chain) -> None:
    """Replace a column `input_ids`, which the script builds in a loop or table, by the texts that were tokenized. Add a
    problem if these texts cannot be found, or if the labels differ from the tokens.
    """
    if "input_ids" not in chain.columns:
        return
    made = tokens(chain.columns, False)
    call = chain.loaded if chain.file is None else chain.file
    if made.why:
        step = Object("input_ids", [], {}, chain.location if call is None else call.location)
        out.problems.append((step, made.why, "write the texts to a file once, and name that file"))
    out.columns = dict(made.columns)
    out.length, out.end, out.ended = made.length, made.end, made.ended


def _step(machine: Machine, out: Data, step: Object) -> None:
    name = step.last
    given = step.positional[0] if step.positional else None
    removed = step.keywords.get("remove_columns")
    out.removed |= name in ("remove_columns", "select_columns") or (removed is not None and bool(removed.value))
    if step.path.endswith("[]"):
        _item(out, step, given)
    elif step.path.endswith("[:]") and len(step.positional) == 2:
        _sliced(out, step)
    elif name == "shuffle":
        out.shuffled, out.seed = True, step.argument("seed", 0) or out.seed
    elif name == "select":
        _select(out, step, given)
    elif name == "take":
        _first(out, step, given)
    elif step.path.endswith("[::]"):
        _first(out, step, None)
    elif _of_frame(out, step):
        pass
    elif name == "train_test_split":
        # the first argument of scikit-learn's function is the rows, and not `test_size`
        frame = step.path.startswith("sklearn.")
        out.holdout = step.argument("test_size", None if frame else 0) or Argument(0.25, step.location)
        first, seed = out.seed, step.keywords.get("random_state" if frame else "seed")
        # a bundle shuffles the rows with its seed, and then splits them with this seed, as the handbook's script does
        out.drawn_otherwise = seed is not None and (frame or first is None or first.value != seed.value)
        out.seed = seed or first
        order = step.keywords.get("shuffle")
        out.shuffled |= order is None or order.value is not False
        if "train_size" in step.keywords and "test_size" not in step.keywords:
            out.problems.append((step, "`train_size` is set instead of `test_size`", ""))
    elif name in ("map", "filter") or (name == "apply" and _is_number(step.keywords.get("axis"), 1)):
        _mapped(machine, out, step)
    elif name == "add_column" and (made := _added(out, step)) is not None:
        out.columns |= made
    elif name in ("rename_column", "rename_columns"):
        _renamed(out, step)
    elif name in ("standardize_sharegpt", "standardize_data_formats"):
        out.conversations = True
    elif name not in UNCHANGED:
        out.problems.append(
            (
                step,
                f"the script applies `{name.strip('[]:') or 'a slice'}` to the rows, which the import does not support",
                "",
            )
        )


def _is_number(given: Argument | None, number: float) -> bool:
    return given is not None and isinstance(given.value, int | float) and given.value == number


def _of_frame(out: Data, step: Object) -> bool:
    """Interpret an operation of a pandas data frame that a spec can express: `sample`, `head`, and `drop` and `rename`
    of columns; also `random.sample` of rows. Returns False for any other operation.
    """
    name, columns = step.last, step.keywords.get("columns")
    if step.path == "random.sample":
        drawn = step.argument("k", 1)
        if drawn is None or not isinstance(drawn.value, int):
            return False
        out.shuffled, out.take = True, drawn
    elif name == "sample" and _is_number(step.argument("frac", 1), 1):
        out.shuffled = True  # `sample(frac=1)` keeps all rows and shuffles them
    elif name == "sample" and (drawn := step.argument("n", 0)) is not None and isinstance(drawn.value, int):
        out.shuffled, out.take = True, drawn
    elif name == "head":
        _first(out, step, step.argument("n", 0) or Argument(5, step.location))
    elif name == "drop" and (columns is not None or _is_number(step.keywords.get("axis"), 1)):
        out.removed = True
    elif name == "rename" and columns is not None:
        _renamed(out, Object(step.path, [columns], {}, step.location))
    else:
        return False
    return True


def _item(out: Data, step: Object, given: Argument | None) -> None:
    key = given.value if given is not None else None
    if isinstance(key, list) and key and all(isinstance(one, str) for one in key):
        out.removed = True  # selecting columns, as in `table[["question", "answer"]]`, removes the others
    elif step.path == "sklearn.model_selection.train_test_split[]" and key in (0, 1):
        out.held = "train" if key == 0 else "test"
    elif not isinstance(key, str):
        out.problems.append((step, "the script selects rows by a value that is not known", ""))
    elif out.holdout is not None:
        out.held = key
    else:
        out.split = key


def _sliced(out: Data, step: Object) -> None:
    """Interpret `rows[start:end]`. A negative number, as in `rows[-100:]`, counts from the end and is imported as
    held-out rows.
    """
    start, end = (one.value for one in step.positional)
    if start in (None, 0) and end is None:
        return
    last = next((one for one in (start, end) if isinstance(one, int) and one < 0), None)
    if last is None:
        ends = [end] if start in (None, 0) else [start, end]
        rows_ = Object("range", [Argument(one, step.location) for one in ends], {}, step.location)
        _select(out, step, Argument(rows_, step.location))
    elif None in (start, end) or 0 in (start, end):
        out.holdout, out.last = Argument(-last, step.location), not out.shuffled
        out.held = "train" if end == last else "test"
    else:
        out.problems.append((step, "the selected rows are not known", "write `limit = N` after the data source"))


def _select(out: Data, step: Object, given: Argument | None) -> None:
    value = given.value if given is not None else None
    count: object = None
    ends = [one.value for one in value.positional] if isinstance(value, Object) and value.path == "range" else []
    if ends and ends[:-1] in ([], [0]):
        count = ends[-1]
        if isinstance(count, Unknown) and count.why == LENGTH and count.hidden is step.receiver:
            return  # all rows: `range(len(rows))`
    elif isinstance(value, list) and value and value[0] == 0 and all(a == n for n, a in enumerate(value)):
        count = len(value)
    held = next((found for one in ends if (found := _excluded(one)) is not None), None)
    if held is not None and (len(ends) == 1 or ends[0] == 0 or (len(ends) == 2 and _excluded(ends[1]) is None)):
        out.holdout, out.held = held, "train" if _excluded(ends[-1]) is not None else "test"
        out.last = not out.shuffled
        return
    _first(out, step, Argument(count, step.location))


def _first(out: Data, step: Object, count: Argument | None) -> None:
    """Import a selection of the first rows, which are a random part if the script has shuffled the rows before."""
    if count is None or not isinstance(count.value, int) or isinstance(count.value, bool):
        why = "the selected rows are not known, or do not begin with the first row"
        out.problems.append((step, why, "write `take = N` or `limit = N` after the data source"))
    elif out.shuffled:
        out.take = count
    else:
        out.limit = count


def _excluded(value: object) -> Argument | None:
    """How many rows at the end of a dataset a range excludes, as a number or share: 50 for the end `len(rows) - 50`.
    None for any other end.
    """
    part = value.hidden if isinstance(value, Unknown) else None
    return part.positional[0] if isinstance(part, Object) and part.path == LESS else None


def _mapped(machine: Machine, out: Data, step: Object) -> None:
    function = step.argument("function", 0)
    if step.last == "map" and function is None:
        return  # a `map` without a function only removes columns
    cut = out.length.value if out.length is not None else None
    if step.last == "filter" and function is not None and _keeps_cut_rows(machine, function.value, cut):
        return
    if step.last == "filter":
        why = "a spec cannot select rows by a function"
        out.problems.append((step, why, "filter the rows once, save them, and name this file"))
        return
    batched = step.keywords.get("batched")
    every = batched is not None and batched.value is True
    made = _made_columns(machine, None if function is None else function.value, every, out.columns, step)
    if made.why:
        why = f"the columns that the function makes are not read: {made.why}"
        out.problems.append((step, why, "map the rows once, save them, and name this file"))
    out.length, out.end = made.length or out.length, made.end or out.end
    out.ended = made.ended or out.ended
    for key, value in made.columns.items():
        out.columns[key] = value
        out.made[key] = step.location
        alone = not {"fn_kwargs", "input_columns"} & set(step.keywords) and (batched is None or not batched.value)
        if function is not None and isinstance(function.value, Function) and alone:
            out.functions[key] = function.value


def _made_columns(
    machine: Machine, function: object, batched: bool, before: dict[str, object], step: Object
) -> MappedColumns:
    """Interpret the call `map(function)` (`step`) on the columns `before`. Returns the columns that the function
    creates or changes.
    """
    if isinstance(function, Name) and function.path.startswith("trl.") and function.path.endswith(AS_TRAINER):
        return MappedColumns()
    if not isinstance(function, Function | Bound):
        return MappedColumns(why="the function is not defined in the script")
    row = row_of(before, batched)
    node = function.node if isinstance(function, Function) else ast.Pass(lineno=0)
    given = [Argument(row, step.location)]
    only = step.argument("input_columns")
    if only is not None:
        names = [only.value] if isinstance(only.value, str) else only.value
        if not isinstance(names, list):
            return MappedColumns(why="the columns that the function gets (`input_columns`) are not known")
        given = [Argument(item(machine, row, one, node), step.location) for one in names]
    more = step.argument("fn_kwargs")
    named = {} if more is None or more.value is None else more.value
    if not isinstance(named, dict):
        return MappedColumns(why="its arguments (`fn_kwargs`) are not known")
    keywords = {str(key): Argument(one, step.location) for key, one in named.items()}
    changes = len(machine.inner_changes)
    with machine.over_rows():
        value = machine.call(function, given, keywords, node)
    if len(machine.inner_changes) > changes:
        return MappedColumns(why="the function changes a part of a column")
    if isinstance(value, Row):
        value = value.written
    if isinstance(value, Object) and value.path.endswith("()"):
        return tokenized(value, batched)
    if not isinstance(value, dict):
        why = value.why if isinstance(value, Unknown) else "it does not return a dict of columns"
        return MappedColumns(why=why)
    if "input_ids" in value:
        return tokens(value, batched)
    columns = {str(key): single(one, batched) for key, one in value.items()}
    return MappedColumns({key: one for key, one in columns.items() if before.get(key) is not one})


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
            out.made[new] = step.location
    if not pairs:
        out.problems.append((step, "the names of the columns are not known", ""))


def _keeps_cut_rows(machine: Machine, function: object, length: object) -> bool:
    """Whether a filter keeps every row that was truncated to a length. `lambda row: len(row["input_ids"]) <= length` is
    such a filter.
    """
    node = function.node if isinstance(function, Function) else None
    test = node.body if isinstance(node, ast.Lambda) else None
    if not isinstance(function, Function) or not isinstance(test, ast.Compare) or not isinstance(length, int):
        return False
    if not isinstance(test.ops[0], ast.LtE) or not re.fullmatch(r"len\(\w+\['input_ids'\]\)", ast.unparse(test.left)):
        return False
    scopes, machine.scopes = machine.scopes, list(function.scopes)
    most = machine.evaluate(test.comparators[0])
    machine.scopes = scopes
    return isinstance(most, int) and most >= length
