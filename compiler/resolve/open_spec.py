"""A spec whose values are not complete yet: the values that are known so far, and notes about assumed values."""

from __future__ import annotations

from xpc.compiler.language.codes import report
from xpc.compiler.language.items import DEFAULT, DERIVED
from xpc.compiler.language.methods import DEFAULT as USUAL
from xpc.compiler.language.methods import METHODS, Method
from xpc.compiler.language.setting import Path
from xpc.compiler.spec.getters import Getters
from xpc.compiler.spec.resources import DataSource, Hardware, Model
from xpc.compiler.spec.values import Origin, Value
from xpc.compiler.stacks import Stack
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import field, mutable


@mutable
class OpenSpec(Getters):
    """The values of a spec that are known so far. Derivations read these values, and set more values in place."""

    values: dict[Path, Value]
    model: Model
    hardware: Hardware
    stack: Stack
    stem: str
    notes: list[Diagnostic]
    data: tuple[DataSource, ...]
    teacher: Model | None = None
    assumed: bool = False
    """Whether the sequence length is assumed, because the spec does not state it."""
    assumptions: dict[Path, Diagnostic] = field(factory=dict)
    """Maps the path of each setting with an assumed value to the note on this value."""

    @property
    def method(self) -> Method:
        """The training method, with all its properties."""
        return METHODS[str(self.get("method") or USUAL)]

    @property
    def replicas(self) -> int:
        """The number of groups of processes that train on different rows. With `context_parallel`, the processes of a
        group train on the same rows; without it, a group is one process.
        """
        return max(1, self.hardware.world // (self.get("strategy.context_parallel") or 1))

    def set(self, path: Path, value: object, why: str, kind: str = DERIVED) -> None:
        """Set the value of a setting, with the reason `why`. `kind` is the origin of the value, such as DERIVED or
        DEFAULT.
        """
        self.values[path] = Value(value, Origin(kind, None, why))

    def default(self, path: Path, value: object, why: str = "") -> None:
        """Set a setting to its default, unless the spec states it."""
        if path not in self.values:
            self.set(path, value, why, DEFAULT)

    def note(self, path: Path, message: str, help: str) -> None:
        """Add a note that the value of a setting is assumed."""
        self.assumptions[path] = report("XP190", message, self.model.label, help=help)
