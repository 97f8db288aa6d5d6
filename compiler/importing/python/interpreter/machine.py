"""The state of the interpreter for one script. `Machine` passes each expression, statement and call to the function for
its kind.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.branches import Journal
from xpc.compiler.importing.python.interpreter.source import Part
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Function,
    Location,
    Name,
    Object,
    Unknown,
    Unset,
    Words,
)
from xpc.compiler.importing.text.entries import Entry, Unreadable
from xpc.grammar.record import field, record

if TYPE_CHECKING:
    from typing import Any

Arguments = list[Argument]
Keywords = dict[str, Argument]
MAX_STEPS = 200_000
"""The largest number of steps that a script may take. Each evaluation of an expression or a statement is one step; a
long value costs additional steps (`charge`).
"""
PER_STEP, ENTRIES_PER_STEP = 64, 16
"""A long value costs one step for every 64 characters or list items, or for every 16 entries of a dict."""
MAX_DEPTH = 60
"""The largest depth of nested expressions and calls."""
TRUE = ("1", "true", "yes", "on")
"""Values of `--set` that mean true."""
IMAGES = re.compile(r"vision|multi_?modal|image|pixel_values|(?:\b|_)vlm")
"""Matches conditions that test whether the model reads images, such as `config.model_type in vision_models`."""
PRESENT = "<present>"
"""The value of a flag that is present in the command, such as `--packing`."""
RETURN, STOP, LOOP = "return", "stop", "loop"
"""The ways in which a block of statements can end early: RETURN by `return`, STOP by an exception or an exit, LOOP by
`break` or `continue`.
"""


@record
class Semantics:
    """The functions that interpret a script: one for each kind of expression, one for each kind of statement, and one
    for calls. A statement's function returns a word such as RETURN if the statement ends its block early, and otherwise
    "".
    """

    expressions: Mapping[type, Callable[[Machine, Any], object]]
    statements: Mapping[type, Callable[[Machine, Any], str | None]]
    call: Callable[[Machine, object, list[Argument], dict[str, Argument], ast.AST], object]


@record
class Defaulted:
    """A parameter (`name`) of a script's function that no call passes. Its value is an object of its annotated class
    (`kind`), with the class's defaults.
    """

    name: str
    kind: str
    location: Location


@record
class Replaced:
    """An assignment `owner.name = value`, whose owner is a library or an object of a library, such as a model's
    layer.
    """

    owner: Object | Name
    name: str
    value: object
    location: Location


@record
class Command:
    """The command that starts a script.

    - `arguments`: the command's arguments
    - `used`: receives the names of the arguments that the script reads
    - `declared`: receives the defaults that the script's own classes give to arguments of TRL
    - `environment`: the environment variables that the script sees
    """

    arguments: Mapping[str, Entry]
    used: set[str] = field(factory=set)
    declared: dict[str, Entry] = field(factory=dict)
    environment: Mapping[str, Entry] = field(factory=dict)


class Machine:
    """The state of an interpreted script: its scopes, the recorded calls of library functions, and the trainers whose
    `train` it calls.
    """

    def __init__(
        self,
        semantics: Semantics,
        read: Callable[[str], bytes | None],
        gpu_has_bf16: bool = True,
        given: Mapping[str, str] | None = None,
        command: Command | None = None,
    ) -> None:
        self.semantics = semantics
        self.read = read
        self.given = given or {}
        self.command = command
        self.gpu_has_bf16 = gpu_has_bf16
        self.steps = 0
        self.depth = 0
        self.nesting = 0
        self.following: list[Function] = []
        self.label = ""
        self.main: dict[str, object] = {"__name__": "__main__"}
        self.scopes: list[dict[str, object]] = [self.main]
        self.modules: dict[str, dict[str, object]] = {}
        self.texts: dict[str, str] = {}
        self.journal = Journal()
        self.returned: list[list[object]] = []
        self.row_loops: list[object] = []
        self.row_functions = 0
        self.assumed_conditions: dict[Location, bool] = {}
        self.undecided: dict[Location, list[Location]] = {}
        self.text_only: list[Location] = []
        self.conditions: dict[Location, str] = {}
        self.forks: list[list[Location]] = []
        self.unset: dict[str, Location] = {}
        self.tested: dict[Location, str] = {}
        self.saved: set[str] = set()
        self.packages: dict[str, None] = {}
        self.gpus = 1
        self.not_called = False
        self.defaulted: list[Defaulted] = []
        self.calls: list[Object] = []
        self.trained: list[Object] = []
        self.repeated: list[Location] = []
        self.functions: list[Function] = []
        self.stored: dict[str, object] = {}
        self.commands: dict[int, dict[str, Function]] = {}
        self.command_line: list[Location] = []
        self.environment: dict[str, Argument] = {
            name: Argument(one.value, Location(one.file, one.line))
            for name, one in (command.environment if command is not None else {}).items()
        }
        self.filters: list[tuple[Location, Location | None]] = []
        self.assumed: list[Location] = []
        self.parameters: list[tuple[Location, Object]] = []
        self.replaced: list[Replaced] = []
        self.inner_changes: list[Location] = []

    def changed_inside(self, location: Location) -> None:
        """Record that a function over rows changes a part of a column in place, as in `row["chosen"][0]["content"] =
        text`, because the interpreter represents only complete columns.
        """
        if self.row_functions or self.row_loops:
            self.inner_changes.append(location)

    def filter_rows(self, location: Location) -> None:
        """Record that a condition in a loop skips rows, with the location of the loop's file or dataset if this is
        known.
        """
        self.filters.append((location, functions.read_from(self.row_loops[-1])))

    def walk(self, parts: list[Part], scope: dict[str, object]) -> None:
        """Interpret a file, or the cells of a notebook, in one scope."""
        self.scopes = [scope]
        for part in parts:
            self.label = part.label
            self.texts[part.label] = part.text
            self.block(part.tree.body)

    def block(self, body: list[ast.stmt]) -> str:
        """Interpret statements one after another. Returns how the block ends early, such as RETURN, or ""."""
        for one in body:
            self.count(one)
            statement = self.semantics.statements.get(type(one))
            ends = None if statement is None else statement(self, one)
            if ends:
                return ends
        return ""

    def evaluate(self, node: ast.expr) -> object:
        """Evaluate an expression. Raises Unreadable if the script needs too many steps."""
        self.count(node)
        if self.depth > MAX_DEPTH:
            return self.unknown(node, "it is nested too deeply")
        evaluated = self.semantics.expressions.get(type(node))
        if evaluated is None:
            return self.unknown(node, "the import does not read such an expression")
        self.depth += 1
        try:
            value = evaluated(self, node)
            self.charge(value)
            return value
        finally:
            self.depth -= 1

    def charge(self, value: object) -> None:
        """Count a long value as several steps, to limit the time for building, comparing and storing long values."""
        if isinstance(value, str | list | tuple):
            self.steps += len(value) // PER_STEP
        elif isinstance(value, dict):
            self.steps += len(value) // ENTRIES_PER_STEP

    def call(
        self, function: object, positional: list[Argument], keywords: dict[str, Argument], node: ast.AST
    ) -> object:
        """Call a value. A function of the script is interpreted; a call of a library's function is computed or
        recorded.
        """
        return self.semantics.call(self, function, positional, keywords, node)

    def count(self, node: ast.AST, steps: int = 1) -> None:
        """Add to the number of steps. Raises Unreadable if it exceeds the limit."""
        self.steps += steps
        if self.steps + self.journal.copied // PER_STEP > MAX_STEPS:
            raise Unreadable(f"interpreting it takes more than {MAX_STEPS} steps", getattr(node, "lineno", 0))

    def location(self, node: ast.AST) -> Location:
        """The file and line of a syntax node."""
        return Location(self.label, getattr(node, "lineno", 0))

    def test_path(self, path: object, node: ast.AST) -> None:
        """Record a path whose existence a condition tests, if it does not exist here."""
        if isinstance(path, str):
            self.tested[self.location(node)] = path

    def unknown(self, node: ast.AST, why: str, hidden: object = None) -> Unknown:
        """Make an unknown value for a syntax node. `why` is the reason, and `hidden` is the value from which it was
        computed.
        """
        return Unknown(why, self.location(node), hidden)

    def inherited(self, node: ast.AST, why: str, value: object) -> Unknown:
        """Make an unknown value that was computed from `value`, with the reason of an unknown `value`, and otherwise
        with the reason `why`.
        """
        return (
            Unknown(value.why, value.location, value) if isinstance(value, Unknown) else self.unknown(node, why, value)
        )

    def assumed_truth(self, node: ast.AST, text: str, value: object = None) -> bool | None:
        """The outcome that `--set FILE:LINE=yes` or `--partial` gives to a condition with an unknown outcome. None if
        neither does, or for a condition about rows; both branches are then interpreted. `value` is the condition's
        unknown value.
        """
        if self.row_loops or self.row_functions:
            return None
        location = self.location(node)
        if isinstance(value, Unknown) and value.location in self.tested:
            # the condition is a variable with the result of a test, as in `found = path.exists()`
            self.tested[location] = self.tested[value.location]
        self.conditions[location] = text
        stated = self.given.get(f"{posixpath.basename(location.file)}:{location.line}")
        if stated is not None:
            return stated.lower() in TRUE
        if location in self.assumed_conditions:
            return self.assumed_conditions[location]
        if IMAGES.search(text.lower()) and " not " not in text:
            # a condition about images: assume the outcome for a model that reads only text
            self.text_only.append(location)
            return text.startswith("not ")
        self.undecided[location] = [location]
        return None

    @contextmanager
    def over_rows(self) -> Iterator[None]:
        """A context for interpreting a function over rows, in which no outcome of a condition is assumed, because it
        depends on the row.
        """
        self.row_functions += 1
        try:
            yield
        finally:
            self.row_functions -= 1

    def command_words(self, node: ast.AST) -> list[object]:
        """Compute `sys.argv`: the script's name, and the command's positional arguments."""
        self.command_line.append(self.location(node))
        return Words([self.label.rpartition(" cell ")[0] or self.label, *self.positional_words()])

    def positional_words(self) -> list[str]:
        """The positional arguments of the command. `--set 1=VALUE`, `--set 2=VALUE` and so on can state them, too."""
        count = 1
        while str(count) in self.given:
            count += 1
        self.use(*map(str, range(1, count)))
        return [self.given[str(n)] for n in range(1, count)]

    def option(self, name: str) -> str | None:
        """The value that the command gives to an option; None if the command does not contain the option."""
        self.use(name)
        return self.given.get(name)

    def use(self, *names: str) -> None:
        """Record arguments of the command that the script reads."""
        if self.command is not None:
            self.command.used.update(names)

    def taken_as_empty(self, value: object) -> None:
        """Record that a condition depends on an unset environment variable, which the interpreter assumes to be
        empty.
        """
        if isinstance(value, Unset):
            self.unset.setdefault(value.why, value.location)

    def lookup(self, name: str, node: ast.AST) -> object:
        """Look up a variable in the scopes, from the innermost one outwards, and then among Python's built-in
        functions.
        """
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        if name in functions.BUILTINS:
            return Name(name)
        if name == "__file__":
            return self.label.rpartition(" cell ")[0] or self.label
        return self.unknown(node, f"`{name}` is not defined in the script")

    def define(self, name: str, value: object) -> None:
        """Set a variable in the current scope. After `global`, it is set in the scope of the module."""
        declared = self.scopes[0].get("<global>")
        outer = isinstance(declared, list) and name in declared
        scope: MutableMapping[object, object] = self.scopes[-1 if outer else 0]  # type: ignore[assignment]
        self.journal.write(scope, name, value)

    def variable(self, key: object, default: object, node: ast.AST) -> object:
        """Compute `os.environ.get(key, default)`. It is the value that the script or the command sets, or else the
        default.
        """
        if isinstance(key, str) and key in self.environment:
            return self.environment[key].value
        if isinstance(key, str) and key in self.given:
            return self.given[key]
        if default is not None:
            return default
        name = key if isinstance(key, str) else ""
        return Unset(f"the environment variable {name} decides", self.location(node))
