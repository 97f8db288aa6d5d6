"""Evaluate the expressions of a script that is read and not executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.values import (
    LONGEST,
    Argument,
    Bound,
    Choice,
    Class,
    Column,
    Function,
    Instance,
    Join,
    Name,
    Object,
    Place,
    Row,
    Scalar,
    Table,
    Text,
    Unknown,
    condition,
)
from xpc.compiler.importing.text.entries import LARGEST, Unreadable

if TYPE_CHECKING:
    from typing import Any

MAX_STEPS = 200_000
"""Most expressions that are evaluated, counted each time."""
MAX_DEPTH = 60
"""Deepest nesting of expressions and of calls."""
MAX_ITEMS = 256
"""Most turns of a loop that is followed."""

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
EACH = Name("<each row>")
"""The index of a loop over the rows of a batch."""


class Expressions:
    """The expressions. `Machine` adds the statements, which change the scopes."""

    def __init__(self) -> None:
        self.steps = 0
        self.depth = 0
        self.label = ""
        self.scopes: list[dict[str, object]] = []

    # -- places and names --------------------------------------------------------------------------------------------

    def place(self, node: ast.AST) -> Place:
        """The place of a node."""
        return Place(self.label, getattr(node, "lineno", 0))

    def unknown(self, node: ast.AST, why: str, hidden: object = None) -> Unknown:
        """An unknown value at a node."""
        return Unknown(why, self.place(node), hidden)

    def lookup(self, name: str, node: ast.AST) -> object:
        """The value of a name: the nearest scope that has it, otherwise a built-in function."""
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        if name in functions.BUILTINS:
            return Name(name)
        if name == "__file__":
            return self.label.rpartition(" cell ")[0] or self.label
        return self.unknown(node, f"`{name}` is not defined in the script")

    # -- expressions -------------------------------------------------------------------------------------------------

    def step(self, node: ast.AST) -> None:
        """Count one step. Raises Unreadable for a script that needs too many."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Unreadable(f"reading it takes more than {MAX_STEPS} steps", getattr(node, "lineno", 0))

    def evaluate(self, node: ast.expr) -> object:
        """The value of an expression. Raises Unreadable for a script that needs too many steps."""
        self.step(node)
        if self.depth > MAX_DEPTH:
            return self.unknown(node, "it is nested too deeply")
        self.depth += 1
        try:
            method = getattr(self, f"of_{type(node).__name__.lower()}", None)
            return self.unknown(node, "this form of expression is not read") if method is None else method(node)
        finally:
            self.depth -= 1

    def of_constant(self, node: ast.Constant) -> object:
        """A literal."""
        value = node.value
        if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
            return self.unknown(node, "a number is larger than any setting takes")
        return value if isinstance(value, Scalar) else self.unknown(node, "this literal is not read")

    def of_name(self, node: ast.Name) -> object:
        """A variable."""
        return self.lookup(node.id, node)

    def of_attribute(self, node: ast.Attribute) -> object:
        """An attribute of a value."""
        return self.attribute(self.evaluate(node.value), node.attr, node)

    def attribute(self, value: object, name: str, node: ast.AST) -> object:
        """The attribute of a value."""
        if isinstance(value, Name):
            return functions.attribute(value, name)
        if isinstance(value, Instance):
            return self.member(value, name, node)
        if isinstance(value, Class):
            found = value.find(name)
            return self.unknown(node, f"`{value.name}` has no `{name}`") if found is None else self.enumerated(found)
        if isinstance(value, Object):
            return self.part(value, name, node)
        if isinstance(value, Unknown):
            return Unknown(value.why, value.place, value.hidden)
        if isinstance(value, Function) and name in ("remote", "local", "spawn"):
            return value  # Modal's and Ray's functions
        if isinstance(value, str) and name in functions.PATH_PARTS:
            return functions.PATH_PARTS[name](value)
        if isinstance(value, Text | Column) and name in ("strip", "rstrip", "lstrip"):
            return Bound(Name(f"<str>.{name}"), value)
        return Bound(Name(f"<{functions.kind(value)}>.{name}"), value)

    def enumerated(self, value: object) -> object:
        """A member of an enumeration is its value."""
        return value

    def member(self, value: Instance, name: str, node: ast.AST) -> object:
        """An attribute of an object of a class of the script."""
        if name in value.attributes:
            return value.attributes[name]
        found = value.kind.find(name)
        if isinstance(found, Function):
            bound = Bound(found, value)
            decorators = [getattr(one, "id", "") for one in getattr(found.node, "decorator_list", [])]
            if "property" in decorators or "cached_property" in decorators:
                return self.call(bound, [], {}, node)
            return found if "staticmethod" in decorators else bound
        if found is not None or name in value.kind.attributes:
            return found
        if name == "__class__":
            return value.kind
        if name == "__dict__":
            return Table(value.attributes, value.places)
        if value.made is not None:
            return self.part(value.made, name, node)
        return Unknown(f"`{name}` is not set in the script", value.kind.required.get(name, self.place(node)))

    def part(self, value: Object, name: str, node: ast.AST) -> object:
        """An attribute of a library's object: one that the script set, an argument of its call, or a new object."""
        if name in value.attributes:
            return value.attributes[name]
        if name in value.keywords and functions.is_settings(value):
            return value.keywords[name].value
        found = Object(f"{value.path}.{name}", [], {}, self.place(node), value)
        value.attributes[name] = found
        return found

    def of_subscript(self, node: ast.Subscript) -> object:
        """An item of a value."""
        value = self.evaluate(node.value)
        if isinstance(node.slice, ast.Slice):
            ends: list[Any] = [
                None if one is None else self.evaluate(one) for one in (node.slice.lower, node.slice.upper)
            ]
            if isinstance(value, str | list | tuple) and all(one is None or isinstance(one, int) for one in ends):
                return (
                    value[slice(ends[0], ends[1])]
                    if node.slice.step is None
                    else self.unknown(node, "a slice with a step")
                )
            if isinstance(value, Object):
                return Object(
                    f"{value.path}[:]", [Argument(one, self.place(node)) for one in ends], {}, self.place(node), value
                )
            return self.unknown(node, "a part of a value that is not known", value)
        return self.item(value, self.evaluate(node.slice), node)

    def item(self, value: object, key: object, node: ast.AST) -> object:
        """The item of a value at a key."""
        if isinstance(value, Row) and isinstance(key, str):
            return value.written.get(key, Column(key, value.batch, value.source))
        if isinstance(value, Column) and value.batch:
            return Column(value.name, False, value.source)
        if isinstance(value, Row) and key == EACH:
            return Row()
        if isinstance(value, Unknown):
            return value
        if isinstance(key, Scalar):
            try:
                if isinstance(value, dict | list | tuple | str):
                    return value[key]  # type: ignore[index]
            except (KeyError, IndexError, TypeError):
                return self.unknown(node, f"it has no item {str(key)[:40]!r}")
            if isinstance(value, Class):
                return self.attribute(value, str(key), node)
        if isinstance(value, Object):
            if value.last == "environ":
                return functions.variable(self, key, None, node)
            name = f"[{key!r}]" if isinstance(key, Scalar) else "[]"
            if name not in value.attributes or name == "[]":
                value.attributes[name] = Object(
                    f"{value.path}[]", [Argument(key, self.place(node))], {}, self.place(node), value
                )
            return value.attributes[name]
        if isinstance(value, Name):
            if value.path == "os.environ":
                return functions.variable(self, key, None, node)
            return value  # a type such as list[str]
        return self.unknown(node, "an item of a value that is not known", value)

    def of_list(self, node: ast.List) -> object:
        """A list."""
        return self.items(node.elts)

    def of_set(self, node: ast.Set) -> object:
        """A set, as a list."""
        return self.items(node.elts)

    def of_tuple(self, node: ast.Tuple) -> object:
        """A tuple."""
        return tuple(self.items(node.elts))

    def items(self, nodes: Iterable[ast.expr]) -> list[object]:
        """The values of expressions, with starred ones in their place."""
        out: list[object] = []
        for one in nodes:
            if isinstance(one, ast.Starred):
                value = self.evaluate(one.value)
                out += value if isinstance(value, list | tuple) else [self.unknown(one, "the items are not known")]
            else:
                out.append(self.evaluate(one))
            if len(out) > LONGEST:
                raise Unreadable(f"a list has more than {LONGEST} items", getattr(one, "lineno", 0))
        return out

    def of_dict(self, node: ast.Dict) -> object:
        """A dict."""
        out = Table()
        for key, value in zip(node.keys, node.values):
            if key is None:
                inner = self.evaluate(value)
                if isinstance(inner, Instance):
                    inner = Table(inner.attributes, inner.places)
                elif isinstance(inner, Row):
                    inner = Table(inner.written)
                if not isinstance(inner, dict):
                    return self.unknown(value, "`**` of a value that is not known", out)
                out.update(inner)
                out.places.update(getattr(inner, "places", {}))
                continue
            name = self.evaluate(key)
            if not isinstance(name, str | int | float | bool):
                return self.unknown(key, "a key that is not known")
            out[name] = self.evaluate(value)
            out.places[name] = self.place(value)
        return out

    def of_joinedstr(self, node: ast.JoinedStr) -> object:
        """An f-string."""
        return self.joined([self.evaluate(one) for one in node.values], node)

    def of_formattedvalue(self, node: ast.FormattedValue) -> object:
        """A value in an f-string."""
        value = self.evaluate(node.value)
        if node.format_spec is None:
            return value
        spec = self.evaluate(node.format_spec)
        if isinstance(value, int | float | str) and isinstance(spec, str) and len(spec) < 12:
            try:
                return format(value, spec) if not any(one.isdigit() and spec.count(one) > 3 for one in spec) else value
            except ValueError:
                return self.unknown(node, "a format that Python refuses")
        return self.unknown(node, "a format of a value that is not known", value)

    def joined(self, parts: list[object], node: ast.AST) -> object:
        """A text of several parts: known, a text with columns, or unknown."""
        flat: list[object] = []
        for one in parts:
            for part in one.parts if isinstance(one, Text) else [one]:
                if isinstance(part, Unknown):
                    return Unknown(part.why, part.place, part.hidden)
                if isinstance(part, Choice):
                    return self.chosen(part, parts, node)
                if isinstance(part, list | tuple | dict | Function | Class | Instance | Bound):
                    return self.unknown(node, "a text of a value that is not a text")
                text = part if isinstance(part, str) else str(part) if isinstance(part, Scalar) else None
                if text is not None and flat and isinstance(flat[-1], str):
                    flat[-1] += text
                else:
                    flat.append(part if text is None else text)
        if sum(len(one) for one in flat if isinstance(one, str)) > LONGEST:
            return self.unknown(node, "a text that is too long")
        if not flat:
            return ""
        return flat[0] if len(flat) == 1 and isinstance(flat[0], str) else Text(tuple(flat))

    def chosen(self, choice: Choice, parts: list[object], node: ast.AST) -> object:
        """A text with a part that depends on a column, as a choice between two texts."""
        at = next(n for n, one in enumerate(parts) if one is choice)
        full, empty = (self.joined([*parts[:at], one, *parts[at + 1 :]], node) for one in (choice.full, choice.empty))
        for one in (full, empty):
            if isinstance(one, Unknown):
                return one
        return Choice(choice.column, full, empty)

    def of_binop(self, node: ast.BinOp) -> object:
        """Arithmetic, texts that are put together, and paths."""
        # a chain such as `a + b + c + ...` is nested to the left: it is walked, so that its length is no depth
        chain: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):
            chain.append(first)
            first = first.left
        value = self.evaluate(first)
        for one in reversed(chain):
            value = self.binary(one, value, self.evaluate(one.right))
        return value

    def binary(self, node: ast.BinOp, left: object, right: object) -> object:
        """The value of an operator with two operands."""
        for one in (left, right):
            if isinstance(one, Unknown):
                return Unknown(one.why, one.place)
        kind = type(node.op)
        if kind is ast.Div and isinstance(left, str) and isinstance(right, str):
            return functions.path_join(left, right)
        if kind is ast.BitOr and isinstance(left, dict) and isinstance(right, dict):
            return Table({**left, **right}, {**getattr(left, "places", {}), **getattr(right, "places", {})})
        if kind is ast.Add and (not isinstance(left, str) or not isinstance(right, str)):
            texts = (str, Text, Column, Object, Choice)
            if isinstance(left, texts) and isinstance(right, texts):
                return self.joined([left, right], node)
        if kind is ast.Mod and isinstance(left, str):
            return functions.percent(self, left, right, node)
        return self.arithmetic(node, left, right)

    def arithmetic(self, node: ast.BinOp, left: object, right: object) -> object:
        """Numbers, and lists and texts that are joined or repeated, within bounds."""
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
            return self.unknown(node, "arithmetic with a value that is not a number")
        if repeated and len(left) * right > LONGEST:  # type: ignore[arg-type, operator]
            return self.unknown(node, "a value that is too long")
        try:
            value = compute(left, right)
        except (ArithmeticError, ValueError, TypeError):
            return self.unknown(node, "arithmetic that Python refuses")
        if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
            return self.unknown(node, "a number is larger than any setting takes")
        if isinstance(value, str | list | tuple) and len(value) > LONGEST:
            return self.unknown(node, "a value that is too long")
        return value if isinstance(value, (*Scalar, list, tuple)) else self.unknown(node, "a number that is not real")

    def of_unaryop(self, node: ast.UnaryOp) -> object:
        """`not`, and signs."""
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            truth = self.truth(value)
            return self.unknown(node, "it depends on a value that is not known") if truth is None else not truth
        if isinstance(value, int | float) and isinstance(node.op, ast.USub | ast.UAdd):
            return -value if isinstance(node.op, ast.USub) else value
        return value if isinstance(value, Unknown) else self.unknown(node, "this operator is not read")

    def of_boolop(self, node: ast.BoolOp) -> object:
        """`and`, `or`."""
        stops = isinstance(node.op, ast.Or)
        value: object = None
        unclear: object = None
        for one in node.values:
            value = self.evaluate(one)
            truth = self.truth(value)
            if truth is None:
                unclear = unclear or value
            elif truth is stops:
                return value if unclear is None else self.undecided(node, unclear, value)
        if unclear is not None and not stops and condition(unclear) and condition(unclear) == condition(value):
            return value
        return value if unclear is None else self.undecided(node, unclear, value)

    def undecided(self, node: ast.AST, unclear: object, value: object) -> object:
        """The value of an `and` or `or` with an operand that is not known."""
        if unclear is value and isinstance(value, Unknown):
            return value
        why = unclear.why if isinstance(unclear, Unknown) else "it depends on a value that is not known"
        return self.unknown(node, why)

    def of_compare(self, node: ast.Compare) -> object:
        """Comparisons."""
        left = self.evaluate(node.left)
        for op, right_node in zip(node.ops, node.comparators):
            right = self.evaluate(right_node)
            found = self.compared(op, left, right)
            if found is None and len(node.ops) == 1 and isinstance(op, ast.NotEq) and right == "" and condition(left):
                return Object("<full>", [], {}, self.place(node), left)
            if found is None:
                return self.unknown(node, "it depends on a value that is not known")
            if not found:
                return False
            left = right
        return True

    def compared(self, op: ast.cmpop, left: object, right: object) -> bool | None:
        """Whether a comparison holds; None if it is not known."""
        if isinstance(op, ast.Is | ast.IsNot) or (isinstance(op, ast.Eq | ast.NotEq) and None in (left, right)):
            if isinstance(left, Unknown) or isinstance(right, Unknown):
                return None
            if right is None or left is None:
                other = left if right is None else right
                if isinstance(other, Object) and not functions.is_made(other):
                    return None  # such as `tokenizer.pad_token is None`
                same = other is None
            elif isinstance(left, bool) and isinstance(right, bool):
                same = left is right
            else:
                return None
            return same is isinstance(op, ast.Is | ast.Eq)
        if isinstance(op, ast.In | ast.NotIn):
            return functions.contains(left, right, isinstance(op, ast.In))
        compare = COMPARISONS.get(type(op))
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

    def truth(self, value: object) -> bool | None:
        """Whether a value is true; None if it is not known."""
        if isinstance(value, (*Scalar, list, tuple, dict)):
            return bool(value)
        if isinstance(value, Function | Class | Instance | Bound | Text):
            return True
        if isinstance(value, Object):
            return True if functions.is_made(value) else None
        return None

    def of_ifexp(self, node: ast.IfExp) -> object:
        """`a if condition else b`."""
        condition_ = self.evaluate(node.test)
        truth = self.truth(condition_)
        if truth is not None:
            return self.evaluate(node.body if truth else node.orelse)
        join = Join(self.place(node))
        join.column = condition(condition_)
        return join.join(self.evaluate(node.body), self.evaluate(node.orelse))

    def of_namedexpr(self, node: ast.NamedExpr) -> object:
        """`name := value`."""
        value = self.evaluate(node.value)
        self.assign(node.target, value)
        return value

    def of_lambda(self, node: ast.Lambda) -> object:
        """A lambda."""
        return Function(node, list(self.scopes), self.label)

    def of_await(self, node: ast.Await) -> object:
        """`await`."""
        return self.evaluate(node.value)

    def of_starred(self, node: ast.Starred) -> object:
        """`*values` where no list takes them."""
        return self.unknown(node, "the items are not known")

    def of_listcomp(self, node: ast.ListComp) -> object:
        """A list of a loop."""
        return self.comprehended(node, [node.elt])

    of_setcomp = of_listcomp
    of_generatorexp = of_listcomp

    def of_dictcomp(self, node: ast.DictComp) -> object:
        """A dict of a loop."""
        pairs = self.comprehended(node, [node.key, node.value])
        if isinstance(pairs, Unknown) or not all(isinstance(key, str | int) for key, _ in pairs):  # type: ignore[attr-defined]
            return pairs if isinstance(pairs, Unknown) else self.unknown(node, "a key that is not known")
        place = self.place(node)
        return Table(dict(pairs), {key: place for key, _ in pairs})  # type: ignore[attr-defined, call-overload]

    def comprehended(self, node: ast.AST, parts: list[ast.expr]) -> object:
        """The values of a comprehension with one loop."""
        generators: list[ast.comprehension] = getattr(node, "generators", [])
        if len(generators) != 1:
            return self.unknown(node, "a comprehension with several loops is not read")
        loop = generators[0]
        iterable = self.evaluate(loop.iter)
        items = self.iterated(iterable)
        if items is None:
            hidden = iterable.hidden if isinstance(iterable, Unknown) else iterable
            return self.unknown(node, "it is a list of items that are not known", hidden)
        rows = any(functions.is_row(one) for one in items)
        out: list[object] = []
        self.scopes = [{}, *self.scopes]
        try:
            for item in items:
                self.assign(loop.target, item)
                truths = [self.truth(self.evaluate(one)) for one in loop.ifs]
                if None in truths and not (rows and functions.strips(loop.ifs)):
                    return self.unknown(node, "it selects items by a condition that is not known", iterable)
                if all(one is not False for one in truths):
                    values = [self.evaluate(one) for one in parts]
                    out.append(values[0] if len(values) == 1 else tuple(values))
        finally:
            self.scopes = self.scopes[1:]
        return out

    def iterated(self, value: object) -> list[object] | None:
        """The items of a value that a loop follows; None if they are not known or too many. The rows of a batch are one
        item.
        """
        if isinstance(value, Column) and value.batch:
            return [Column(value.name, False, value.source)]
        if isinstance(value, Object):
            return functions.rows_of(value)
        if isinstance(value, dict):
            value = list(value)
        if isinstance(value, list | tuple) and len(value) <= MAX_ITEMS:
            return list(value)
        return None

    # -- calls -------------------------------------------------------------------------------------------------------

    def of_call(self, node: ast.Call) -> object:
        """A call."""
        function = self.evaluate(node.func)
        positional: list[Argument] = []
        for one in node.args:
            if isinstance(one, ast.Starred):
                value = self.evaluate(one.value)
                items = value if isinstance(value, list | tuple) else [self.unknown(one, "`*` of an unknown list")]
                positional += [Argument(item, self.place(one)) for item in items]
            else:
                positional.append(Argument(self.evaluate(one), self.place(one)))
        keywords: dict[str, Argument] = {}
        for key in node.keywords:
            value = self.evaluate(key.value)
            if key.arg is not None:
                keywords[key.arg] = Argument(value, self.place(key.value))
                continue
            if isinstance(value, Instance):
                value = Table(value.attributes, value.places)
            if not isinstance(value, dict):
                keywords[f"**{len(keywords)}"] = Argument(
                    self.unknown(key.value, "`**` of a value that is not known", value), self.place(key.value)
                )
                continue
            places = getattr(value, "places", {})
            for name, inner in value.items():
                keywords[str(name)] = Argument(inner, places.get(name, self.place(key.value)))
        return self.call(function, positional, keywords, node)

    def call(
        self, function: object, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
    ) -> object:
        """Call a value. `Machine` follows the script's own functions."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: object) -> None:
        """Assign a value. `Machine` knows the scopes."""
        raise NotImplementedError
