"""Golden bundles: `python tests/golden_bundles.py` writes them anew; the tests compare and never write."""

from __future__ import annotations

import os
import shutil
import sys

from xpc.compiler.bundle import write
from xpc.compiler.files import Workspace
from xpc.compiler.pipeline import compile_text

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "golden", "bundles")
SPECS = ("sentence", "qwen2.5-3b-infinity-8xv100")
"""Specs whose bundle is kept, without the ending."""


def compiled(name: str) -> dict[str, bytes]:
    """The bundle of a spec of `specs/`, by file name."""
    folder = os.path.join(ROOT, "specs")
    with open(os.path.join(folder, f"{name}.xp"), "rb") as handle:
        files, checked = compile_text(handle.read(), f"{name}.xp", Workspace(folder))
    assert files is not None, checked.problems
    return files


def kept(name: str) -> dict[str, bytes]:
    """The golden bundle of a spec, by file name."""
    base = os.path.join(GOLDEN, f"{name}.bundle")
    out = {}
    for folder, _, names in os.walk(base):
        for one in names:
            path = os.path.join(folder, one)
            with open(path, "rb") as handle:
                out[os.path.relpath(path, base).replace(os.sep, "/")] = handle.read()
    return out


def main() -> int:
    """Write every golden bundle and remove those of specs that are gone."""
    os.makedirs(GOLDEN, exist_ok=True)
    for entry in os.listdir(GOLDEN):
        if entry.removesuffix(".bundle") not in SPECS:
            shutil.rmtree(os.path.join(GOLDEN, entry))
    for name in SPECS:
        out = os.path.join(GOLDEN, f"{name}.bundle")
        shutil.rmtree(out, ignore_errors=True)
        write(compiled(name), out)
        print(f"wrote golden/bundles/{name}.bundle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
