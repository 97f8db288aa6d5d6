"""The operands of a comparison: a spec, a spec of a commit, a bundle or the folder of a sweep, and their runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from xpc.compiler.files import bundled
from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.pipeline import Checked, check_text
from xpc.compiler.review.revision import at_revision, is_revision
from xpc.compiler.spec import CheckedSpec
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.files.workspace import Workspace


@record
class Run:
    """One run of an operand. `name` is empty outside a sweep; `folder` is empty if its files are not on disk."""

    name: str
    spec: CheckedSpec
    folder: str = ""

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """The run's warnings and notes."""
        return self.spec.problems

    def files(self) -> Mapping[str, bytes]:
        """The files of the bundle, from disk or as they would be written, without the digests."""
        if self.folder:
            return _on_disk(self.folder)
        from xpc.compiler.lower import emitted
        from xpc.compiler.lower.sweep import named

        return emitted(named(self.spec, self.name) if self.name else self.spec)


@record
class Operand:
    """One argument of the command. `runs` is empty if there are `errors`."""

    title: str
    runs: tuple[Run, ...]
    errors: tuple[Diagnostic, ...] = ()
    sweep: bool = False


@contextmanager
def open_operand(written: str) -> Iterator[UncheckedOperand]:
    """Read an operand without checking it. Raises UsageError if it cannot be read."""
    if is_revision(written):
        with at_revision(written) as (data, name, workspace):
            yield UncheckedOperand(written, data, name, workspace, "")
        return
    if not os.path.isdir(written):
        yield UncheckedOperand(written, *read_spec(written), "")
        return
    if os.path.isfile(os.path.join(written, "sweep.toml")):
        yield UncheckedOperand(written, b"", "", None, written)
        return
    path = os.path.join(written, bundled.SPEC)
    table = bundled.manifest(written)
    if table is None or not os.path.isfile(path):
        raise UsageError(f"{written} is not a bundle: it has no bundle.toml of xpc")
    data, _, space = read_spec(path)
    yield UncheckedOperand(written, data, table["bundle"]["spec"], space, written)


@record
class UncheckedOperand:
    """The bytes of an operand, the name of its spec, and the folder if it is a bundle."""

    title: str
    data: bytes
    name: str
    workspace: Workspace | None
    folder: str

    def check(self, name: str) -> Operand:
        """Check the operand under the given spec name, so that different file names make no difference."""
        if self.workspace is None:
            return _members(self.folder)
        self.workspace.hashes = self.workspace.allow_oom = True  # `xpc check` decides whether it may run
        checked = check_text(self.data, name, self.workspace)
        if checked.spec is None:
            problems = check_text(self.data, self.name, self.workspace).problems  # messages use its own name
            return Operand(self.title, (), tuple(located(problems, self.title)))
        own = self.folder if name == self.name else ""
        return Operand(self.title, tuple(_runs(checked, own)), sweep=bool(checked.members))


def _runs(checked: Checked, folder: str) -> Iterator[Run]:
    assert checked.spec is not None
    if not checked.members:
        yield Run("", checked.spec, folder)
    for one in checked.members:
        assert one.spec is not None
        yield Run(one.name, one.spec)


def _members(folder: str) -> Operand:
    """The members of a sweep's folder."""
    runs: list[Run] = []
    try:
        with open(os.path.join(folder, "members.txt"), encoding="utf-8") as handle:
            names = [name for name in handle.read().split("\n") if name]
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is not a complete sweep: its members.txt cannot be read") from error
    for member in names:
        if os.path.basename(member) != member or member in (".", ".."):
            raise UsageError(f"{folder}: members.txt names `{member[:80]}`, which is not a member")
        with open_operand(os.path.join(folder, "members", member)) as one:
            operand = one.check(one.name)
        if operand.errors:
            return operand
        runs.append(Run(member, operand.runs[0].spec, os.path.join(folder, "members", member)))
    if not runs:
        raise UsageError(f"{folder} is a sweep without members")
    return Operand(folder, tuple(runs), sweep=True)


def _on_disk(folder: str) -> dict[str, bytes]:
    table = bundled.manifest(folder)
    out: dict[str, bytes] = {}
    for name in [] if table is None else table["files"]:
        try:
            with open(os.path.join(folder, name), "rb") as handle:
                out[name] = handle.read()
        except OSError as error:
            raise UsageError(f"{os.path.join(folder, name)} cannot be read: {error.strerror}") from error
    return out
