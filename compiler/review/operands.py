"""Read an argument of `xpc diff`, and find its runs. The argument is a spec, a spec of a commit, a bundle, or the
folder of a sweep.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

from xpc.compiler.engines.pin import LIST
from xpc.compiler.files import bundled
from xpc.compiler.files.bundle_digests import BundleTree, bundle_tree, files_at_top, read_regular
from xpc.compiler.files.digest import shared_digest
from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.files.workspace import Workspace, read_toml
from xpc.compiler.lower import emitted
from xpc.compiler.lower.sweep import named, starters, value
from xpc.compiler.pipeline import Checked, check_text
from xpc.compiler.resolve.image_digests import Known, pictured, with_images, with_listed
from xpc.compiler.resolve.weights import model_paths
from xpc.compiler.review.differences.files import is_prose
from xpc.compiler.review.repository import find
from xpc.compiler.review.revision import at_revision, is_revision
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve, record

MANIFEST = 64 * 2**20
"""Maximum size in bytes of the file that lists a sweep's members."""
PROGRAM, NO_BYTECODE = "trainer/main.py", b"sys.pycache_prefix = "
"""The program of a run, and the beginning of its line that keeps Python from reading bytecode in the bundle."""
DIGEST = re.compile(rb"[0-9a-f]{64}")
FOREIGN = "a folder that the compiler did not write; it is not compared"
UNLISTED = "a folder that is not a member of the sweep; it is not compared"


class DoesNotCompile(Exception):
    """Raised if a member in a sweep's folder does not compile. `operand` contains the errors."""

    def __init__(self, operand: Operand) -> None:
        self.operand = operand


class Run:
    """One run of an argument of `xpc diff`. `name` is empty unless the run is a member of a sweep.

    If the files of the run are on disk, `tree` lists them. If the run is a member in a sweep's folder, its spec is
    checked when `spec` is first read. This may raise DoesNotCompile.
    """

    def __init__(
        self, name: str, checked: CheckedSpec | None, tree: BundleTree | None = None, unchanged: Collection[str] = (),
        model_paths: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`unchanged` are the files of the bundle that nobody has edited. Their contents come from compiling the spec
        again, and not from the disk: the comparison may use another file name for the spec, and some files contain this
        name.

        For a run that is not on disk, `model_paths` maps the files of local models to their paths.
        """
        self.name, self.checked, self.tree, self.unchanged = name, checked, tree, unchanged
        self.model_paths = model_paths or {}

    @cached_property
    def spec(self) -> CheckedSpec:
        """The checked spec. Raises DoesNotCompile."""
        if self.checked is not None:
            return self.checked
        assert self.tree is not None
        with open_operand(self.tree.folder) as one:
            operand = one.check(one.name)
        if operand.errors:
            raise DoesNotCompile(operand)
        return operand.runs[0].spec

    @cached_property
    def emitted(self) -> Mapping[str, bytes]:
        """The files that compiling the spec would write, except the manifest."""
        return emitted(named(self.spec, self.name) if self.name else self.spec)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digest of each file that a run may read. If the run is on disk, the files are read. If not, the digests
        are computed from the files that compiling the spec gives.

        Files with bytecode are included, unless the bundle's trainer/main.py makes Python ignore them. Folders that the
        compiler did not write are listed, but their files are not read.
        """
        if self.tree is None:
            return _digests(self.emitted)
        out = dict(self.tree.digests)
        if self.tree.bytecode and (PROGRAM not in out or NO_BYTECODE not in self.tree.read(PROGRAM)):
            out |= self.tree.bytecode
        out |= dict.fromkeys(self.tree.foreign, f"{FOREIGN} {self.tree.folder}")
        return out | _digests({name: self.emitted[name] for name in self.unchanged if name in self.emitted})

    @cached_property
    def models(self) -> Mapping[str, str]:
        """Map each file of a local model to its digest in the bundle's manifest (`sha256:...`). If the run is not on
        disk, map each file to its path instead.
        """
        return self.model_paths if self.tree is None else self.tree.weights

    @property
    def stale(self) -> tuple[str, ...]:
        """Files that contradict the manifest: their digest differs, they are missing on disk, or the manifest
        does not list them.
        """
        if self.tree is None:
            return ()
        found = self.tree.listed
        actual = {name: f"sha256:{digest.partition(' ')[0]}" for name, digest in self.tree.digests.items()}
        return tuple(
            name for name in sorted({*found, *actual}) if found.get(name) != actual.get(name) and not is_prose(name)
        )

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of the named files. Files that this run does not have are left out."""
        names = list(names)
        if self.tree is None:
            return {name: self.emitted[name] for name in names if name in self.emitted}
        out = {name: self.emitted[name] for name in names if name in self.unchanged and name in self.emitted}
        on_disk = {*self.tree.digests, *self.tree.bytecode} - out.keys()
        return out | {name: self.tree.read(name) for name in names if name in on_disk}


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: shared_digest(data).removeprefix("sha256:") for name, data in files.items()}


@record
class Operand:
    """One argument of `xpc diff`. If there are `errors`, `runs` is empty. `axes` are the swept settings, each with its
    values. `launchers` has the digests of the files next to a sweep's members; it is None if these files are not on
    disk.
    """

    title: str
    runs: tuple[Run, ...]
    errors: tuple[Diagnostic, ...] = ()
    sweep: bool = False
    axes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    launchers: Mapping[str, str] | None = None

    @cached_property
    def starters(self) -> Mapping[str, str]:
        """The digests of the files that start a sweep. If these files are not on disk, the digests are computed from
        the files that compiling the spec gives.
        """
        return _digests(self._starter_files) if self.launchers is None else self.launchers

    @cached_property
    def _starter_files(self) -> Mapping[str, bytes]:
        specs = [one.spec for one in self.runs]
        return starters(specs, specs[0].name, {one.name: one.digests[LIST] for one in self.runs})

    def starter(self, name: str) -> bytes:
        """The contents of a file that starts a sweep, with the names of members and files instead of their digests. A
        member's digest changes with the order of packages in a lock. Raises UsageError if the file cannot be read.
        """
        on_disk = self.launchers is not None
        data = read_regular(os.path.join(self.title, name), MANIFEST) if on_disk else self._starter_files[name]
        members = {one.name: one.digests.get(LIST, "") for one in self.runs}
        return with_names(data, {**self.starters, **members})


def with_names(data: bytes, digests: Mapping[str, str]) -> bytes:
    """Replace each digest in a text by the name of the file or member that has this digest. `digests` maps names to
    digests.
    """
    if DIGEST.search(data) is None:
        return data
    names = {digest.encode(): name.encode() for name, digest in digests.items()}
    return DIGEST.sub(lambda found: names.get(found[0], found[0]), data)


@contextmanager
def open_operand(written: str) -> Iterator[UncheckedOperand]:
    """Read an argument of `xpc diff`; a later call checks it. Raises UsageError if the argument cannot be read."""
    if is_revision(written):
        with at_revision(written) as (data, name, workspace):
            yield UncheckedOperand(written, data, name, workspace, "")
        return
    repository = None if written == "-" or os.path.lexists(written) else find(".")
    if repository is not None and repository.commit(written) is not None:
        raise UsageError(f"{written} is a commit, and not a spec: `{written}:FILE` names a spec of this commit")
    if not os.path.isdir(written):
        yield UncheckedOperand(written, *read_spec(written), "")
        return
    if os.path.isfile(os.path.join(written, "sweep.toml")):
        yield UncheckedOperand(written, b"", "", None, written)
        return
    tree = bundle_tree(written, {})
    if bundled.SPEC not in tree.digests:
        raise UsageError(f"{written} is not a bundle: it has no {bundled.SPEC}")
    data, _, space = read_spec(os.path.join(written, bundled.SPEC))
    table = bundled.manifest(written)
    if table is None:
        raise UsageError(f"{written} is not a bundle: it has no bundle.toml of xpc")
    yield UncheckedOperand(written, data, table["bundle"]["spec"], space, written, tree)


@record
class UncheckedOperand:
    """An argument of `xpc diff` before its check: the bytes and the name of its spec, and the folder if it is a
    bundle.
    """

    title: str
    data: bytes
    name: str
    workspace: Workspace | None
    folder: str
    tree: BundleTree | None = None

    def check(self, name: str) -> Operand:
        """Check the spec under the file name `name`. `xpc diff` gives both of its specs the same name, so that their
        names are not reported as a difference.
        """
        if self.workspace is None:
            return _members(self.folder)
        # a run that does not fit in its GPUs can be compared, too
        return evolve(self, workspace=evolve(self.workspace, hashes=True, allow_oom=True))._operand(name)

    def _operand(self, name: str) -> Operand:
        assert self.workspace is not None
        checked = self._checked(name)
        if checked.spec is None:
            # check the spec again under its own file name, because messages contain the name
            problems = check_text(self.data, self.name, self.workspace).problems
            return Operand(self.title, (), tuple(located(problems, self.title)))
        return Operand(self.title, tuple(self._runs(checked, name)), sweep=bool(checked.members), axes=_axes(checked))

    def _checked(self, name: str) -> Checked:
        """The checked spec with the digests of its images. For a bundle, the digests come from its lists of images;
        otherwise, they are computed from the image files.
        """
        assert self.workspace is not None
        checked = check_text(self.data, name, self.workspace)
        if checked.spec is None or not any(pictured(checked.spec)):
            return checked
        known: Known = {}

        def listed(spec: CheckedSpec) -> CheckedSpec:
            assert self.workspace is not None
            tree = self.tree
            if tree is None:
                return with_images(spec, self.workspace, known)
            return with_listed(spec, self.workspace, lambda name: tree.read(name) if name in tree.digests else None)

        members = tuple(evolve(one, spec=one.spec and listed(one.spec)) for one in checked.members)
        return evolve(checked, spec=listed(checked.spec), members=members)

    def _runs(self, checked: Checked, name: str) -> Iterator[Run]:
        assert checked.spec is not None
        assert self.workspace is not None
        for one in checked.members:
            assert one.spec is not None
            yield Run(one.name, one.spec, model_paths=model_paths(one.spec, self.workspace))
        if checked.members:
            return
        unchanged: list[str] = []
        if self.tree is not None and name != self.name:
            own = self._checked(self.name).spec
            made = {} if own is None else _digests(Run("", own).emitted)
            unchanged = [file for file, digest in made.items() if self.tree.digests.get(file) == digest]
        paths = model_paths(checked.spec, self.workspace) if self.tree is None else {}
        yield Run("", checked.spec, self.tree, unchanged, paths)


def _members(folder: str) -> Operand:
    """The members in a sweep's folder, with their files. Their specs are checked later, because checking takes time. A
    member of members.txt without a folder cannot run, so it counts as removed.
    """
    try:
        text = read_regular(os.path.join(folder, "members.txt"), MANIFEST).decode()
    except (UsageError, ValueError) as error:
        raise UsageError(f"{folder} is not a complete sweep: its members.txt cannot be read") from error
    names = text.removesuffix("\n").split("\n") if text.strip("\n") else []
    if "" in names:
        raise UsageError(f"{folder}: members.txt has an empty line, which counts as a member in launch.sh")
    for member in names:
        if os.path.basename(member) != member or member in (".", ".."):
            raise UsageError(f"{folder}: members.txt names `{member[:80]}`, which is not a member")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"{folder}: members.txt names `{twice[:80]}` twice, and its run would start twice")
    if os.path.islink(os.path.join(folder, "members")):
        raise UsageError(f"{folder}/members is a link, and is not followed: a sweep has only regular files")
    known: dict[tuple[int, int], str] = {}
    runs = []
    for name in names:
        path = os.path.join(folder, "members", name)
        if os.path.islink(path):
            raise UsageError(f"{path} is a link, and is not followed: a sweep has only regular files")
        if os.path.lexists(path):
            runs.append(Run(name, None, bundle_tree(path, known)))
    if not runs:
        raise UsageError(f"{folder} is a sweep without members")
    others = [f"members/{name}" for name in {*os.listdir(os.path.join(folder, "members"))} - {*names}]
    others += [name for name in os.listdir(folder) if name != "members"]
    # a name may be both a file on disk and an entry of the manifest; then the file's digest counts
    launchers = dict.fromkeys(others, f"{UNLISTED} {folder}") | files_at_top(folder)
    return Operand(folder, tuple(runs), sweep=True, axes=_axes_on_disk(folder), launchers=launchers)


def _axes(checked: Checked) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not checked.members:
        return ()

    return _grouped([(path, value(one, path)) for one in checked.members for path, _ in one.settings])


def _axes_on_disk(folder: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The swept settings with their values, from sweep.toml. Empty if sweep.toml is damaged."""
    table = read_toml(os.path.join(folder, "sweep.toml"))
    try:
        members = [] if table is None else table["member"]
        return _grouped([(str(path), str(text)) for one in members for path, text in one["settings"].items()])
    except (KeyError, TypeError, AttributeError):
        return ()


def _grouped(found: Iterable[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    axes: dict[str, dict[str, None]] = {}
    for path, text in found:
        axes.setdefault(path, {})[text] = None
    return tuple((path, tuple(values)) for path, values in axes.items())
