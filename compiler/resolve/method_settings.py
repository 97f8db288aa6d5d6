"""Check what the types of settings cannot express: the losses and reward functions in a spec exist, and the spec has
only one adapter.

Imported only for a spec with a method, a method's setting, or an adapter.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.files.workspace import Read, Unreadable
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.items import SPEC, Item
from xpc.compiler.language.kinds import Weighted
from xpc.compiler.language.load import MergedSpec
from xpc.compiler.language.methods import DEFAULT, METHODS
from xpc.compiler.language.rewards import REWARD_ARGUMENTS, REWARDS
from xpc.compiler.language.schema import ADAPTERS, BY_PATH
from xpc.compiler.language.setting import Path
from xpc.compiler.spec.values import Origin, Value
from xpc.compiler.stacks import Stack
from xpc.grammar.diagnostic import Edit, Label
from xpc.grammar.nearest import nearest
from xpc.grammar.record import entity, evolve
from xpc.grammar.tree import Call, List
from xpc.grammar.tree import Value as Node

FILE_VALUES: dict[str, tuple[str, str]] = {
    "method.rewards": ("function", "rewards.py:tag_count"),
    "method.tools": ("function", "tools.py:search"),
    "method.environment": ("class", "env.py:Maze"),
}
"""Maps each setting that names an object in a Python file to the kind of the object (a function or a class), and to an
example.
"""


def _or_write(other: str | None, method: str) -> str:
    """The part of a help that names another method, and the columns that its rows need if `method` trains on no such
    rows. "" if no other method reads all settings of the spec.
    """
    if other is None:
        return ""
    rows = f", which trains on rows with {' and '.join(SHAPES[METHODS[other].shapes[0]])}"
    return f", or write `method {other}`" + rows * (METHODS[other].shapes[0] not in METHODS[method].shapes)


@entity
class MethodCheck:
    """Checks the settings of the method in `values`, and adds missing values. Files with rewards are read and copied
    into the bundle.
    """

    loaded: MergedSpec
    values: dict[Path, Value]
    stack: Stack
    read: Callable[[str, str], Read]
    help_for: Callable[[str, str], str]
    keep: Callable[[Read], str]
    problems: Problems

    def run(self) -> None:
        """Report all findings about the method and the adapter."""
        found = self.values.get("method")
        method = DEFAULT if found is None else str(found.value)
        self._of_another_method(method)
        self._adapter()
        loss, rewards = self.values.get("method.loss"), self.values.get("method.rewards")
        if loss is not None and method in BY_PATH["method.loss"].methods:
            self._losses(method, loss)
        for path in ("method.tools", "method.environment"):
            functions = self.values.get(path)
            if functions is not None and method in BY_PATH[path].methods:
                self._functions(path, functions)
        unread = self.loaded.items.get("method.rewards")
        if rewards is not None and method in BY_PATH["method.rewards"].methods:
            self._rewards(rewards)
        elif unread is not None and rewards is None:
            origin = Origin(self.loaded.kinds["method.rewards"], unread.label)
            # another finding already reports an error in this setting
            self.values["method.rewards"] = Value((Weighted(""),), origin)

    def _of_another_method(self, method: str) -> None:
        """Report a setting of another method, which the spec's method does not read. A setting with the value `false`
        is not reported.
        """
        location = self.values.get("method")
        related = () if location is None or location.origin.label is None else (location.origin.label,)
        written = [one for one in self.values if one in self.loaded.items]
        for path in written:
            row, label = BY_PATH[path], self.loaded.items[path].label
            if not row.methods or method in row.methods or self.values[path].value is False:
                continue
            if location is None and "method" in self.loaded.items:
                # the method is unknown and already reported, so nobody knows which settings it reads
                del self.values[path]
                continue
            owners = ", ".join(row.methods)
            others = (one for one in row.methods if all(one in (BY_PATH[path].methods or (one,)) for path in written))
            instead = f"leave `{row.name}` out"
            if path == "batch.seq":
                instead = f"{method} limits rows by `max_prompt` and `max_completion`"
            self.problems.report(
                "XP126",
                f"`{row.name}` is not a setting of {method}",
                evolve(label, text=f"for {owners}"),
                related=related,
                help=instead + _or_write(next(others, None), method),
            )
            del self.values[path]

    def _adapter(self) -> None:
        there = [name for name in ADAPTERS if name in self.values and self.values[name].value is True]
        for one, other in pairwise(there):
            self.problems.report(
                "XP103",
                f"`{one}` and `{other}` cannot be combined: a run has one adapter",
                self.loaded.items[other].label,
                related=(self.loaded.items[one].label,),
                help="keep one of the two",
            )
            del self.values[one]
        bits = self.values.get("lora.bits")
        if bits is not None and bits.value not in (4, 8):
            help = "write `bits = 4`, or `bits = 8`; a base model that is not quantized is `lora` without `bits`"
            self.problems.report("XP107", "a quantized base has 4 or 8 bits", bits.origin.label, help=help)
            del self.values["lora.bits"]

    def _nodes(self, path: str) -> list[tuple[Node | None, Item]]:
        item = self.loaded.items[path]
        nodes = list(item.node.items) if isinstance(item.node, List) else [item.node]
        return [(node, item) for node in nodes]

    def _unknown(self, path: str, at: Label, name: str, known: list[str], more: str = "", method: str = "") -> None:
        # imported only here, because only a wrong spec needs it
        from xpc.compiler.suggest.converted_values import methods_with
        from xpc.compiler.suggest.known_names import known_choice
        from xpc.compiler.suggest.likeness import typo_of
        from xpc.compiler.suggest.no_equivalent import advice, no_such_choice

        why = no_such_choice(BY_PATH[path].name, name)
        advised = advice(f"{BY_PATH[path].name} {name}", "")
        if name == method and advised is None:
            advised = f"leave `loss` out: `method {name}` names it"
        elif method and name in METHODS and name != method and not (advised or "").startswith("write `method"):
            advised = f"write `method {name}`"
        elif method and advised is None and (owners := methods_with(name)):
            advised = f"write `method {owners[0]}(loss={name})`: it is a loss of {', '.join(owners)}"
        near = None if why or advised else known_choice(BY_PATH[path], name, known) or typo_of(name, known)
        begun = [one for one in known if one.startswith(f"{name}_")]
        if len(begun) > 1:  # `loss = apo` may be `apo_zero` or `apo_down`
            near, advised = None, f"write `{'` or `'.join(begun)}`"
        if not near and not why and (ends := [one for one in known if name.startswith(f"{one}_")]):  # `ipo_pair`
            why = f"the nearest is `{ends[0]}`; "
        edits = (Edit(at.span, near),) if near and at.typed == name else ()
        self.problems.report(
            "XP106",
            f"`{name[:60]}` is not a choice of `{BY_PATH[path].name}`",
            evolve(at, text=f"did you mean `{near}`?" if near else ""),
            help=advised or why + (f"write `{near}`" if near else "write one of " + ", ".join(known)) + more,
            edits=edits,
        )

    def _losses(self, method: str, value: Value) -> None:
        known = list(self.stack.losses(method))
        written = value.value
        assert isinstance(written, tuple)
        if not known:
            return  # a rule already reports that the target has no such argument
        for one, (node, item) in zip(written, self._nodes("method.loss"), strict=True):
            if one.name not in known:
                self._unknown("method.loss", _location(item, node), one.name, known, method=method)
                self.values.pop("method.loss", None)
        if not METHODS[method].weighs_losses and (len(written) > 1 or written[0].weight is not None):
            message = f"{method} takes one loss, without a weight"
            self.problems.report("XP104", message, value.origin.label, help=f"write `loss = {written[0].name[:60]}`")
            self.values.pop("method.loss", None)

    def _rewards(self, value: Value) -> None:
        written = value.value
        assert isinstance(written, tuple)
        out: list[Weighted] = []
        for one, (node, item) in zip(written, self._nodes("method.rewards"), strict=True):
            label = _location(item, node)
            if one.name in REWARDS:
                out.append(self._with_arguments(one, label))
            elif ":" in one.name or "/" in one.name or one.name.endswith(".py"):
                out.append(self._function("method.rewards", one, label) or one)
            else:
                # the unknown name is kept, because without any reward a rule would report that the reward is missing
                out.append(one)
                more = ', or name a function of a file: `"rewards.py:' + one.name[:40] + '"`'
                self._unknown("method.rewards", label, one.name, list(REWARDS), more)
        self.values["method.rewards"] = Value(tuple(out), value.origin)

    def _functions(self, path: Path, value: Value) -> None:
        """Copy the files of the tools, or of the environment, into the bundle."""
        written = value.value
        assert isinstance(written, tuple)
        if path == "method.environment" and len(written) > 1:
            message, help = "a run has one environment", f'write `environment = "{written[0].name[:80]}"`'
            self.problems.report("XP104", message, value.origin.label, help=help)
            written = written[:1]
        nodes = self._nodes(path)[: len(written)]
        found = [
            self._function(path, one, _location(item, node)) or one
            for one, (node, item) in zip(written, nodes, strict=True)
        ]
        self.values[path] = Value(tuple(found), value.origin)

    def _with_arguments(self, one: Weighted, label: Label) -> Weighted:
        """Return the built-in reward function with the arguments that it accepts. Any other argument is reported and
        dropped.
        """
        known, kept = REWARD_ARGUMENTS.get(one.name, {}), []
        for name, value in one.arguments:
            kind = known.get(name)
            if kind is None:
                takes = ", ".join(f"`{argument}`" for argument in ("weight", *known))
                message = f"`{one.name}` has no argument `{name[:60]}`"
                self.problems.report("XP104", message, label, help=f"it takes {takes}")
            elif _fits(kind, value):
                kept.append((name, value))
            else:
                shown = {int: "a whole number above 0", float: "a number", str: "a name or a quoted text"}[kind]
                self.problems.report("XP104", f"`{name}` of `{one.name}` takes {shown}", label, help=f"write {shown}")
        return evolve(one, arguments=tuple(kept))

    def _function(self, path: Path, one: Weighted, label: Label) -> Weighted | None:
        """Copy the Python file that `one` names (as in `rewards = ["rewards.py:exact"]`) into the bundle, if the file
        defines the named function or class. Otherwise report an error and return None. The file is parsed and never
        executed.
        """
        name, colon, function = one.name.rpartition(":")
        base = label.source.name if self.loaded.kinds[path] != SPEC else ""
        if not colon or not name.endswith(".py") or not function.isidentifier():
            what, example = FILE_VALUES[path]
            help = f'name a file next to the spec, and a {what} in it, such as `"{example}"`'
            if one.name.endswith(".py"):
                with suppress(Unreadable, ValueError):
                    help = _help_for(one.name, what, _defined(self.read(one.name, base).data)) or help
            function, bracket, arguments = function.partition("(")
            if name.endswith(".py") and function.isidentifier() and bracket and path == "method.rewards":
                help = f'write `file("{name}:{function}", {arguments[:80].removesuffix(")")})`'
            message = f"`{one.name[:80]}` does not name a Python file and a {what} in it"
            self.problems.report("XP107", message, label, help=help)
            return None
        wanted = FILE_VALUES[path][0]
        try:
            read = self.read(name, base)
            defined = _defined(read.data)
        except Unreadable as error:
            help = self.help_for(name, base).replace('.py"', f'.py:{function}"')
            self.problems.report("XP114", str(error), label, help=help)
            return None
        except ValueError as error:
            self.problems.report("XP114", f"`{read.name}` is not Python: {error}", label)
            return None
        if function not in defined:
            near = nearest(function, defined)
            define = f"define `{function}` at the top level of `{name[:80]}`"
            help = f'write `"{name}:{near}"`' if near else _help_for(name, wanted, defined) or define
            self.problems.report("XP114", f"`{name[:80]}` defines no `{function[:60]}`", label, help=help)
            return None
        kind = defined[function]
        if kind not in (None, wanted):
            self.problems.report(
                "XP114",
                f"`{function[:60]}` in `{name[:80]}` is a {kind}, and `{path.rpartition('.')[2]}` takes a {wanted}",
                label,
                help=_help_for(name, wanted, defined) or f"define a {wanted} at the top level of `{name[:80]}`",
            )
            return None
        return evolve(one, file=self.keep(read), function=function, sha256=read.digest)


def _fits(kind: type, value: object) -> bool:
    """Whether a value has the type of an argument. A whole number must also be positive, because all such arguments are
    lengths or counts.
    """
    if kind is str or isinstance(value, bool):
        return kind is str and isinstance(value, str)
    return (isinstance(value, int) and value > 0) if kind is int else isinstance(value, int | float)


def _location(item: Item, node: Node | None) -> Label:
    """The position of a list's element in the spec; for a call, the position of its name."""
    if node is None:
        return item.label
    named = isinstance(node, Call) and node.name.text != "file"
    return Label(item.label.source, node.name.span if isinstance(node, Call) and named else node.span)


def _help_for(name: str, wanted: str, defined: Mapping[str, str | None]) -> str:
    """A help that names up to three public functions (or classes) of a Python file; "" if it defines none."""
    public = [one for one, kind in defined.items() if kind == wanted and not one.startswith("_")]
    written = [f'`"{name[:80]}:{one[:60]}"`' for one in public[:3]]
    return f"write {' or '.join(written)}" if written else ""


def _defined(data: bytes) -> dict[str, str | None]:
    """Map each name that a Python file defines at its top level to its kind: function, class or value, or None if the
    kind is unknown. The file is parsed and never executed. Raises ValueError with the reason if it cannot be parsed.
    """
    import ast

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # do not print Python's warnings about the user's file
            tree = ast.parse(data)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(str(error) or "nested too deep") from None
    names: list[tuple[str, str | None]] = []
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            names.append((node.name, None if node.decorator_list else kind))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [((one.asname or one.name).partition(".")[0], None) for one in node.names]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            bound = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = isinstance(node.value, ast.Constant | ast.Dict | ast.List | ast.Set | ast.Tuple | ast.JoinedStr)
            names += [(one.id, "value" if value else None) for one in bound if isinstance(one, ast.Name)]
        elif isinstance(node, ast.If | ast.Try | ast.With):
            todo += [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt | ast.ExceptHandler)]
        elif isinstance(node, ast.ExceptHandler):
            todo += node.body
    kinds: dict[str, str | None] = {}
    for name, kind_of in names:
        kinds[name] = None if name in kinds else kind_of
    return kinds
