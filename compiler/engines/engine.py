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
    """The base class of engines. Its methods fit an engine that adds no files to a bundle."""

    submission: tuple[str, ...] = ()
    """Options that `extra_args` must not contain, because the command or the job file already states these options.
    Empty for an engine that does not accept `extra_args`.
    """
    volume: str = ""
    """A word for what the setting `volume` names, such as a PersistentVolumeClaim. Empty if the machines of this engine
    keep their own files.
    """
    mounted: str = ""
    """The path at which every node mounts the shared folder. Empty if the engine mounts no folder; the nodes then use
    the folder under its own path.
    """

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """The files that the engine adds to a bundle, by name. `pin` is the bundle's digest: when the job starts, it
        checks that its folder still contains this bundle (`engines/pin.py`).
        """
        return {}

    def readme(self, spec: Spec) -> list[str]:
        """Lines of the bundle's README.md about submitting the run."""
        return []

    def command(self, spec: Spec, out: str) -> str:
        """The command that starts the bundle in `out`."""
        return quoted(out, "launch.sh")

    def start_lines(self, spec: Spec) -> list[str]:
        """Lines of README.md about starting launch.sh by hand. Empty for most engines, because they start launch.sh on
        every node themselves.
        """
        return ["./launch.sh"]

    def commands(self, spec: Spec, out: str) -> list[str]:
        """Shell lines that start the bundle in `out`: a single command or, below a comment, one command per node."""
        return [self.command(spec, out)]

    def sweep_commands(self, spec: Spec, out: str) -> list[str]:
        """Shell lines that start all members of the sweep in the folder `out`."""
        return [self.sweep_command(spec, out)]

    def sweep_files(self, members: Sequence[Spec], name: str, pins: Mapping[str, str]) -> dict[str, str]:
        """Files that the engine adds next to a sweep's `launch.sh`. `name` is the sweep's name, and `pins` has the
        digest of each member's `run.sha256`, in the order of the members.
        """
        return {}

    def sweep_readme(self, members: Sequence[str]) -> list[tuple[str, str]]:
        """Commands that start members of a sweep, each with a description."""
        return [(f"less {MEMBERS}/{members[0]}/README.md", "says how to submit each member")]

    def sweep_command(self, spec: Spec, out: str) -> str:
        """The command that starts all members of the sweep in the folder `out`; `spec` is one of the members."""
        return f"{quoted(out, 'launch.sh')} --all"

    def sweep_faults(self, members: Sequence[Spec], machines: Label, sweep: Label) -> Iterator[Diagnostic]:
        """Errors of a sweep that no single member has, for example if the members need different machines. Errors about
        the hardware are reported at `machines` (a place in the spec), all others at `sweep`.
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
