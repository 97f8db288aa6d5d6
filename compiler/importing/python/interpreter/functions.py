"""Classify a script's values (trainer, dataset, row, ...) and the functions of Python and of libraries."""

from __future__ import annotations

import ast
import builtins
import posixpath
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from xpc.compiler.importing.python.interpreter.values import (
    OPEN,
    Argument,
    Column,
    Location,
    Name,
    Object,
    Row,
    Scalar,
    Table,
    Text,
    Unknown,
)
from xpc.compiler.registry import find_model

EXIT = Name("<exit>")
"""The value of a call that ends the script, such as `sys.exit()`."""
BUILTINS = {*(one for one in dir(builtins) if not one.startswith("_")), "__import__", "display", "get_ipython"}
"""Names that are defined in every script: Python's built-in names, and two names of notebooks."""
MAX_ITEMS = 256
"""The largest number of items over which a loop is interpreted."""
CONFIGS = ("Config", "Arguments", "TrainingArgs")
TRAINERS = {
    **{f"{one.upper()}Trainer": one for one in ("sft", "dpo", "grpo", "kto", "rloo", "orpo", "cpo")},
    **dict.fromkeys(("Trainer", "Seq2SeqTrainer", "UnslothTrainer"), "sft"),
    "RewardTrainer": "reward",
    "GKDTrainer": "distill",
}
"""Maps each trainer class that can be imported to its training method."""
LIBRARIES = ("trl", "transformers", "peft", "unsloth", "datasets", "torch", "accelerate")


def dotted(node: ast.expr) -> str:
    """The dotted name of a decorator or a function: `hydra.main` for `@hydra.main(...)`. "" if there is none."""
    if isinstance(node, ast.Call):
        return dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def kind(value: object) -> str:
    """The name of a value's type for messages and method names, such as `dict`."""
    return {Table: "dict", Text: "str", Column: "column", Row: "row"}.get(type(value), type(value).__name__)


def is_library(path: str) -> bool:
    """Whether a dotted name, such as `trl.SFTTrainer`, belongs to one of the training libraries."""
    return path.partition(".")[0] in LIBRARIES


def is_trainer(path: str) -> bool:
    """Whether a dotted name, such as `trl.SFTTrainer`, names a trainer class that can be imported."""
    return path.rpartition(".")[2] in TRAINERS and is_library(path)


QUANTIZED = re.compile(r"(?:-unsloth)?-bnb-4bit$", re.IGNORECASE)
"""Matches the ending `-bnb-4bit` of a repository with quantized weights, which the name of the original model lacks."""


def ships_template(value: object) -> bool | None:
    """Whether the registry says that a tokenizer has a chat template, if `value` is its attribute `chat_template`. None
    for any other value, or an unknown model.
    """
    if not isinstance(value, Object) or value.last not in ("chat_template", "get_chat_template"):
        return None
    loaded = value.receiver
    if isinstance(loaded, Object) and loaded.path.endswith(".from_pretrained[]"):
        loaded = loaded.receiver  # Unsloth's `from_pretrained` returns a pair: the model and the tokenizer
    name = loaded.argument("pretrained_model_name_or_path", 0) if isinstance(loaded, Object) else None
    if name is None and isinstance(loaded, Object):
        name = loaded.keywords.get("model_name")
    if (
        name is None
        or not isinstance(name.value, str)
        or not isinstance(loaded, Object)
        or loaded.last != "from_pretrained"
    ):
        return None
    known = find_model(name.value) or find_model(QUANTIZED.sub("", name.value.rpartition("/")[2]))
    return known.chat if known is not None else None


def is_made(value: Object) -> bool:
    """Whether a value is certainly not None: an instance of a class, a model, or a dataset."""
    made = ("from_pretrained", "get_peft_model", "load_dataset", "prepare_model_for_kbit_training", "map", "shuffle",
            "select")  # fmt: skip
    parts = ("[]", "filter", "train_test_split", "rename_column", "remove_columns", "select_columns", "from_list")
    data = value.path.endswith(parts) and any(is_data(one) for one in lineage(value))
    return value.last in made or data or (value.receiver is None and value.last[:1].isupper())


ALL_NAMES = re.compile(r"return (?:\w+|(?:list|sorted|set)\(\w+\)|(?:list|sorted)\(set\(\w+\)\))")
"""Matches a return statement that returns all collected names, such as `return list(names)`."""


@lru_cache(maxsize=1024)  # cached, because the script may call a function thousands of times
def finds_linear_layers(node: ast.AST) -> bool:
    """Whether a function returns the names of all linear layers except the output layer, as QLoRA's
    `find_all_linear_names` does. Calls of such a function become PEFT's `all-linear`. False for a function that
    excludes further layers.
    """
    if not isinstance(node, ast.FunctionDef):
        return False
    parts = [one for statement in node.body for one in ast.walk(statement)]
    tests = [ast.unparse(one.test) for one in parts if isinstance(one, ast.If | ast.IfExp)]
    names = [one for one in parts if isinstance(one, ast.Attribute)]
    linear = {one.attr for one in names if one.attr.startswith("Linear")}
    output = any("lm_head" in one for one in tests) or (bool(linear) and "Linear" not in linear)
    allowed = re.compile(r"isinstance\(\w+, [\w.]+\)|len\(\w+\) == 1|'(?:lm_head|output_layer)' in \w+")
    return (
        any(one.attr == "named_modules" for one in names)
        and bool(linear)
        and output
        and all(allowed.fullmatch(one) or re.fullmatch(r"(?:not )?\w+(?: (?:or|and) \w+)*", one) for one in tests)
        and isinstance(node.body[-1], ast.Return)
        and ALL_NAMES.fullmatch(ast.unparse(node.body[-1])) is not None
    )


def is_settings(value: Object) -> bool:
    """Whether an object is a configuration or a trainer, so that its attribute `x` has the value of the argument `x`
    with which it was created.
    """
    return value.last.endswith(CONFIGS) or value.last in TRAINERS


def attribute(value: Name, name: str) -> object:
    """Evaluate `library.name`, such as `os.sep` or `torch.bfloat16`."""
    path = f"{value.path}.{name}"
    return {"os.sep": "/", "os.curdir": ".", "math.inf": Name("math.inf")}.get(path, Name(path))


def path_join(*names: str) -> str:
    """Join the parts of a path, and normalize it."""
    return posixpath.normpath(posixpath.join(*names)) if any(names) else ""


SIGNATURES = ("parameters", "__dataclass_fields__", "__annotations__")
"""Attributes with the argument names of a function or the field names of a class: `inspect.signature(f).parameters`."""
REPLACED = ("evaluation_strategy", "tokenizer", "max_seq_length", "torch_dtype", "use_auth_token", "no_cuda")
"""Arguments that newer versions of the libraries have renamed. If a script tests whether one exists, the import assumes
that it does not.
"""


def is_signature(value: object) -> bool:
    """Whether a value represents the argument names of a library's function or the field names of a library's class."""
    if isinstance(value, Name):
        return value.last in SIGNATURES
    return isinstance(value, Object) and any(one.last in SIGNATURES for one in lineage(value))


def contains(left: object, right: object, positive: bool, names: frozenset[str] | None = None) -> bool | None:
    """Evaluate `left in right` or, if `positive` is false, `left not in right`. None if the outcome is unknown. If
    `right` is the signature of a library's function, `names` are the names of its arguments.
    """
    if isinstance(right, dict) and OPEN in right and isinstance(left, str | int) and left not in right:
        return None
    if (isinstance(right, dict) and isinstance(left, str | int)) or (isinstance(left, str) and isinstance(right, str)):
        found = left in right
    elif isinstance(left, str) and is_signature(right):
        # scripts test whether a class of a library has an argument, to support several versions or to select keys of a
        # dict
        found = left not in REPLACED and (names is None or left in names)
    elif isinstance(left, (*Scalar, Name)) and isinstance(right, list | tuple):
        if not all(isinstance(one, (*Scalar, Name)) for one in right):
            return None
        found = any(type(one) is type(left) and one == left for one in right)
    else:
        return None
    return found is positive


def _parent(path: str) -> str:
    if posixpath.basename(path) == "..":
        return f"{path}/.."
    return posixpath.dirname(path) or (".." if path == "." else ".")


def _parents(path: str) -> list[object]:
    out: list[object] = []
    for _ in range(6):
        path = _parent(path)
        out.append(path)
    return out


PATH_PARTS: dict[str, Callable[[str], object]] = {
    "parent": _parent,
    "parents": _parents,
    "name": posixpath.basename,
    "stem": lambda path: posixpath.basename(path).rpartition(".")[0] or posixpath.basename(path),
    "suffix": lambda path: posixpath.splitext(path)[1],
}
"""Maps each attribute of a `pathlib.Path` to the function that computes it. The interpreter represents a path as a
string.
"""


def is_row(value: object) -> bool:
    """Whether a value is a row of data, or a line of a file."""
    if isinstance(value, tuple):
        return any(is_row(one) for one in value)
    return isinstance(value, Row) or (isinstance(value, Object) and value.path == "<line>")


OF_ROWS = ("load", "loads", "Reader", "to_dict", "read_json", "read_csv", "read_parquet", "load_dataset", "shuffle",
           "select", "map", "filter", "iter_rows", "[]")  # fmt: skip
"""Functions and methods that return rows, if they are applied to a dataset or a file."""


def rows_of(value: Object) -> list[object] | None:
    """The items of a loop over a file, parsed JSON or a dataset: a single row that represents all rows. None for any
    other value.
    """
    lines = value.last == "split" and [one.value for one in value.positional] == ["\n"]
    lines = lines or value.last in ("readlines", "splitlines", "open")
    if value.path == "open" or (lines and opened(value) is not None):
        return [Object("<line>", [], {}, value.location, opened(value) or value)]
    if value.path == "random.sample" and value.positional and isinstance(value.positional[0].value, Object):
        return [Row(source=value)] if rows_of(value.positional[0].value) is not None else None
    if value.path.endswith("[:]") and isinstance(value.receiver, Object):
        return [Row(source=value)] if rows_of(value.receiver) is not None else None
    if value.last in ("iterrows", "itertuples") and any(is_data(one) for one in lineage(value)):
        return [(0, Row(source=value))] if value.last == "iterrows" else None
    if value.last in OF_ROWS:
        data = any(is_data(one) for one in lineage(value))
        if value.path in ("json.load", "json.loads") or data:
            return [Row(source=value)]
    return None


def iterated(value: object) -> list[object] | None:
    """The items of a loop; None if they are unknown or too many. For a column of a batch, a single item represents all
    rows.
    """
    if isinstance(value, Column) and value.batch:
        return [Column(value.name, False, value.source)]
    if isinstance(value, Object):
        return rows_of(value)
    if isinstance(value, dict):
        value = list(value) if set(value) != {OPEN} else None
    if isinstance(value, list | tuple) and len(value) <= MAX_ITEMS:
        return list(value)
    return None


def lineage(value: Object) -> list[Object]:
    """An object and the receivers of the method calls that made it: for `a.b().c()`, the values of `a.b().c()`, `a.b()`
    and `a`.
    """
    out = [value]
    while isinstance(out[-1].receiver, Object) and len(out) < 40:
        out.append(out[-1].receiver)
    return out


def origin(value: Object) -> object:
    """The value from which a call made an object: the object of a method, or the first argument of a function. None if
    there is neither.
    """
    if isinstance(value.receiver, Object):
        return value.receiver
    return value.positional[0].value if value.positional else None


def ancestors(value: object) -> Iterator[object]:
    """A value and the values from which it was computed, the latest first: after a call its `origin`, and after an
    unknown value its known `hidden` value.
    """
    for _ in range(40):
        if value is None:
            return
        yield value
        value = origin(value) if isinstance(value, Object) else value.hidden if isinstance(value, Unknown) else None


def is_data(value: Object) -> bool:
    """Whether an object is the result of a call that loads a dataset."""
    return value.last in ("load_dataset", "load_from_disk", "read_json", "read_csv", "read_parquet")


def opened(value: Object) -> Object | None:
    """The call of `open` that returned the file from which an object was read; None if there is none."""
    return next(
        (one for one in lineage(value) if one.path in ("open", "pathlib.Path.open", "pathlib.Path.read_text")), None
    )


def read_from(row: object) -> Location | None:
    """Where the script names the file or dataset from which a row comes; None if this is not known."""
    if isinstance(row, tuple):
        row = next((one for one in row if is_row(one)), None)
    source = row.source if isinstance(row, Row) else row.receiver if isinstance(row, Object) else None
    if not isinstance(source, Object):
        return None
    file = opened(source)
    if file is not None:
        return file.positional[0].location if file.positional else None
    return next((one.location for one in lineage(source) if is_data(one)), None)


def strips(conditions: list[ast.expr]) -> bool:
    """Whether the conditions of a comprehension only skip empty lines."""
    return all("strip" in ast.unparse(one) or isinstance(one, ast.Name) for one in conditions)


def first(positional: list[Argument], keywords: dict[str, Argument], name: str = "") -> object:
    """The first positional argument or, if there is none, the argument with this name. None if both are missing."""
    if positional:
        return positional[0].value
    return keywords[name].value if name in keywords else None
