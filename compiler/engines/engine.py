"""The interface of engines, and functions that look up an engine by name or for a spec."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Diagnostic, Label

MEMBERS = "members"
"""The folder of a sweep that contains a bundle for each member."""


class Engine:
    """The base class of engines. Its methods suit an engine that adds no files."""

    submission: tuple[str, ...] = ()
    """Options of the submitting command that `extra_args` may not contain; empty if the engine adds `extra_args` to no
    command."""
    volume: str = ""
    """The kind of shared folder, such as a PersistentVolumeClaim, that nodes without a lasting disk need."""

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """The files that the engine adds to a bundle. `pin` is the digest of `run.sha256` (`engines/pin.py`)."""
        return {}

    def readme(self, spec: Spec) -> list[str]:
        """Lines of the bundle's README.md about submitting the run."""
        return []

    def command(self, spec: Spec, out: str) -> str:
        """The command that starts the bundle in `out`."""
        return quoted(out, "launch.sh")

    def start_lines(self, spec: Spec) -> list[str]:
        """The lines of README.md that start launch.sh by hand. Most engines need none, because they start it on every
        node themselves.
        """
        return ["./launch.sh"]

    def commands(self, spec: Spec, out: str) -> list[str]:
        """The lines that start the bundle in `out`: a command, or one for each node after comments about them."""
        return [self.command(spec, out)]

    def sweep_commands(self, spec: Spec, out: str) -> list[str]:
        """Like `commands`, but for all members of the sweep in the folder `out`."""
        return [self.sweep_command(spec, out)]

    def sweep_files(self, members: Sequence[Spec], name: str, pins: Mapping[str, str]) -> dict[str, str]:
        """Files that the engine adds next to a sweep's `launch.sh`. `name` is the sweep's name, and `pins` has the
        digest of each member's `run.sha256`, in order.
        """
        return {}

    def sweep_readme(self, members: Sequence[str]) -> list[tuple[str, str]]:
        """Commands that start members of a sweep, each with a description."""
        return [(f"less {MEMBERS}/{members[0]}/README.md", "says how to submit each member")]

    def sweep_command(self, spec: Spec, out: str) -> str:
        """The command that starts all members of the sweep in the folder `out`; `spec` is one of the members."""
        return f"{quoted(out, 'launch.sh')} --all"

    def sweep_faults(self, members: Sequence[Spec], machines: Label, sweep: Label) -> Iterator[Diagnostic]:
        """Errors about several members of a sweep. `machines` is the place where the sweep varies hardware, `sweep` the
        place of the sweep.
        """
        return iter(())


def quoted(*parts: str) -> str:
    """A path, quoted for a shell."""
    import shlex

    return shlex.quote(os.path.join(*parts))


def named(name: str) -> Engine:
    """The engine with this name, which must be in ENGINES (language/launch_settings.py)."""
    found: Engine = import_module(f"xpc.compiler.engines.{name}").ENGINE
    return found


def engine(spec: Spec) -> Engine:
    """The engine that a spec names in `launch`."""
    return named(spec.text("launch"))
