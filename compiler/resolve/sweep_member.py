"""One run of a sweep: what it is called, and what keeps it apart from the others."""

from __future__ import annotations

from xpc.compiler.language.items import DERIVED
from xpc.compiler.language.setting import Path
from xpc.compiler.spec import CheckedSpec, Origin, Value
from xpc.grammar.record import record

APART = ("save", "track.name", "save.hub.revision")
"""What is another in every member, so that it does not tell two runs apart."""


@record
class Member:
    """One run of a sweep: its stable name, its number from 0, the value of every swept setting as names show it.

    `spec` is None where an error stands; its problems and silences are this member's own.
    """

    name: str
    index: int
    settings: tuple[tuple[str, str], ...]
    spec: CheckedSpec | None


def plain_name(name: str) -> str:
    """A member's name where `=` and `,` are not at home: a branch, the name of a run."""
    return name.replace("=", "-").replace("+", "-").replace(",", "_")


def keep_apart(values: dict[Path, Value], member: str) -> None:
    """Give a member of a sweep a folder, a name and a branch of its own; `values` are changed in place.

    A run whose name is not written is called like its bundle, which has the member's name in it.
    """
    save, name, hub = values["save"], values.get("track.name"), values.get("save.hub")
    origin = Origin(save.origin.kind, save.origin.label, "a folder a member")
    values["save"] = Value(f"{str(save.value).rstrip('/')}/{member}", origin)
    if name is not None:
        values["track.name"] = Value(f"{name.value}-{plain_name(member)}", name.origin)
    if hub is not None and hub.value is True and "save.hub.revision" not in values:
        values["save.hub.revision"] = Value(plain_name(member), Origin(DERIVED, None, "the member of the sweep"))
