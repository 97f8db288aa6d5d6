"""Convert the arguments of a script's calls to configuration entries under TRL's names, with file and line."""

from __future__ import annotations

from xpc.compiler.importing.python.interpreter.functions import is_library
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Location,
    Name,
    Object,
    Scalar,
    Table,
    Text,
    Unknown,
    Unset,
)
from xpc.compiler.importing.text.entries import MAX_DEPTH, Entry, Unreadable, checked
from xpc.grammar.record import field, mutable

MOST = 2_000
"""The largest number of values, including nested values, in an argument."""
NAMED = ("model_name_or_path", "tokenizer_name_or_path", "dataset_name")
"""Arguments that every run needs: an unset environment variable as their value is an error."""


@mutable
class Entries:
    """The arguments of a run.

    `values` are the arguments whose values could be read, under TRL's names. `problems` are the other arguments, each
    with the reason. `unset` are arguments whose values are environment variables that are not set. `others` are
    arguments of the trainer, model and tokenizer that TRL's configuration does not have, with names such as
    `tokenizer.pad_token`. `own` are fields of the script's own classes. `old` is true if the trainer takes arguments of
    older TRL versions. `command_line` is true if the arguments come from the command line.
    """

    values: dict[str, Entry] = field(factory=dict)
    problems: list[tuple[Entry, str]] = field(factory=list)
    own: dict[str, Entry] = field(factory=dict)
    others: list[tuple[str, Argument]] = field(factory=list)
    unset: list[tuple[Entry, str]] = field(factory=list)
    old: bool = False
    command_line: bool = False
    config: Object | None = None

    def add(self, name: str, given: Argument, own: bool = False) -> None:
        """Add an argument. If its value is unknown, add a problem."""
        if name == "model_init_kwargs" and isinstance(given.value, dict):
            given = Argument(_other_arguments(given.value), given.location)
        why = unread(given.value)
        location = given.location
        if name.startswith("**"):
            self.problem("**", given.value, "arguments", location)
        elif isinstance(given.value, Unset) and name not in NAMED:
            self.values[name] = location.entry(name)
            self.unset.append((self.values[name], given.value.why))
        elif own:
            self.own[name] = location.entry(name)
        elif why:
            at = given.value.location if isinstance(given.value, Unknown) else location
            line = "" if at == location else f" ({at})"
            self.problems.append((location.entry(name), f"its value is not known: {why}{line}"))
            self.values.pop(name, None)
        else:
            self.values[name] = entry(name, given)

    def problem(self, name: str, value: object, what: str, location: Location | None = None) -> None:
        """Add a problem: the value of the argument `name` cannot be read."""
        at = value.location if isinstance(value, Unknown) else location
        why = value.why if isinstance(value, Unknown) else "it is not read"
        if at is not None:
            self.problems.append((at.entry(name), f"{what}: {why}"))


def _other_arguments(table: dict[object, object]) -> Table:
    """The arguments of a model without its BitsAndBytesConfig, which is imported separately, and without an unknown
    `use_cache`, which has no effect in training.
    """
    kept = {
        key: one
        for key, one in table.items()
        if (key != "use_cache" or not unread(one))
        and not (key == "quantization_config" and isinstance(one, Object) and one.last == "BitsAndBytesConfig")
    }
    return Table(kept, getattr(table, "locations", {}))


def unread(value: object, depth: int = 0, left: list[int] | None = None) -> str:
    """Why a value, or a value nested in it, is unknown; "" if everything is known."""
    left = [MOST] if left is None else left
    left[0] -= 1
    if left[0] < 0 or depth > MAX_DEPTH:
        return "it has too many values"
    if isinstance(value, Unknown):
        return value.why
    if isinstance(value, list | tuple):
        return next((why for one in value if (why := unread(one, depth + 1, left))), "")
    if isinstance(value, dict):
        return next((why for one in value.values() if (why := unread(one, depth + 1, left))), "")
    if isinstance(value, Name) and not (is_library(value.path) and (value.last.isupper() or _is_torch(value))):
        return f"`{value.path}` is in a module that the import does not read"
    if isinstance(value, Text):
        return "a part of the text is computed at run time"
    if isinstance(value, str) and "\0" in value:
        return "it contains a NUL character"
    return "" if isinstance(value, (*Scalar, Name)) else "the script computes it"


def _is_torch(name: Name) -> bool:
    return name.path.startswith("torch.")


def entry(key: str, given: Argument) -> Entry:
    """Make a configuration entry of an argument. If the value of the argument is unknown, the value of the entry is
    None.
    """
    location = given.location
    if unread(given.value):
        return location.entry(key)
    return _entry(key, given.value, location)


def _entry(key: str, value: object, location: Location) -> Entry:
    if isinstance(value, dict):
        locations = value.locations if isinstance(value, Table) else {}
        inside = {str(name): _entry(f"{key}.{name}", one, locations.get(name, location)) for name, one in value.items()}
        return location.entry(key, inside)
    if isinstance(value, list | tuple):
        return location.entry(key, [_entry(f"{key}[{n}]", one, location) for n, one in enumerate(value)])
    if isinstance(value, Name):
        last = value.last
        # the members of most enumerations are written in lowercase, but not `TaskType.CAUSAL_LM`
        kept = _is_torch(value) or key == "lora_task_type" or not last.isupper()
        return location.entry(key, last if kept else last.lower())
    try:
        return location.entry(key, checked(value, location.line))
    except Unreadable:
        return location.entry(key)
