"""What the compiler asks of an engine, and how it finds the one that a spec names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.grammar.diagnostic import Diagnostic, Label

MEMBERS = "members"
"""The folder of a sweep that has a bundle for each member."""


class Engine:
    """An engine, as the compiler asks it. The defaults are those of an engine that adds no file."""

    submission: tuple[str, ...] = ()
    """Options of its submission that `extra_args` may not have; none where they are no words of a command."""
    volume: str = ""
    """What a folder is that all nodes share, where the nodes keep nothing of their own."""

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """The files that it adds to a bundle; `pin` is the digest of what runs (`engines/pin.py`)."""
        return {}

    def readme(self, spec: Spec) -> list[str]:
        """The lines of the bundle's README.md that say how the run is submitted."""
        return []

    def command(self, spec: Spec, out: str) -> str:
        """What is typed to start the bundle that was written to `out`."""
        return quoted(out, "launch.sh")

    def sweep_files(self, members: Sequence[Spec], name: str, pins: Mapping[str, str]) -> dict[str, str]:
        """The files beside a sweep's `launch.sh`, for a sweep of this name; `pins` by member, in their order."""
        return {}

    def sweep_readme(self, members: Sequence[str]) -> list[tuple[str, str]]:
        """Commands that start members of a sweep, each with what it does."""
        return [(f"less {MEMBERS}/{members[0]}/README.md", "says how each member is handed to the cluster")]

    def sweep_command(self, spec: Spec, out: str) -> str:
        """What is typed to start all members of the sweep that was written to `out`; `spec` is one of them."""
        return f"{quoted(out, 'launch.sh')} --all"

    def sweep_faults(self, members: Sequence[Spec], machines: Label, sweep: Label) -> Iterator[Diagnostic]:
        """What is wrong with the members together; `machines` is where the sweep varies them, `sweep` its place."""
        return iter(())


def quoted(*parts: str) -> str:
    """A path as a shell reads it."""
    import shlex

    return shlex.quote(os.path.join(*parts))


def named(name: str) -> Engine:
    """The engine with a name from ENGINES (language/launch_settings.py)."""
    found: Engine = import_module(f"xpc.compiler.engines.{name}").ENGINE
    return found


def engine(spec: Spec) -> Engine:
    """The engine that starts the run."""
    return named(spec.text("launch"))
