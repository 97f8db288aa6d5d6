"""The class `Getters`: the typed getters of a `Spec`, and the locations of its settings."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.schema import ADAPTERS
from xpc.compiler.language.setting import (
    AmountPath,
    FlagPath,
    IntegerPath,
    NamesPath,
    Path,
    RealPath,
    RealsPath,
    TextPath,
    WeightedPath,
)
from xpc.compiler.spec.resources import Model
from xpc.compiler.spec.values import Value, of_path
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import overload


class Getters:
    """Reads the fields `values` and `model` of a `Spec`. A getter for one type, such as `integer`, raises TypeError for
    a setting of another type, or without a value.
    """

    values: Mapping[Path, Value]
    model: Model

    if TYPE_CHECKING:

        @overload
        def get(self, path: FlagPath) -> bool | None: ...
        @overload
        def get(self, path: IntegerPath) -> int | None: ...
        @overload
        def get(self, path: RealPath) -> float | None: ...
        @overload
        def get(self, path: TextPath) -> str | None: ...
        @overload
        def get(self, path: AmountPath) -> Amount | None: ...
        @overload
        def get(self, path: Path) -> object: ...

    def get(self, path: Path) -> object:
        """The value of a setting, or None if it has no value. Raises KeyError if `path` is not a setting."""
        found = of_path(self.values, path)
        return None if found is None else found.value

    def written(self, path: Path) -> bool:
        """Whether the spec, or a spec that it extends, states a setting. Raises KeyError if `path` is no setting."""
        found = of_path(self.values, path)
        return found is not None and found.origin.kind in (SPEC, BASE)

    def label(self, path: Path, text: str = "") -> Label | None:
        """The location of a setting in the spec, as a label with the given text; None if the spec does not state the
        setting.
        """
        found = of_path(self.values, path)
        return None if found is None or found.origin.label is None else evolve(found.origin.label, text=text)

    def location(self, path: Path, text: str = "") -> Label:
        """The location of a setting (see `label`) or, if the spec does not state it, of the model in the `train`
        line.
        """
        return self.label(path, text) or evolve(self.model.label, text=text)

    def flag(self, path: FlagPath) -> bool:
        """The value of a flag. A flag without a value is false. Raises TypeError for a setting of another kind."""
        value = self.get(path)
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{path} is {value!r}, not a flag")
        return value is True

    def integer(self, path: IntegerPath) -> int:
        """The value of a setting that is a whole number. Raises TypeError for anything else."""
        value = self.get(path)
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{path} is {value!r}, not a whole number")
        return value

    def real(self, path: RealPath) -> float:
        """The value of a setting that is a number. Raises TypeError for anything else."""
        value = self.get(path)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"{path} is {value!r}, not a number")
        return float(value)

    def text(self, path: TextPath) -> str:
        """The value of a setting that is a text. Raises TypeError for anything else."""
        value = self.get(path)
        if not isinstance(value, str):
            raise TypeError(f"{path} is {value!r}, not a text")
        return value

    def amount(self, path: AmountPath) -> Amount:
        """The value of a setting that is an `Amount`, such as `3%` or `100` steps. Raises TypeError for anything
        else.
        """
        value = self.get(path)
        if not isinstance(value, Amount):
            raise TypeError(f"{path} is {value!r}, not an amount")
        return value

    def reals(self, path: RealsPath) -> tuple[float, ...]:
        """The value of a setting that is a list of numbers. Raises TypeError for anything else."""
        value = self.get(path)
        if not isinstance(value, tuple):
            raise TypeError(f"{path} is {value!r}, not a list")
        return tuple(float(item) for item in value)

    def names(self, path: NamesPath) -> tuple[str, ...]:
        """The value of a setting that is a list of names; empty if it has no value."""
        value = self.get(path)
        return tuple(map(str, value)) if isinstance(value, tuple) else ()

    def weighted(self, path: WeightedPath) -> tuple[Weighted, ...]:
        """The value of a setting that is a list of losses or reward functions; empty if it has no value."""
        value = self.get(path)
        return value if isinstance(value, tuple) else ()

    @property
    def lora(self) -> bool:
        """Whether the run trains adapters of any kind, over a quantized or an unquantized base."""
        return any(self.flag(name) for name in ADAPTERS)

    @property
    def adapter(self) -> FlagPath:
        """The path of the flag that turns on the run's adapters, such as `qlora`. For a run without adapters, it is
        `lora`.
        """
        return next((name for name in ADAPTERS if self.flag(name)), "lora")
