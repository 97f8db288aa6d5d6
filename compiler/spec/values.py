"""The classes `Value` and `Origin`: the value of a setting, and where the value comes from."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.setting import Path
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import record


@record
class Origin:
    """The origin of a value. `kind` is "spec", "base", "default" or "derived". For a value in a spec or its base (an
    extended spec), `label` is its location. For a derived value, `why` is its calculation or its reason.
    """

    kind: str
    label: Label | None = None
    why: str = ""

    def describe(self) -> str:
        """The origin as text for a terminal: `v100.xp:21`, `default`, `derived: 528 / (11 x 8)`."""
        if self.label is not None:
            line, _ = self.label.source.position(self.label.span.start)
            return f"{self.label.source.name}:{line}"
        return self.name

    @property
    def name(self) -> str:
        """The origin as text for a bundle, without a line number, so that a new comment above a setting does not change
        the bundle.
        """
        if self.label is not None:
            return self.label.source.name
        return f"{self.kind}: {self.why}" if self.why else self.kind


@record
class Value:
    """A setting's value and its origin."""

    value: object
    origin: Origin


def of_path(values: Mapping[Path, Value], path: Path) -> Value | None:
    """The value of a setting with its origin, or None. Raises KeyError if `path` is not a setting."""
    found = values.get(path)
    if found is None:
        BY_PATH[path]  # this lookup raises KeyError for an unknown path
    return found


def text_of(values: Mapping[Path, Value], path: Path) -> str | None:
    """The value of a setting, converted to a text, or None if the setting has no value."""
    found = values.get(path)
    return None if found is None else str(found.value)
