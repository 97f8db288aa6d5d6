"""One run of a sweep (a member), with its own name, output folder, tracker name and branch."""

from __future__ import annotations

from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.setting import Path
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.record import evolve, record

APART = ("save", "track.name", "save.hub.revision")
"""Settings that differ in every member, so they are ignored when two runs are compared."""


@record
class Member:
    """One run of a sweep: its stable name, its number from 0, and for every swept setting the text of its value.

    `spec` is None after an error; `problems` and `silences` are those of this member only.
    """

    name: str
    index: int
    settings: tuple[tuple[str, str], ...]
    spec: CheckedSpec | None


def plain_name(name: str) -> str:
    """A member's name without `=` and `,`, so that a branch or a tracker's run can have this name."""
    return name.replace("=", "-").replace("+", "-").replace(",", "_")


def own_folder(save: Value, member: str) -> Value:
    """The output folder of a member, which is inside the sweep's output folder `save`."""
    origin = Origin(save.origin.kind, save.origin.label, "one folder for each member")
    return Value(f"{str(save.value).rstrip('/')}/{member}", origin)


def keep_apart(values: dict[Path, Value], member: str) -> None:
    """Give a member of a sweep its own output folder, run name and branch. `values` is changed in place. If the spec
    states no run name, the run gets the name of its bundle, which contains the member's name.
    """
    name, hub = values.get("track.name"), values.get("save.hub")
    values["save"] = own_folder(values["save"], member)
    if name is not None:
        values["track.name"] = Value(f"{name.value}-{plain_name(member)}", name.origin)
    if hub is not None and hub.value is True:
        stated = Origin(hub.origin.kind, hub.origin.label, "one branch for each member")
        values.setdefault("save.hub.revision", Value(plain_name(member), stated))
        repository = values["save.hub.name"]
        # by default, the repository is named after the folder in the spec's `save`, not the member's
        if repository.origin.kind not in (SPEC, BASE):
            values["save.hub.name"] = evolve(repository, origin=stated)
