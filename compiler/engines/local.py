"""`launch local`: start `launch.sh` on this machine. If the run has several nodes, the user starts `launch.sh` by hand
on each node.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.engines.engine import Engine
from xpc.compiler.spec import Spec

SHOWN = 8
"""For up to this many nodes, the commands of all nodes are printed. For more nodes, only the commands of the first two
nodes and of the last one are printed.
"""
ADDRESS, PORT = "10.0.0.1", 29500
"""Examples for the printed commands: an address of node 0, and a port that is usually free."""


class Local(Engine):
    """The engine `local`: the user starts launch.sh in a shell. This engine adds no files to a bundle."""

    def start_lines(self, spec: Spec) -> list[str]:
        """The command to type on each node."""
        return on_each_node(spec, "./launch.sh")

    def commands(self, spec: Spec, out: str) -> list[str]:
        """The command to type on each node."""
        return on_each_node(spec, self.command(spec, out))

    def sweep_commands(self, spec: Spec, out: str) -> list[str]:
        """The command to type on each node, for all members of a sweep."""
        return on_each_node(spec, self.sweep_command(spec, out))

    def sweep_readme(self, members: Sequence[str]) -> list[tuple[str, str]]:
        """Commands of the sweep's own `launch.sh`, which starts members on this machine."""
        return [
            ("./launch.sh --list", "the names of the members"),
            (f"./launch.sh {members[0]}", "one of them"),
            ("./launch.sh --all", "one after another; a failure does not stop the others"),
        ]


def on_each_node(spec: Spec, command: str) -> list[str]:
    """The lines to type on each node: a command for each node, and comments that say what must be equal on all nodes.
    For a single node, the result is only the command.
    """
    nodes = spec.hardware.nodes
    if nodes == 1:
        return [command]
    ranks: list[int | None] = [*range(nodes)] if nodes <= SHOWN else [0, 1, None, nodes - 1]
    which = "" if spec.text("launch.rendezvous") == "static" else ", the host of the rendezvous"
    return [
        f"# One command on each of the {nodes} nodes. Replace {ADDRESS} by the address of node 0{which}",
        f"# (`hostname -I` prints it there), and {PORT} by a port that is free there. Use these values on all nodes.",
        *("# ..." if one is None else _numbered(one, command) for one in ranks),
    ]


def _numbered(rank: int, command: str) -> str:
    return f"MASTER_ADDR={ADDRESS} MASTER_PORT={PORT} NODE_RANK={rank} {command}"


ENGINE = Local()
