"""Find out how xpc was installed, and make the command that installs a missing optional part in the same way."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, requires

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
"""The folder that contains `compiler/`: a git checkout, or the package in site-packages."""


def install_command(extra: str) -> str:
    """The command that installs an optional part of xpc (`lsp`, `import`).

    In a checkout, the command is `pip install -e '.[lsp]'`. For an installed wheel, the command names the packages that
    the part needs, because pip cannot get xpc from a package index.
    """
    if os.path.isfile(os.path.join(ROOT, "pyproject.toml")):
        folder = "." if os.path.realpath(os.getcwd()) == os.path.realpath(ROOT) else ROOT
        return f"pip install -e {_quoted(f'{folder}[{extra}]')}"

    try:
        needed = requires("xpc") or []
    except PackageNotFoundError:
        needed = []
    marked = [one.partition(";") for one in needed]
    packages = [name.strip() for name, _, marker in marked if _of_extra(marker, extra)]
    return f"pip install {' '.join(map(_quoted, packages))}" if packages else f"install xpc with its extra `{extra}`"


def _of_extra(marker: str, extra: str) -> bool:
    return "".join(marker.split()).replace("'", '"') == f'extra=="{extra}"'


def _quoted(word: str) -> str:
    return f"'{word}'"
