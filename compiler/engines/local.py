"""`launch local`: start `launch.sh` on this machine, or by hand on each node."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.engines.engine import Engine


class Local(Engine):
    """The engine `local`, which adds no files: a shell starts the run."""

    def sweep_readme(self, members: Sequence[str]) -> list[tuple[str, str]]:
        """The commands of the sweep's own `launch.sh`."""
        return [
            ("./launch.sh --list", "the names of the members"),
            (f"./launch.sh {members[0]}", "one of them"),
            ("./launch.sh --all", "one after another; a failure does not stop the others"),
        ]


ENGINE = Local()
