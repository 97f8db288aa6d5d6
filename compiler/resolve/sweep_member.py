"""One run of a sweep: its name, and its own folder, tracker name and branch."""

from __future__ import annotations

from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.setting import Path
from xpc.compiler.spec import CheckedSpec, Origin, Value
from xpc.grammar.record import evolve, record

APART = ("save", "track.name", "save.hub.revision")
"""Settings that differ in every member, and so do not make two runs different."""


@record
class Member:
    """One run of a sweep: its stable name, its number from 0, the value of every swept setting as names show it.

    `spec` is None if there is an error; its problems and silences are this member's own.
    """

    name: str
    index: int
    settings: tuple[tuple[str, str], ...]
    spec: CheckedSpec | None


def plain_name(name: str) -> str:
    """A member's name without `=` and `,`: for a branch or a run's name."""
    return name.replace("=", "-").replace("+", "-").replace(",", "_")


def keep_apart(values: dict[Path, Value], member: str) -> None:
    """Give a member of a sweep a folder, a name and a branch of its own; `values` are changed in place.

    A run without a written name is named after its bundle, whose name contains the member's.
    """
    save, name, hub = values["save"], values.get("track.name"), values.get("save.hub")
    origin = Origin(save.origin.kind, save.origin.label, "one folder for each member")
    values["save"] = Value(f"{str(save.value).rstrip('/')}/{member}", origin)
    if name is not None:
        values["track.name"] = Value(f"{name.value}-{plain_name(member)}", name.origin)
    if hub is not None and hub.value is True:
        stated = Origin(hub.origin.kind, hub.origin.label, "one branch for each member")
        values.setdefault("save.hub.revision", Value(plain_name(member), stated))
        repository = values["save.hub.name"]
        if repository.origin.kind not in (
            SPEC,
            BASE,
        ):  # the last part of `save` as the spec has it
            values["save.hub.name"] = evolve(repository, origin=stated)
