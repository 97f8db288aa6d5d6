"""Write `environment.sh`, which every program of a bundle reads: variables and the setup script of `launch`."""

from __future__ import annotations

import shlex

from xpc.compiler.files.digest import shared_digest
from xpc.compiler.spec import Spec
from xpc.grammar.package_data import read_sections

FILE = "environment.sh"


def stated(spec: Spec) -> bool:
    """Whether the bundle has a file `environment.sh`."""
    return bool(spec.names("launch.env")) or spec.get("launch.setup") is not None


def environment(spec: Spec) -> str:
    """The text of `environment.sh`. Values are quoted, so that the shell expands nothing in them. The names of
    variables cannot be quoted; a rule checks them.
    """
    shell = read_sections(__file__, FILE)
    lines = [shell["head"]]
    for one in spec.names("launch.env"):
        name, _, value = one.partition("=")
        lines.append(f"export {name}={shlex.quote(value)}\n")
    setup = spec.get("launch.setup")
    if isinstance(setup, str) and setup:
        digest = shared_digest(spec.bundled[setup]).removeprefix("sha256:")
        lines.append(shell["setup"].format(name=setup, digest=digest))
    return "".join(lines)


def read(spec: Spec, where: str) -> str:
    """Shell lines that source `environment.sh` from the folder `where` (a shell expression). "" if the bundle has no
    `environment.sh`.
    """
    return read_sections(__file__, FILE)["read"].format(where=where) if stated(spec) else ""
