"""Spec to `environment.sh`: the variables and the setup script of `launch`, for every program of a bundle."""

from __future__ import annotations

import shlex

from xpc.compiler.files.digest import shared_digest
from xpc.compiler.spec import Spec

FILE = "environment.sh"
HEAD = """\
# launch.sh reads this file first, on every node: the environment that the spec's `launch` states.
"""
SETUP = """
xpc_bundle=${{BASH_SOURCE[0]%/*}}
if ! printf '%s  %s\\n' {digest} "$xpc_bundle/{name}" | sha256sum --check --status; then
  echo "environment.sh: {name} is not the file that was compiled" >&2
  exit 1
fi
set +eu # modules and virtual environments may fail in a strict shell
# shellcheck disable=SC1090,SC1091
. "$xpc_bundle/{name}"
set -eu -o pipefail
"""
READ = """
# shellcheck source=/dev/null
. "{where}/environment.sh"
"""


def stated(spec: Spec) -> bool:
    """Whether the bundle has the file."""
    return bool(spec.names("launch.env")) or spec.get("launch.setup") is not None


def environment(spec: Spec) -> str:
    """The file. Values are quoted, so that the shell expands nothing in them; XP910 checks the names."""
    lines = [HEAD]
    for one in spec.names("launch.env"):
        name, _, value = one.partition("=")
        lines.append(f"export {name}={shlex.quote(value)}\n")
    setup = spec.get("launch.setup")
    if isinstance(setup, str) and setup:
        lines.append(SETUP.format(name=setup, digest=shared_digest(spec.bundled[setup]).removeprefix("sha256:")))
    return "".join(lines)


def read(spec: Spec, where: str) -> str:
    """Shell lines that read the file; empty if the bundle has none."""
    return READ.format(where=where) if stated(spec) else ""
