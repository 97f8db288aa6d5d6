"""A member of a sweep: a single run with its own name, output folder, branch, and name in trackers."""

from __future__ import annotations

from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.setting import Path
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.record import evolve, record

APART = ("save", "track.name", "save.hub.revision")
"""Settings that differ between all members. A comparison of two runs ignores them."""


@record
class Member:
    """One run of a sweep. `name` is the same in every compilation, and `index` counts the members from 0. `settings`
    has a pair for each swept setting: its path, and the text of the member's value.

    If the member has an error, `spec` is None.
    """

    name: str
    index: int
    settings: tuple[tuple[str, str], ...]
    spec: CheckedSpec | None


def plain_name(name: str) -> str:
    """A member's name without `=` and `,`, which are illegal in the name of a branch or of a tracker's run."""
    return name.replace("=", "-").replace("+", "-").replace(",", "_")


def own_folder(save: Value, member: str) -> Value:
    """The output folder of a member, which is inside the sweep's output folder `save`."""
    origin = Origin(save.origin.kind, save.origin.label, "one folder for each member")
    return Value(f"{str(save.value).rstrip('/')}/{member}", origin)


def keep_apart(values: dict[Path, Value], member: str) -> None:
    """Give a member of a sweep its own output folder, run name and branch, by changing `values` in place. If the spec
    states no run name, the run has the name of its bundle, which contains the member's name.
    """
    name, hub = values.get("track.name"), values.get("save.hub")
    values["save"] = own_folder(values["save"], member)
    if name is not None:
        values["track.name"] = Value(f"{name.value}-{plain_name(member)}", name.origin)
    if hub is not None and hub.value is True:
        stated = Origin(hub.origin.kind, hub.origin.label, "one branch for each member")
        values.setdefault("save.hub.revision", Value(plain_name(member), stated))
        repository = values["save.hub.name"]
        # by default, all members share the repository that is named after the folder in the spec's `save`
        if repository.origin.kind not in (SPEC, BASE):
            values["save.hub.name"] = evolve(repository, origin=stated)
