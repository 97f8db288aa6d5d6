"""Find the keys in the emitted files that a setting decides: `optimizer.lr` decides `trainer_args.json
arguments.learning_rate`.

The compiler has no list of these keys. To find them, it lowers the checked spec a second time, with another value of
the setting, and looks for the keys whose values have changed. Derived settings keep their values in the second result.
So a key that depends on the setting only through a derived setting is not found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.lower import emitted
from xpc.compiler.review.tables import PROSE, tables
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.values import Value
from xpc.grammar.record import evolve

TRIES = 4
"""For each setting, at most this many other values are tried."""


class Trace:
    """Finds the emitted keys of one spec that a setting decides."""

    def __init__(self, spec: CheckedSpec) -> None:
        self.spec = spec
        self.files = emitted(spec)
        self.keys = tables(self.files)

    def keys_of(self, path: str) -> list[str]:
        """The keys of the bundle that a setting decides, as `file key = value`. A file without keys is listed by its
        name alone.
        """
        values: Mapping[str, Value] = {str(name): value for name, value in self.spec.values.items()}
        value = values[path]
        out: dict[str, None] = {}
        for other in list(_others(path, value.value))[:TRIES]:
            try:
                spec = evolve(self.spec, values={**values, path: Value(other, value.origin)})
                if path in ("hardware", "nodes"):
                    spec = evolve(spec, hardware=_machines(spec, path))
                files = emitted(spec)
            except (AssertionError, AttributeError, KeyError, LookupError, TypeError, ValueError):
                continue  # this value can be lowered only if another setting changes, too
            out.update(dict.fromkeys(self._different(files)))
        return list({**out, **dict.fromkeys(self._table_arguments(path))})

    def _table_arguments(self, path: str) -> Iterator[str]:
        """The bundle's trainer arguments that the table of settings lists for this setting. The keys of other files can
        be found only by lowering the spec with another value, which is not always possible.
        """
        for name in BY_PATH[path].args:
            here = self.spec.stack.rename(name) or name
            for key, value in self.keys.items():
                if (key + ".").startswith(f"trainer_args.json arguments.{here}."):
                    yield f"{key} = {shown(value)}"

    def _different(self, files: Mapping[str, bytes]) -> Iterator[str]:
        keys = tables(files)
        for key, value in self.keys.items():
            if key not in keys or keys[key] != value:
                yield f"{key} = {shown(value)}"
        tabled = {key.partition(" ")[0] for key in self.keys}
        for name, data in self.files.items():
            if name in tabled or name in PROSE or name.startswith(("trainer/", "files/", "data/")):
                continue
            if files.get(name) != data:
                yield name


def _machines(spec: CheckedSpec, path: str) -> object:
    hardware = spec.hardware
    if path == "nodes":
        return evolve(hardware, nodes=hardware.nodes + 1)
    return evolve(hardware, processes=hardware.processes + 1)


def _others(path: str, value: object) -> Iterator[object]:
    """Other values of the same type as the setting's value, beginning with the nearest ones. They may be illegal: a
    text without a list of choices, such as `adamw`, becomes `adamwx`.
    """
    row = BY_PATH[path]
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value + 1)
    elif isinstance(value, float):
        yield from (value * 1.5 or 0.5, value + 1)
    elif isinstance(value, Amount):
        yield Amount("share", value.value * 0.75) if value.unit == "share" and value.value else Amount("count", 7)
        yield Amount("count", int(value.value) + 1)
    elif isinstance(value, str):
        yield from (one for one in row.choices if one != value)
        if not row.choices and path != "target":
            yield f"{value}x"
    elif isinstance(value, tuple) and value:
        first = value[0]
        if isinstance(first, Weighted) and row.kind.name == "weighted":
            yield (evolve(first, weight=(first.weight or 1) * 2), *value[1:])
        elif isinstance(first, str):
            yield from ((one,) for one in row.choices if (one,) != value)
            yield (*value, "x")
        elif isinstance(first, int | float):
            yield tuple(one * 0.5 + 0.1 for one in value)


def shown(value: object) -> str:
    """A value as JSON."""
    return "unset" if value is None else json.dumps(value)
