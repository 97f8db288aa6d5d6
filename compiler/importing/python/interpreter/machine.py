"""Follow the statements of a script that is read and not executed.

A condition that is known decides the branch. Otherwise both branches are read, one after the other from the same state,
and what differs afterwards is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager

from xpc.compiler.importing.python.interpreter import calls, functions, methods
from xpc.compiler.importing.python.interpreter.expressions import MAX_DEPTH, Expressions
from xpc.compiler.importing.python.interpreter.source import Part, parts
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Bound,
    Choice,
    Class,
    Function,
    Instance,
    Join,
    Name,
    Object,
    Place,
    Row,
    Table,
    Unknown,
    condition,
)
from xpc.compiler.importing.text.entries import Unreadable
from xpc.grammar.record import mutable

MAX_CALLS = 24
"""Deepest nesting of calls of the script's functions."""
MAX_MODULES = 20
MISSING = object()
PARAMETERS = ("parameters", "named_parameters", "modules", "named_modules", "children", "layers")
RETURN, STOP, LOOP = "return", "stop", "loop"
"""How a block ends early: by `return`, by an exception or exit, by `break` or `continue`."""


@mutable
class Writes:
    """What a branch wrote, with the old values."""

    old: dict[tuple[int, object], tuple[MutableMapping[object, object], object]]


class Machine(Expressions):
    """The state of a script: its scopes, the calls of libraries' functions, and the trainers that train."""

    def __init__(self, read: Callable[[str], bytes | None], gpu_has_bf16: bool = True) -> None:
        super().__init__()
        self.read = read
        self.gpu_has_bf16 = gpu_has_bf16
        self.calls: list[Object] = []
        self.trained: list[Object] = []
        self.functions: list[Function] = []
        self.modules: dict[str, dict[str, object]] = {}
        self.command_line: list[Place] = []
        self.environment: dict[str, Argument] = {}
        self.journal: list[Writes] = []
        self.returned: list[list[object]] = []
        self.nesting = 0
        self.row_loops = 0
        self.filters: list[Place] = []
        self.parameters: list[Place] = []
        self.main: dict[str, object] = {"__name__": "__main__"}
        self.texts: dict[str, str] = {}

    # -- modules -----------------------------------------------------------------------------------------------------

    def run(self, found: list[Part]) -> None:
        """Follow a script, or the cells of a notebook. If it trains nothing, follow its functions that were not
        called.
        """
        self.scopes = [self.main]
        for part in found:
            self.label = part.label
            self.texts[part.label] = part.text
            self.block(part.tree.body)
        if not self.trained and not any(functions.is_trainer(one.path) for one in self.calls):
            for one in list(self.functions):
                if not one.called and one.owner is None and self.texts.get(one.label) is not None:
                    self.scopes = [self.main]
                    self.call(one, [], {}, one.node)

    def module(self, name: str) -> dict[str, object] | None:
        """The scope of a module next to the script; None if there is no such file."""
        if name in self.modules:
            return self.modules[name]
        if len(self.modules) >= MAX_MODULES or not all(part.isidentifier() for part in name.split(".")):
            return None
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py", f"src/{stem}.py", f"src/{stem}/__init__.py"):
            data = self.read(path)
            if data is None:
                continue
            try:
                found, _ = parts(data.decode("utf-8-sig"), path)
            except (Unreadable, UnicodeDecodeError):
                return None
            scope: dict[str, object] = {"__name__": name}
            self.modules[name] = scope
            scopes, label = self.scopes, self.label
            self.scopes = [scope]
            for part in found:
                self.label = part.label
                self.texts[part.label] = part.text
                self.block(part.tree.body)
            self.scopes, self.label = scopes, label
            return scope
        return None

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, container: MutableMapping[object, object], key: object, value: object) -> None:
        """Write into a scope, a dict or the attributes of an object; a branch remembers the old value."""
        if self.journal:
            self.journal[-1].old.setdefault((id(container), key), (container, container.get(key, MISSING)))
        container[key] = value

    def change(self, items: list[object], new: list[object]) -> None:
        """Change a list in place."""
        if self.journal:
            holder = _Items(items)
            self.journal[-1].old.setdefault((id(items), "[]"), (holder, list(items)))
        items[:] = new

    @contextmanager
    def branch(self) -> Iterator[Writes]:
        """Read a branch, and undo what it wrote. Afterwards the old values in `Writes` are the branch's values."""
        writes = Writes({})
        self.journal.append(writes)
        try:
            yield writes
        finally:
            self.journal.pop()
            for slot, (container, old) in list(writes.old.items()):
                key = slot[1]
                new = container.get(key, MISSING)
                if old is MISSING:
                    container.pop(key, None)
                else:
                    container[key] = old
                writes.old[slot] = (container, new)

    def merge(self, one: Writes, other: Writes, place: Place, hidden: object = None, column: str = "") -> None:
        """Write what two branches wrote: equal values stay, others are unknown."""
        join = Join(place, hidden=hidden)
        join.column = column
        for slot in [*one.old, *(key for key in other.old if key not in one.old)]:
            container, _ = one.old.get(slot) or other.old[slot]
            current = container.get(slot[1], MISSING)
            a = one.old[slot][1] if slot in one.old else current
            b = other.old[slot][1] if slot in other.old else current
            if a is MISSING and b is MISSING:
                continue
            if isinstance(container, _Items) and isinstance(a, list) and isinstance(b, list):
                if self.row_loops and len(a) != len(b):
                    self.filters.append(place)
                    self.change(container.items_, a if len(a) > len(b) else b)
                else:
                    self.change(container.items_, _merged(join, a, b))
            elif a is MISSING or b is MISSING:
                self.write(container, slot[1], join.only(b if a is MISSING else a))
            else:
                self.write(container, slot[1], join.join(a, b))

    def apply(self, writes: Writes) -> None:
        """Write what the only branch that goes on wrote."""
        for (_, key), (container, value) in writes.old.items():
            if isinstance(container, _Items) and isinstance(value, list):
                self.change(container.items_, value)
            elif value is not MISSING:
                self.write(container, key, value)

    # -- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> str:
        """Follow statements. Returns how the block ends early; empty if it does not."""
        for one in body:
            self.step(one)
            method = getattr(self, f"do_{type(one).__name__.lower()}", None)
            if method is not None:
                ends = str(method(one) or "")
                if ends:
                    return ends
        return ""

    def do_expr(self, node: ast.Expr) -> str:
        """A call for its effect."""
        value = self.evaluate(node.value)
        return STOP if value is functions.EXIT else ""

    def do_assign(self, node: ast.Assign) -> None:
        """`name = value`."""
        value = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target, value)

    def do_annassign(self, node: ast.AnnAssign) -> None:
        """`name: type = value`."""
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value))

    def do_augassign(self, node: ast.AugAssign) -> None:
        """`name += value`."""
        load: ast.expr = ast.copy_location(_loaded(node.target), node.target)
        binary = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
        self.assign(node.target, self.evaluate(binary))

    def assign(self, target: ast.expr, value: object) -> None:
        """Assign a value to a name, an attribute, an item, or several of them."""
        if isinstance(target, ast.Name):
            self.write(self.scope_of(target.id), target.id, value)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.evaluate(target.value), target.attr, value, self.place(target))
        elif isinstance(target, ast.Subscript):
            self.set_item(self.evaluate(target.value), self.evaluate(target.slice), value, self.place(target))
        elif isinstance(target, ast.Tuple | ast.List):
            self.unpack(target.elts, value, target)

    def scope_of(self, name: str) -> MutableMapping[object, object]:
        """The scope into which a name is written."""
        declared = self.scopes[0].get("<global>")
        outer = isinstance(declared, list) and name in declared
        return self.scopes[-1 if outer else 0]  # type: ignore[return-value]

    def set_attribute(self, owner: object, name: str, value: object, place: Place) -> None:
        """Set an attribute of an object."""
        if isinstance(owner, Unknown):
            owner = owner.hidden
        if isinstance(owner, Instance) and owner.made is not None and name not in owner.attributes:
            owner = owner.made
        if isinstance(owner, Object | Instance | Class):
            self.write(owner.attributes, name, value)  # type: ignore[arg-type]
            self.write(owner.places, name, place)  # type: ignore[arg-type]

    def set_item(self, owner: object, key: object, value: object, place: Place) -> None:
        """Set an item of a dict, a list or an object."""
        if isinstance(owner, Name) and owner.path == "os.environ" and isinstance(key, str):
            self.write(self.environment, key, Argument(value, place))  # type: ignore[arg-type]
        elif isinstance(owner, dict):
            if isinstance(key, str | int | float | bool):
                self.write(owner, key, value)
                if isinstance(owner, Table):
                    self.write(owner.places, key, place)  # type: ignore[arg-type]
            else:
                for one in list(owner):
                    self.write(owner, one, Unknown("a key that is not known was set", place, owner[one]))
        elif isinstance(owner, list):
            known = isinstance(key, int) and -len(owner) <= key < len(owner)
            new = list(owner)
            if known:
                new[key] = value  # type: ignore[call-overload]
            else:
                new = [Unknown("an item that is not known was set", place)] * len(owner)
            self.change(owner, new)
        elif isinstance(owner, Object):
            self.write(owner.attributes, f"[{key!r}]", value)  # type: ignore[arg-type]
        elif isinstance(owner, Row):
            self.write(owner.written, key, value)

    def unpack(self, targets: list[ast.expr], value: object, node: ast.AST) -> None:
        """Assign the items of a value to several targets."""
        star = next((n for n, one in enumerate(targets) if isinstance(one, ast.Starred)), None)
        if isinstance(value, list | tuple) and star is None and len(value) == len(targets):
            items: list[object] = list(value)
        elif isinstance(value, list | tuple) and star is not None and len(value) >= len(targets) - 1:
            after = len(targets) - star - 1
            items = [*value[:star], list(value[star : len(value) - after]), *value[len(value) - after :]]
        elif isinstance(value, Object):
            items = [self.item(value, n, node) for n in range(len(targets))]
        elif isinstance(value, tuple) and len(value) == len(targets) - 1 and star is None:
            items = [*value, []]  # transformers' parsers return the rest of the command line on request
        else:
            hidden = value.hidden if isinstance(value, Unknown) else value
            why = value.why if isinstance(value, Unknown) else "a part of a value that is not known"
            items = [
                Unknown(why, value.place if isinstance(value, Unknown) else self.place(node), hidden) for _ in targets
            ]
        for one, item in zip(targets, items):
            self.assign(one.value if isinstance(one, ast.Starred) else one, item)

    def do_delete(self, node: ast.Delete) -> None:
        """`del name`, `del table[key]`."""
        for one in node.targets:
            if isinstance(one, ast.Subscript):
                owner, key = self.evaluate(one.value), self.evaluate(one.slice)
                if isinstance(owner, dict) and key in owner:
                    functions.removed(self, owner, key)

    def do_if(self, node: ast.If) -> str:
        """A branch."""
        tested = self.evaluate(node.test)
        truth = self.truth(tested)
        if truth is None and self.row_loops and _is_empty_line(node.test):
            truth = not isinstance(node.test, ast.UnaryOp)  # files may have empty lines, which are no rows
        if truth is not None:
            chosen, other = (node.body, node.orelse) if truth else (node.orelse, node.body)
            if not any(isinstance(one, ast.Raise | ast.Expr) for one in chosen):
                return self.block(chosen)
            with self.branch() as writes:
                ends = self.block(chosen)
            if ends == STOP:
                return self.block(other)  # a script that stops trains nothing: the command line is another one
            self.apply(writes)
            return ends
        return self.either(
            lambda: self.block(node.body),
            lambda: self.block(node.orelse),
            self.place(node),
            node.test,
            column=condition(tested),
        )

    def either(
        self,
        one: Callable[[], str],
        other: Callable[[], str],
        place: Place,
        test: ast.expr | None = None,
        hidden: object = None,
        column: str = "",
    ) -> str:
        """Read two ways on, of which the script takes one; `column` is the column whose emptiness decides."""
        before = len(self.returned[-1]) if self.returned else 0
        with self.branch() as first:
            ends = one()
        if ends == RETURN and column and self.returned and len(self.returned[-1]) == before + 1:
            self.returned[-1][before] = Choice(column, self.returned[-1][before], MISSING)
        with self.branch() as second:
            other_ends = other()
        if self.row_loops and LOOP in (ends, other_ends) and ends != other_ends and not _is_empty_line(test):
            self.filters.append(place)
        if ends and other_ends:
            return RETURN if RETURN in (ends, other_ends) else ends
        if ends or other_ends:
            self.apply(second if ends else first)
        else:
            self.merge(first, second, place, hidden, column)
        return ""

    def do_for(self, node: ast.For) -> str:
        """A loop: each turn if the items are known, otherwise one turn that may or may not happen."""
        value = self.evaluate(node.iter)
        items = self.iterated(value)
        if isinstance(value, Object) and value.last in PARAMETERS and _changes(node):
            self.parameters.append(self.place(node))
        if items is None:

            def turn() -> str:
                self.assign(node.target, self.unknown(node.iter, "a loop over items that are not known"))
                return self.loop_end(self.block(node.body))

            return self.either(turn, lambda: "", self.place(node), hidden=value if isinstance(value, Object) else None)
        rows = any(functions.is_row(one) for one in items)
        for item in items:
            self.assign(node.target, item)
            self.row_loops += rows
            ends = self.block(node.body)
            self.row_loops -= rows
            if ends in (RETURN, STOP):
                return ends
            if ends == f"{LOOP} break":
                return ""
        return self.block(node.orelse)

    do_asyncfor = do_for

    @staticmethod
    def loop_end(ends: str) -> str:
        """How a block ends after a loop in it: `break` and `continue` end only the loop."""
        return "" if ends.startswith(LOOP) else ends

    def do_while(self, node: ast.While) -> str:
        """A loop with a condition: one turn that may or may not happen."""
        truth = self.truth(self.evaluate(node.test))
        if truth is False:
            return ""
        if truth:
            return self.loop_end(self.block(node.body))
        return self.either(lambda: self.loop_end(self.block(node.body)), lambda: "", self.place(node))

    def do_break(self, _: ast.Break) -> str:
        """`break`."""
        return f"{LOOP} break"

    def do_continue(self, _: ast.Continue) -> str:
        """`continue`."""
        return LOOP

    def do_raise(self, _: ast.Raise) -> str:
        """`raise`."""
        return STOP

    def do_return(self, node: ast.Return) -> str:
        """`return`."""
        value = None if node.value is None else self.evaluate(node.value)
        if self.returned:
            self.returned[-1].append(value)
        return RETURN

    def do_global(self, node: ast.Global) -> None:
        """`global name`."""
        declared = self.scopes[0].get("<global>")
        self.scopes[0]["<global>"] = [*(declared if isinstance(declared, list) else []), *node.names]

    def do_with(self, node: ast.With) -> str:
        """`with`."""
        for one in node.items:
            value = self.evaluate(one.context_expr)
            if one.optional_vars is not None:
                self.assign(one.optional_vars, value)
        return self.block(node.body)

    do_asyncwith = do_with

    def do_try(self, node: ast.Try) -> str:
        """`try`: imports are taken to succeed; what another handler changes is unknown afterwards."""
        handlers = [one for one in node.handlers if not _imports(one)]
        if not handlers or all(isinstance(one, ast.Import | ast.ImportFrom) for one in node.body):
            ends = self.block(node.body) or self.block(node.orelse)
        else:

            def failed() -> str:
                ways = [self.block(one.body) for one in handlers]
                return "" if "" in ways else ways[0]

            ends = self.either(lambda: self.block(node.body) or self.block(node.orelse), failed, self.place(node))
        return self.block(node.finalbody) or ends

    do_trystar = do_try

    def do_import(self, node: ast.Import) -> None:
        """`import a.b as c`."""
        for one in node.names:
            name = one.asname or one.name.partition(".")[0]
            scope = self.module(one.name)
            value: object = Name(one.name if one.asname else name)
            if scope is not None and (one.asname or "." not in one.name):
                value = Class(one.name, [], self.place(node), scope)
            self.write(self.scope_of(name), name, value)

    def do_importfrom(self, node: ast.ImportFrom) -> None:
        """`from a import b`."""
        module = node.module or ""
        scope = self.module(module) if module else None
        if scope is None and node.level == 0 and module:
            scope = self.module(module.rpartition(".")[2]) if "." in module and module.startswith("src.") else None
        for one in node.names:
            if one.name == "*":
                for key, value in (scope or {}).items():
                    if not key.startswith("_"):
                        self.write(self.scopes[0], key, value)  # type: ignore[arg-type]
                continue
            name = one.asname or one.name
            if scope is not None and one.name in scope:
                value = scope[one.name]
            else:
                inner = self.module(f"{module}.{one.name}" if module else one.name)
                value = Name(f"{module}.{one.name}" if module else one.name)
                if inner is not None:
                    value = Class(one.name, [], self.place(node), inner)
                elif scope is not None or node.level:
                    value = self.unknown(node, f"`{one.name}` is in a module that is not read")
            self.write(self.scope_of(name), name, value)

    def do_functiondef(self, node: ast.FunctionDef) -> str:
        """`def`. A cell of marimo is followed at once."""
        made = Function(node, list(self.scopes), self.label)
        decorators = [functions.dotted(one) for one in node.decorator_list]
        if any(one.endswith(".cell") for one in decorators) and len(self.scopes) == 1:
            self.block([one for one in node.body if not isinstance(one, ast.Return)])
            return ""
        self.functions.append(made)
        self.write(self.scope_of(node.name), node.name, made)
        return ""

    do_asyncfunctiondef = do_functiondef

    def do_classdef(self, node: ast.ClassDef) -> None:
        """`class`."""
        made = Class(node.name, [self.evaluate(one) for one in node.bases], self.place(node))
        scopes, before = self.scopes, len(self.functions)
        self.scopes = [made.attributes, *scopes]
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                made.fields.append(one.target.id)
                made.places[one.target.id] = self.place(one)
                if one.value is None:
                    made.required[one.target.id] = self.place(one)
            elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                made.places[one.targets[0].id] = self.place(one)
            self.block([one])
        self.scopes = scopes
        for inner in self.functions[before:]:
            inner.owner = made
            inner.scopes = scopes
        self.write(self.scope_of(node.name), node.name, made)

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(
        self, function: object, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
    ) -> object:
        """Call a value: a function of the script is followed, a library's is recorded."""
        if isinstance(function, Function):
            return self.follow(function, positional, keywords, node)
        if isinstance(function, Class):
            return self.construct(function, positional, keywords, node)
        if isinstance(function, Bound):
            if isinstance(function.function, Function):
                return self.follow(
                    function.function, [Argument(function.receiver, self.place(node)), *positional], keywords, node
                )
            if function.keywords:
                return self.call(function.function, positional, {**function.keywords, **keywords}, node)
            return methods.method(self, function, positional, keywords, node)
        if isinstance(function, Name | Object):
            return calls.library(self, function, positional, keywords, node)
        if isinstance(function, Unknown):
            inner = positional[0].value if positional else None
            return Unknown(function.why, function.place, inner)
        return self.unknown(node, "a call of a value that is not known")

    def follow(
        self, function: Function, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
    ) -> object:
        """Follow a function of the script with its arguments."""
        function.called = True
        if self.nesting >= MAX_CALLS or self.depth > MAX_DEPTH:
            return self.unknown(node, "the calls are nested too deeply")
        scopes, label, depth = self.scopes, self.label, self.depth
        local: dict[str, object] = {}
        self.scopes, self.label = list(function.scopes), function.label
        self.bind(function, positional, keywords, local)
        self.scopes = [local, *function.scopes]
        self.returned.append([])
        self.nesting, self.depth = self.nesting + 1, min(depth, MAX_DEPTH // 2)
        try:
            if isinstance(function.node, ast.Lambda):
                return self.evaluate(function.node.body)
            ends = self.block(function.node.body)
            values = self.returned[-1]
            if not ends and values:
                values.append(None)
            if not values:
                return functions.EXIT if ends == STOP else None
            join = Join(self.place(function.node))
            value = values[-1]
            for one in reversed(values[:-1]):
                choice = isinstance(one, Choice) and one.empty is MISSING
                join.column = one.column if choice else ""  # type: ignore[attr-defined]
                value = join.join(one.full if choice else one, value)  # type: ignore[attr-defined]
            return value.full if isinstance(value, Choice) and value.empty is MISSING else value
        finally:
            self.returned.pop()
            self.nesting, self.depth = self.nesting - 1, depth
            self.scopes, self.label = scopes, label

    def bind(
        self, function: Function, positional: list[Argument], keywords: dict[str, Argument], local: dict[str, object]
    ) -> None:
        """Give the parameters of a function their values: the arguments, otherwise the defaults."""
        spec = function.node.args
        names = [*spec.posonlyargs, *spec.args]
        defaults: list[ast.expr | None] = [None] * (len(names) - len(spec.defaults)) + list(spec.defaults)
        rest = dict(keywords)
        for n, (one, default) in enumerate(zip(names, defaults)):
            if n < len(positional):
                local[one.arg] = positional[n].value
            elif one.arg in rest:
                local[one.arg] = rest.pop(one.arg).value
            else:
                local[one.arg] = self.parameter(function, one, default)
        for one, default in zip(spec.kwonlyargs, spec.kw_defaults):
            given = rest.pop(one.arg, None)
            local[one.arg] = given.value if given is not None else self.parameter(function, one, default)
        if spec.vararg is not None:
            local[spec.vararg.arg] = tuple(one.value for one in positional[len(names) :])
        if spec.kwarg is not None:
            local[spec.kwarg.arg] = Table(
                {key: one.value for key, one in rest.items()}, {key: one.place for key, one in rest.items()}
            )

    def parameter(self, function: Function, one: ast.arg, default: ast.expr | None) -> object:
        """The value of a parameter that a call does not give."""
        if default is not None:
            value = self.evaluate(default)
            return calls.option_default(value)
        return Unknown(
            f"nothing in the script gives the parameter `{one.arg}` of `{function.name}`",
            Place(function.label, one.lineno),
        )

    def construct(
        self, kind: Class, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
    ) -> object:
        """Make an object of a class of the script."""
        base = kind.base()
        made = Instance(kind)
        if base and functions.is_library(base):
            made.made = Object(base, positional, dict(keywords), self.place(node))
        init = kind.find("__init__")
        if isinstance(init, Function):
            self.follow(init, [Argument(made, self.place(node)), *positional], keywords, node)
        else:
            self.fields(made, positional, keywords)
            post = kind.find("__post_init__")
            if isinstance(post, Function):
                self.follow(post, [Argument(made, self.place(node))], {}, node)
        if made.made is not None:
            made.made.keywords = {
                **{
                    name: Argument(value, made.places.get(name, self.place(node)))
                    for name, value in made.attributes.items()
                },
                **made.made.keywords,
            }
            made.made.attributes["<class>"] = kind
            return calls.recorded(self, made.made)
        return made

    def fields(self, made: Instance, positional: list[Argument], keywords: dict[str, Argument]) -> None:
        """Set the attributes of a dataclass: its defaults, and the arguments."""
        names: list[str] = []
        for kind in reversed(made.kind.lineage()):
            for name in kind.fields:
                if name not in names:
                    names.append(name)
                if name in kind.attributes:
                    made.attributes[name] = calls.field_default(self, kind.attributes[name])
                    made.places[name] = kind.places[name]
        for one, given in zip(names, positional):
            made.attributes[one], made.places[one] = given.value, given.place
        for key, given in keywords.items():
            if not key.startswith("**"):
                made.attributes[key], made.places[key] = given.value, given.place
            else:
                for name in names:
                    made.attributes[name] = Unknown("`**` of a value that is not known", given.place)


class _Items(MutableMapping[object, object]):
    """A list as a mapping with one key, for what a branch remembers."""

    def __init__(self, items: list[object]) -> None:
        self.items_ = items

    def __getitem__(self, key: object) -> object:
        return list(self.items_)

    def __setitem__(self, key: object, value: object) -> None:
        self.items_[:] = value if isinstance(value, list) else [value]

    def __delitem__(self, key: object) -> None:
        self.items_.clear()

    def __iter__(self) -> Iterator[object]:
        return iter(["[]"])

    def __len__(self) -> int:
        return 1


def _loaded(target: ast.expr) -> ast.expr:
    """The target of `+=` as an expression."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


def _imports(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches failed imports only."""
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return bool(names) and all(
        getattr(one, "id", "") in ("ImportError", "ModuleNotFoundError", "KeyboardInterrupt") for one in names
    )


def _merged(join: Join, one: list[object], other: list[object]) -> list[object]:
    """A list after two branches. Calls of both stay, and a list that only one branch fills has an unknown item."""
    if all(isinstance(each, Object) for each in [*one, *other]):
        return [*one, *(each for each in other if not any(each is old for old in one))]
    if len(one) == len(other):
        return [join.join(a, b) for a, b in zip(one, other)]
    longer = one if len(one) > len(other) else other
    return [join.unknown(longer[-1])]


def _is_empty_line(test: ast.expr | None) -> bool:
    """Whether a condition is `not line`, `not line.strip()` or `line.strip()`."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr == "strip":
        test = test.func.value
    return isinstance(test, ast.Name)


def _changes(node: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop sets attributes or calls a method for its effect, such as `parameter.requires_grad_(False)`."""
    effects = ("requires_grad_", "to", "copy_", "float", "half", "register_forward_hook", "add_")
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and (isinstance(one.ctx, ast.Store) or one.attr in effects):
            return True
    return False
