"""Evaluate operators: arithmetic, comparisons, `and`, `or` and `not`, and the truth of values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.parsed_classes import signature_names
from xpc.compiler.importing.python.interpreter.texts import joined, percent
from xpc.compiler.importing.python.interpreter.values import (
    LONGEST,
    Argument,
    Bound,
    Choice,
    Class,
    Column,
    Function,
    Instance,
    Name,
    Object,
    Scalar,
    Table,
    Text,
    Unknown,
    Unset,
    condition,
)
from xpc.compiler.importing.text.entries import LARGEST

if TYPE_CHECKING:
    from typing import Any

LENGTH = "it depends on a length that is not known"
LESS = "<length without>"
"""The `path` of an object that represents the length of a dataset minus some rows, such as `len(rows) - 50`."""
OPERATORS: dict[type, Callable[[object, object], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: dict[type, Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def binary_chain(machine: Machine, node: ast.BinOp) -> object:
    """Evaluate a chain of binary operators on numbers, strings, lists or paths, such as `a + b + c`."""
    # `a + b + c + ...` is nested to the left; a loop, instead of recursion, allows long chains
    chain: list[ast.BinOp] = []
    first: ast.expr = node
    while isinstance(first, ast.BinOp):
        chain.append(first)
        first = first.left
    value = machine.evaluate(first)
    for one in reversed(chain):
        value = _binary(machine, one, value, machine.evaluate(one.right))
    return value


def _binary(machine: Machine, node: ast.BinOp, left: object, right: object) -> object:
    """Evaluate a binary operator on two values."""
    part = _part_of_length(machine, node, left, right) or _of_tokens(machine, node, left, right)
    if part is not None:
        return part
    for one in (left, right):
        if isinstance(one, Unknown):
            return Unknown(one.why, one.location)
    kind = type(node.op)
    if isinstance(left, Column) and isinstance(right, Column) and left.batch and right.batch:
        return machine.unknown(node, "the function joins columns of several rows")
    if kind is ast.Sub and functions.is_signature(left):
        return left  # `set(signature.parameters) - {"self"}` counts as the complete signature
    if kind is ast.Div and isinstance(left, str) and isinstance(right, str):
        return functions.path_join(left, right)
    if kind is ast.BitOr and isinstance(left, dict) and isinstance(right, dict):
        return Table({**left, **right}, {**getattr(left, "locations", {}), **getattr(right, "locations", {})})
    if kind is ast.Add and (not isinstance(left, str) or not isinstance(right, str)):
        texts = (str, Text, Column, Object, Choice)
        if isinstance(left, texts) and isinstance(right, texts):
            return joined(machine, [left, right], node)
    if kind is ast.Mod and isinstance(left, str):
        return percent(machine, left, right, node)
    return _arithmetic(machine, node, left, right)


def _part_of_length(machine: Machine, node: ast.BinOp, left: object, right: object) -> Unknown | None:
    """Evaluate an expression for a part of a dataset's length, such as `len(rows) - 50` or `0.9 * len(rows)`. The
    result records the missing part: 50 rows, or the share 0.1. None for any other expression.
    """
    length, other = (left, right) if isinstance(left, Unknown) else (right, left)
    if not isinstance(length, Unknown) or length.why != LENGTH or not isinstance(length.hidden, Object):
        return None
    if not isinstance(other, int | float) or isinstance(other, bool) or length.hidden.path == LESS:
        return None
    rows = isinstance(node.op, ast.Sub) and length is left and isinstance(other, int) and other > 0
    share = isinstance(node.op, ast.Mult) and 0 < other < 1
    if not rows and not share:
        return None
    left_out = Argument(other if rows else round(1 - other, 9), machine.location(node))
    return Unknown(LENGTH, length.location, Object(LESS, [left_out], {}, machine.location(node), length.hidden))


MOST_PIECES = 32
"""The largest number of lists of tokens that a script may join."""
TOKENS, MASKED = "<tokens>", "<masked>"
"""The `path` of an object that represents joined lists of tokens (TOKENS), or the labels `[-100] * len(tokens)`, which
mask every token (MASKED).
"""


def is_tokens(value: object) -> bool:
    """Whether a value represents the tokens of a text: `tokenizer(text)["input_ids"]` or `tokenizer.encode(text)`."""
    if not isinstance(value, Object):
        return False
    item = value.path.endswith("()[]") and [one.value for one in value.positional] == ["input_ids"]
    return item or value.path.endswith("().input_ids") or value.last == "encode" or value.path in (TOKENS, MASKED)


def _of_tokens(machine: Machine, node: ast.BinOp, left: object, right: object) -> Object | Unknown | None:
    """The result of an operator on tokens. `+` joins lists of tokens, and `[-100] * len(tokens)` gives one label for
    each token. None for any other operands.
    """
    location = machine.location(node)
    if isinstance(node.op, ast.Mult) and isinstance(left, list) and len(left) == 1 and isinstance(right, Unknown):
        known = right.why == LENGTH and is_tokens(right.hidden)
        if known:
            return Object(MASKED, [Argument(left[0], location), Argument(right.hidden, location)], {}, location)
        return None
    sides = (left, right)
    if not isinstance(node.op, ast.Add) or not any(map(is_tokens, sides)):
        return None
    if not all(is_tokens(one) or isinstance(one, list) for one in sides):
        return None
    pieces: list[object] = []
    for one in sides:
        joined_ = isinstance(one, Object) and one.path == TOKENS
        pieces += [each.value for each in one.positional] if joined_ else one if isinstance(one, list) else [one]  # type: ignore[attr-defined]
    if len(pieces) > MOST_PIECES:
        return machine.unknown(node, f"more than {MOST_PIECES} joined pieces of tokens")
    return Object(TOKENS, [Argument(each, location) for each in pieces], {}, location)


def _arithmetic(machine: Machine, node: ast.BinOp, left: object, right: object) -> object:
    """Evaluate arithmetic on numbers, and `+` and `*` on lists and strings. Results that are too large are unknown."""
    kind = type(node.op)
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if kind is ast.Pow and numbers and abs(left) < 1e6 and abs(right) <= 16:  # type: ignore[arg-type]
        compute: Callable[[object, object], object] | None = operator.pow
    elif kind is ast.LShift and isinstance(left, int) and isinstance(right, int) and 0 <= right < 62:
        compute = operator.lshift
    else:
        compute = OPERATORS.get(kind)
    same = type(left) is type(right) and isinstance(left, str | list | tuple) and kind is ast.Add
    repeated = kind is ast.Mult and isinstance(left, str | list) and isinstance(right, int) and right < 10_000
    if compute is None or not (numbers or same or repeated):
        return machine.unknown(node, "arithmetic with a value that is not a number")
    if repeated and len(left) * right > LONGEST:  # type: ignore[arg-type, operator]
        return machine.unknown(node, "its value is too long")
    try:
        value = compute(left, right)
    except (ArithmeticError, ValueError, TypeError):
        return machine.unknown(node, "arithmetic that Python refuses")
    if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        return machine.unknown(node, "the number is larger than any setting allows")
    if isinstance(value, str | list | tuple) and len(value) > LONGEST:
        return machine.unknown(node, "its value is too long")
    return value if isinstance(value, (*Scalar, list, tuple)) else machine.unknown(node, "a number that is not real")


def unary(machine: Machine, node: ast.UnaryOp) -> object:
    """Evaluate `not`, `-` or `+`."""
    value = machine.evaluate(node.operand)
    if isinstance(node.op, ast.Not):
        truth = truth_of(value)
        machine.taken_as_empty(value)
        return _unclear(machine, node, value) if truth is None else not truth
    if isinstance(value, int | float) and isinstance(node.op, ast.USub | ast.UAdd):
        return -value if isinstance(node.op, ast.USub) else value
    return value if isinstance(value, Unknown) else machine.unknown(node, "the import does not read this operator")


def boolean(machine: Machine, node: ast.BoolOp) -> object:
    """Evaluate `and` or `or`."""
    stops = isinstance(node.op, ast.Or)
    value: object = None
    unclear: object = None
    for one in node.values:
        value = machine.evaluate(one)
        truth = truth_of(value)
        machine.taken_as_empty(value)
        if truth is None:
            unclear = unclear or value
        elif truth is stops:
            return value if unclear is None else _undecided(machine, node, unclear, value)
    if unclear is not None and not stops and condition(unclear) and condition(unclear) == condition(value):
        return value
    return value if unclear is None else _undecided(machine, node, unclear, value)


def _undecided(machine: Machine, node: ast.AST, unclear: object, value: object) -> object:
    """The unknown value of an `and` or `or`, if the truth of an operand is unknown."""
    if unclear is value and isinstance(value, Unknown):
        return value
    return _unclear(machine, node, unclear)


def _unclear(machine: Machine, node: ast.AST, *values: object) -> Unknown:
    """The unknown result of an operator with an unknown operand, with the operand's reason and line."""
    found = next((one for one in values if isinstance(one, Unknown)), None)
    if found is None:
        return machine.unknown(node, "it depends on a value that is not known")
    return Unknown(found.why, found.location)


def comparison(machine: Machine, node: ast.Compare) -> object:
    """Evaluate a comparison, such as `a < b <= c`."""
    left = machine.evaluate(node.left)
    for op, right_node in zip(node.ops, node.comparators):
        right = machine.evaluate(right_node)
        # `x in os.environ` is the same as `os.environ.get(x) is not None`
        if isinstance(op, ast.In | ast.NotIn) and right == Name("os.environ"):
            op = ast.IsNot() if isinstance(op, ast.In) else ast.Is()
            left, right = machine.variable(left, None, node), None
        found = _compared(op, left, right)
        if found is not None:
            machine.taken_as_empty(left)
        if found is None and len(node.ops) == 1 and isinstance(op, ast.NotEq) and right == "" and condition(left):
            return Object("<full>", [], {}, machine.location(node), left)
        if found is None:
            return _unclear(machine, node, left, right)
        if not found:
            return False
        left = right
    return True


def _compared(op: ast.cmpop, left: object, right: object) -> bool | None:
    """The outcome of a comparison with one operator; None if unknown."""
    if isinstance(op, ast.Is | ast.IsNot) or (isinstance(op, ast.Eq | ast.NotEq) and None in (left, right)):
        if isinstance(left, Unset) and right is None:
            return isinstance(op, ast.Is | ast.Eq)
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return None
        if right is None or left is None:
            same = _is_none(left if right is None else right)
        else:
            same = left is right if isinstance(left, bool) and isinstance(right, bool) else None
        return None if same is None else same is isinstance(op, ast.Is | ast.Eq)
    if isinstance(op, ast.In | ast.NotIn):
        names = signature_names(right) if functions.is_signature(right) else None
        return functions.contains(left, right, isinstance(op, ast.In), names)
    compare = COMPARISONS.get(type(op))
    if isinstance(left, Unknown) and left.why == LENGTH and right == 0 and compare is not None:
        return bool(compare(1, 0))  # a dataset is assumed to have rows
    if any(isinstance(one, Name) and not functions.is_library(one.path) for one in (left, right)):
        return None
    if isinstance(left, Name) is not isinstance(right, Name):
        return None
    simple = (bool, int, float, str, Name)
    if compare is None or not isinstance(left, simple) or not isinstance(right, simple):
        pairs = isinstance(left, tuple | list) and isinstance(right, tuple | list)
        flat = pairs and all(isinstance(one, int | str) for one in [*left, *right])  # type: ignore[misc]
        if compare is None or not flat:
            return None
    try:
        return bool(compare(left, right))
    except TypeError:
        return None


def _is_none(value: object) -> bool | None:
    template = functions.ships_template(value)
    if template is not None:
        return not template
    if isinstance(value, Object) and not functions.is_made(value):
        # unknown, because a library's attribute may be None, as in `tokenizer.pad_token is None`
        return None
    return value is None


def truth_of(value: object) -> bool | None:
    """Whether a value counts as true; None if this is unknown."""
    if isinstance(value, (*Scalar, list, tuple, dict)):
        return bool(value)
    if isinstance(value, Unset):
        return False
    if isinstance(value, Name) and value.last == "TYPE_CHECKING":
        return False
    if isinstance(value, Name) and functions.is_signature(value):
        return True
    if isinstance(value, Function | Class | Instance | Bound | Text):
        return True
    if isinstance(value, Object):
        return True if functions.is_made(value) or functions.is_signature(value) else None
    return None
