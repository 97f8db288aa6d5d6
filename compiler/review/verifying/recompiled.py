"""Compile a bundle's own spec again. This gives the bytes that each file of the bundle should have, including
`bundle.toml` and `sweep.toml`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from xpc.compiler.engines.pin import LIST, pin
from xpc.compiler.files import bundled
from xpc.compiler.files.bundle import sealed
from xpc.compiler.files.digest import shared_digest
from xpc.compiler.files.file_memory import FileMemory
from xpc.compiler.files.folder_contents import read_inside
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.workspace import read_toml
from xpc.compiler.files.written import LENGTH, lines
from xpc.compiler.language.items import BASE, DEFAULT
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.lower import lower
from xpc.compiler.lower.sweep import top_files, value
from xpc.compiler.pipeline import check_text
from xpc.compiler.resolve.image_digests import pictured, with_images
from xpc.compiler.resolve.sweep import PLAIN
from xpc.compiler.resolve.sweep_member import Member, own_folder
from xpc.compiler.resolve.weights import with_weights
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.diagnostic import ERROR, Label
from xpc.grammar.record import evolve
from xpc.grammar.source import Source

DATA_ROOT = "XPC_DATA_ROOT"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
Table = Mapping[str, Mapping[str, str]]
LOOKED = f"{DATA_ROOT} names the folder in which the paths of the models start (default: the folder with the bundle)"


def looked_in(table: Table) -> str:
    """The end of a message about a bundle that does not compile here: where its local models are searched for. Empty if
    it has no local models.
    """
    return f"; {LOOKED}" if "weights" in table else ""


class RecompileError(Exception):
    """Raised if the spec of a bundle, or the list of a sweep's members, has an error. The message is a phrase."""


def recompiled(
    folder: str, table: Table, memory: FileMemory | None, trusted: bool
) -> tuple[CheckedSpec, dict[str, bytes]]:
    """Return a pair: the checked spec of a bundle, and the files that this spec compiles to. `table` is the manifest of
    the bundle. `memory` and `trusted` are passed to `recheck`. Raises RecompileError.
    """
    spec = recheck(folder, table, memory, trusted)
    files = lower(spec)
    stated = table["bundle"].get("spec_digest")
    # the manifest has the digest of the user's spec; the bundle's own spec.xp is another file with another digest
    if stated is not None and DIGEST.fullmatch(stated):
        above = files[bundled.MANIFEST].rpartition(b"# The lines above: ")[0]
        line = f'spec_digest = "{stated}"'.encode()
        files[bundled.MANIFEST] = sealed(re.sub(rb'^spec_digest = "[^"]*"', line, above, count=1, flags=re.MULTILINE))
    return spec, files


def recheck(folder: str, table: Table, memory: FileMemory | None, trusted: bool) -> CheckedSpec:
    """Check the spec of the bundle again, under its original name. Raises RecompileError with the message of the first
    error.

    The digests of the files of local models, and of the images that rows name, are computed. With `trusted`, an
    unchanged file is not read, because `memory` has its digest.
    """
    try:
        data = read_inside(folder, bundled.SPEC)
    except OSError as error:
        raise UsageError(f"{os.path.join(folder, bundled.SPEC)} cannot be read: {error.strerror or error}") from error
    workspace = bundled.workspace(folder, table, os.environ.get(DATA_ROOT, ""))
    text, data = data.decode("utf-8", "surrogateescape"), bundled.as_written(data, workspace.copies_of)
    workspace = evolve(workspace, hashes=True)
    checked = check_text(data, table["bundle"]["spec"], workspace)
    spec = checked.spec
    if spec is None:
        raise RecompileError(next(one.message for one in checked.problems if one.severity == ERROR))
    spec = _with_bases(spec, text)
    above, name = os.path.split(os.path.abspath(folder))
    inside = f"{spec.name}.bundle/members/{name}" if os.path.basename(above) == "members" else ""
    # the compiler, and not the user, wrote this line of spec.xp
    if inside and spec.values["save"].origin.kind == DEFAULT:
        spec = evolve(spec, values={**spec.values, "save": own_folder(spec.values["save"], name)})
    # `memory` is set only after the check above, which must read all rows
    workspace = evolve(workspace, memory=memory, trusts_memory=trusted)
    spec = with_weights(spec, workspace)
    if any(pictured(spec)):
        spec = with_images(spec, workspace, {}, partial(_held, folder) if trusted else None)
    return evolve(spec, name=table["bundle"]["name"], folder=inside, inputs=_with_base_digests(spec, table["inputs"]))


def _held(folder: str, name: str) -> bytes | None:
    """The contents of a file of the bundle; None if it cannot be read."""
    try:
        return read_inside(folder, name)
    except OSError:
        return None


def _with_base_digests(spec: CheckedSpec, stated: Mapping[str, str]) -> dict[str, str]:
    """The digests of all files that the spec reads. The digests of extended specs come from the manifest, because the
    bundle has no copies of these specs.
    """
    bases = {
        name: digest.removeprefix("sha256:")
        for name, digest in stated.items()
        if name.endswith(".xp") and DIGEST.fullmatch(digest)
    }
    return {**bases, **spec.inputs}


def _with_bases(spec: CheckedSpec, text: str) -> CheckedSpec:
    """Return the bundle's spec with the original origins: the origin of a setting from an extended spec is its location
    in the extended spec. In the bundle's spec.xp, a comment at the setting names this location.
    """
    notes = {one.number: one.note.removeprefix(LENGTH) for one in lines(text)}
    bases = {number: Source(note, text) for number, note in notes.items() if note.endswith(".xp")}

    def restored(value: Value) -> Value:
        label = value.origin.label
        if label is None or not bases:
            return value
        source = bases.get(label.source.position(label.span.start)[0])
        return (
            value if source is None else evolve(value, origin=Origin(BASE, Label(source, label.span), value.origin.why))
        )

    values = {path: restored(value) for path, value in spec.values.items()}
    extra = {one: {name: restored(value) for name, value in table.items()} for one, table in spec.extra.items()}
    return evolve(spec, values=values, extra=extra)


def sweep_files(folder: str, members: Mapping[str, tuple[CheckedSpec, Mapping[str, bytes]]]) -> dict[str, bytes]:
    """Return the files that a sweep's folder should contain, apart from the folder `members/`, by name. `members` are
    in the order of sweep.toml. Raises RecompileError.
    """
    table = read_toml(os.path.join(folder, "sweep.toml"))
    try:
        assert table is not None
        head, listed = table["sweep"], table["member"]
        title, source, digest = (head[key] for key in ("name", "spec", "spec_digest"))
        stated = [(one["name"], one["settings"]) for one in listed]
        assert all(isinstance(one, str) for one in (title, source, digest))
        assert DIGEST.fullmatch(digest)
        assert all(isinstance(name, str) and set(settings) <= {*BY_PATH, "model"} for name, settings in stated)
    except (AssertionError, AttributeError, KeyError, TypeError):
        raise RecompileError("is not a list of members") from None
    if sorted(name for name, _ in stated) != sorted(members):
        raise RecompileError("its list of members differs from the folders")
    if {members[name][0].source.name for name, _ in stated} != {source}:
        raise RecompileError(f"it names the spec {source}, and its members name another spec")
    made = [
        Member(name, index, tuple((path, "") for path in settings), members[name][0])
        for index, (name, settings) in enumerate(stated)
    ]
    misnamed = next((one for one in made if not _agrees(one)), None)
    if misnamed is not None:
        raise RecompileError(f"the settings of {misnamed.name} do not match its name")
    pins = {name: pin(members[name][1][LIST]) for name, _ in stated}
    digests = [shared_digest(members[name][1][bundled.MANIFEST]) for name, _ in stated]
    first = evolve(made[0].spec, name=title, folder="") if made[0].spec is not None else None
    assert first is not None
    return top_files(first, made, digests, pins, digest)


def _agrees(member: Member) -> bool:
    """Whether a member has the name and the output folder that follow from its settings. A setting whose value can be
    written in several ways is not compared.
    """
    spec = member.spec
    if spec is None:
        return False
    if not spec.text("save").endswith("/" + member.name):
        return False
    parts: Sequence[str] = member.name.split(",")
    for path, _ in member.settings:
        row: Any = BY_PATH.get(path)
        if path != "model" and row.kind.name in PLAIN and row.kind.name != "flag" and len(member.name) < 100:
            shown = value(member, path)
            own = [one for one in parts if one.partition("=")[0] in (path, path.rpartition(".")[2])]
            if own and own[0].partition("=")[2] != shown and shown.isalnum():
                return False
    return True
