"""One run of a sweep, with its own name, folder, tracker name and branch."""

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
    """One run of a sweep: its stable name, its number from 0, and the text of every swept setting's value.

    `spec` is None after an error; `problems` and `silences` belong to this member only.
    """

    name: str
    index: int
    settings: tuple[tuple[str, str], ...]
    spec: CheckedSpec | None


def plain_name(name: str) -> str:
    """A member's name with `=` and `,` removed, so that it can name a branch or a tracker's run."""
    return name.replace("=", "-").replace("+", "-").replace(",", "_")


def own_folder(save: Value, member: str) -> Value:
    """The output folder of a member, below the sweep's output folder."""
    origin = Origin(save.origin.kind, save.origin.label, "one folder for each member")
    return Value(f"{str(save.value).rstrip('/')}/{member}", origin)


def keep_apart(values: dict[Path, Value], member: str) -> None:
    """Give a member of a sweep its own folder, run name and branch, by changing `values` in place. If the spec states
    no run name, the run is named after its bundle, whose name contains the member's name.
    """
    name, hub = values.get("track.name"), values.get("save.hub")
    values["save"] = own_folder(values["save"], member)
    if name is not None:
        values["track.name"] = Value(f"{name.value}-{plain_name(member)}", name.origin)
    if hub is not None and hub.value is True:
        stated = Origin(hub.origin.kind, hub.origin.label, "one branch for each member")
        values.setdefault("save.hub.revision", Value(plain_name(member), stated))
        repository = values["save.hub.name"]
        # if no repository is written, the name comes from the folder in the spec's own `save`
        if repository.origin.kind not in (SPEC, BASE):
            values["save.hub.name"] = evolve(repository, origin=stated)
