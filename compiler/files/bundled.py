"""Read the `spec.xp` of a bundle. The names of files in this spec (`file("x")`) refer to the copies in the bundle.

This module is imported only for a spec in a bundle. The spec of a bundle states all settings, also those that the user
left out. `check` and the commands that compare specs read only what the user wrote.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from xpc.compiler.files import bounded_toml
from xpc.compiler.files.folder_contents import parts, read
from xpc.compiler.files.manifest_text import tables
from xpc.compiler.files.workspace import HIDDEN, MAX_TEXT, TEXTS, Workspace, bundle_name, inside_of
from xpc.compiler.files.written import lines, written
from xpc.grammar.record import entity, field
from xpc.grammar.tree import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MANIFEST, SPEC = "bundle.toml", "spec.xp"
COPIED = ("files/", "data/")
"""The folders of a bundle with the copies of files that the spec names."""
PATH = re.compile(r'"((?:files|data)/[^":\n]*)')
"""Matches the path of a copied file in a spec. After the path, the name of a function may follow:
`"files/reward.py:f"`.
"""


@entity
class BundleWorkspace(Workspace):
    """The workspace of a spec in a bundle. `copies_of` maps the names of files in the spec to their copies in the
    bundle.

    A file without a copy, such as a model's folder, is searched for in this order: in the bundle, below `data_root` (as
    in a run), and next to the bundle or its sweep, where the original spec was.
    """

    copies_of: Mapping[str, str] = field(factory=dict)
    data_root: str = ""

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """Return a pair: the name of a file in the spec, and the path of its copy. A file without a copy is searched
        for below `data_root` and next to the bundle.
        """
        name = Workspace.locate(self, written, base)[0]
        copy = self.copies_of.get(name)
        # a lock next to the bundle may be newer, so only the bundle's copy of the lock is used
        if copy is not None or name == self.lock:
            return name, os.path.join(self.root, copy or name)
        inside = os.path.join(self.root, name)
        first = [os.path.join(self.data_root, name)] if self.data_root else []
        locations = [inside, *first, *(os.path.join(one, name) for one in _folders_above(self.root))]
        return name, next((one for one in locations if os.path.lexists(one)), inside)

    def locate_image(self, folder: str, written: str) -> str | None:
        """The path of an image (see Workspace.locate_image). A run looks for images outside of the bundle, because a
        bundle has no copies of them; this function does the same.
        """
        roots = [self.data_root] if self.data_root else []
        locations = [os.path.join(one, folder) for one in (*roots, *_folders_above(self.root))]
        found = next((one for one in locations if os.path.isdir(one)), None)
        return None if found is None else inside_of(found, written)

    def kind(self, written: str, base: str = "") -> str:
        """The kind of a path (see Workspace.kind). A path is also a folder if the bundle has copies of files from
        it.
        """
        return "folder" if self._inside(self.locate(written, base)[0]) else Workspace.kind(self, written, base)

    def walk(self, written: str) -> list[str]:
        """The files of a folder (see Workspace.walk); for a data folder, the copies of its files in the bundle."""
        return self._inside(self.locate(written)[0]) or Workspace.walk(self, written)

    def outside_fault(self, written: str, base: str = "", endings: tuple[str, ...] = TEXTS) -> str:
        """Why a file is refused (see Workspace.outside_fault). A copied file is checked under its name in the spec."""
        name = self.locate(written, base)[0]
        if name not in self.copies_of:
            return Workspace.outside_fault(self, written, base, endings)
        hidden = [one for one in name.split("/") if one.startswith(".") and one != ".."]
        return HIDDEN.format(written) if hidden and name.startswith(("../", "/")) else ""

    def _inside(self, name: str) -> list[str]:
        """The copies of files from the folder `name` of the spec, with names relative to this folder."""
        prefix = name.rstrip("/") + "/"
        return sorted(one[len(prefix) :] for one in self.copies_of if one.startswith(prefix))


def _folders_above(root: str) -> list[str]:
    """The folder that contains the bundle; for a member of a sweep, also the folder that contains the sweep."""
    above = os.path.dirname(root)
    sweep = os.path.dirname(above)
    member = os.path.basename(above) == "members" and os.path.exists(os.path.join(sweep, "sweep.toml"))
    return [above, os.path.dirname(sweep)] if member else [above]


def manifest(folder: str) -> dict[str, dict[str, str]] | None:
    """Read the `bundle.toml` of a folder; None if the compiler did not write one."""
    try:
        return parsed(read(os.path.join(folder, MANIFEST), MAX_TEXT))
    except OSError:
        return None


def parsed(data: bytes) -> dict[str, dict[str, str]] | None:
    """Parse the bytes of a `bundle.toml`; None if the compiler did not write them."""
    found = tables(data)
    if found is None:
        try:
            found = bounded_toml.loads(data.decode())
        except (ValueError, RecursionError):
            return None
    return _own(found)


def _own(table: dict[str, Any]) -> dict[str, dict[str, str]] | None:
    """Return the contents of a manifest unchanged if they have all sections and texts that the compiler writes, and no
    path that leads out of the bundle. Otherwise return None.
    """
    weights = table.get("weights", {})
    if not all(isinstance(part, dict) for part in (*map(table.get, ("bundle", "files", "inputs")), weights)):
        return None
    facts = [table["bundle"].get(name) for name in ("spec", "name", "xpc")]
    names = (*table["files"], *table["inputs"])
    if any("\0" in name for name in names) or any(_leads_out(name) for name in table["files"]):
        return None
    values = (*facts, *table["files"].values(), *table["inputs"].values(), *weights.values())
    return table if all(isinstance(one, str) for one in values) else None


def _leads_out(name: str) -> bool:
    """Whether the name of a file leads out of the bundle, as `../x` does. The name is not trusted, because a bundle may
    come from a stranger.
    """
    return os.path.isabs(name) or any(part in ("", ".", "..") for part in name.split("/"))


def workspace(folder: str, table: Mapping[str, Mapping[str, str]], data_root: str = "") -> BundleWorkspace:
    """Make the workspace of a bundle with the manifest `table`. The workspace searches below `data_root` for files
    without a copy in the bundle.
    """
    # maps (digest, name) to the first copy that has both, and (digest, "") to the first copy with this digest
    copied: dict[tuple[str, str], str] = {}
    for one, digest in table["files"].items():
        if one.startswith(COPIED):
            for last in (os.path.basename(one), ""):
                copied.setdefault((digest, last), one)
    copies = {}
    for name, digest in table["inputs"].items():
        names = (bundle_name(name, digest.removeprefix("sha256:")), os.path.basename(name), "")
        copy = next((copied[digest, last] for last in names if (digest, last) in copied), None)
        # links are refused, because the bundle may come from a stranger
        if copy is not None and not any(os.path.islink(path) for path in parts(folder, copy)):
            copies[name] = copy
    named, allowed = table["bundle"]["spec"], bool(table["bundle"].get("allow_oom"))
    lock = f"{named}.lock"
    return BundleWorkspace(
        os.path.abspath(folder), copies_of=copies, lock=lock, allow_oom=allowed, named=named, data_root=data_root
    )


def as_written(data: bytes, copies_of: Mapping[str, str]) -> bytes:
    """Restore the user's spec from the `spec.xp` of a bundle. Lines that the compiler filled in are dropped, and the
    original names of files are restored.

    A dropped line stays as an empty line, so the other lines keep their numbers.
    """
    text = written(lines(data.decode("utf-8", "surrogateescape")), True)
    return with_original_names(text, copies_of).encode("utf-8", "surrogateescape")


def with_original_names(text: str, copies_of: Mapping[str, str]) -> str:
    """A text of a spec in which the names of copies, such as `"files/reward-1a2b3c4d.py:f"`, are the names of the
    original files. `copies_of` maps original names to copies.
    """
    names = {copy: quoted(name)[:-1] for name, copy in copies_of.items()}
    return PATH.sub(lambda found: names.get(found[1], found[0]), text)
