"""Golden bundles: `python tests/golden_bundles.py` writes them; the tests compare them and never write.

A golden bundle has the files that the compiler generates for a spec, but no copies of files of runtime/. Instead, it
lists the names of the copies in trainer/; its bundle.toml and run.sha256 have no digests of copies. So a change of
runtime/ changes no golden bundle. Another test compares trainer/ with runtime/.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping

from xpc.compiler import stacks
from xpc.compiler.files.bundle import write
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import Checked, compile_text

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "golden", "bundles")
RECIPES = ("sentence", "qwen2.5-3b-infinity-8xv100")
"""The specs in `specs/` that have a golden bundle."""
SMALL = os.path.join(ROOT, "golden", "specs")
"""A folder with more specs that have golden bundles. Together they use every method, strategy, adapter and engine."""
STACKS = {f"stack-{name}": name for name in stacks.names()}
"""Maps the name of a golden bundle with a small run of a stack to the stack's name."""
RUN = """\
xpc 1

train qwen2.5-0.5b on no-robots for 1 epoch

hardware 2 x a100-80gb
strategy ddp
precision bf16
batch gbs=32 micro=4 seq=1024
save "out/run"
target {stack}
"""
SPECS = tuple(
    sorted([*RECIPES, *STACKS, *(name.removesuffix(".xp") for name in os.listdir(SMALL) if name.endswith(".xp"))])
)
VERBATIM = (
    "batched_calls.py", "batched_map.py", "picture.py", "prepare_rows.py", "ray_job.py", "rehearse.py", "result.py",
    "stage.py", "token_places.py",
)  # fmt: skip
"""Files outside of trainer/ that a bundle contains as unchanged copies. The originals are in runtime/."""
NAMES = "trainer.txt"
"""The file in each golden bundle that lists the file names in trainer/."""


def compiled(name: str) -> dict[str, bytes]:
    """Compile a spec by its name. Returns the bundle's files: a mapping from file name to content."""
    return compilation(name)[0]


def compilation(name: str) -> tuple[dict[str, bytes], Checked]:
    """Compile a spec by its name. Return a pair: the bundle's files, and the result of the checks."""
    folder = os.path.join(ROOT, "specs") if name in RECIPES else SMALL
    if name in STACKS:
        text = RUN.format(stack=STACKS[name]).encode()
    else:
        with open(os.path.join(folder, f"{name}.xp"), "rb") as handle:
            text = handle.read()
    files, checked = compile_text(text, f"{name}.xp", Workspace(folder))
    assert files is not None, checked.problems
    return files, checked


def decisions(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Reduce a compiled bundle to the files of a golden bundle: leave out the copies of runtime/, and the digests of
    these copies.
    """
    trainer = sorted(name for name in files if name.startswith("trainer/"))
    copies = {*trainer, *VERBATIM}
    # job scripts contain this digest, which changes with runtime/
    digest = hashlib.sha256(files["run.sha256"]).hexdigest().encode()
    rest = {name: data.replace(digest, b"DIGEST") for name, data in files.items() if name not in copies}
    changing = {*copies, "run.sha256", *(name for name in rest if digest in files[name])}
    # The last line of bundle.toml is a digest of the lines above it.
    manifest = files["bundle.toml"].decode().splitlines(keepends=True)[:-1]
    starts = tuple(f'"{name}" = ' for name in changing)
    digests = files["run.sha256"].decode().splitlines(keepends=True)
    return {
        **rest,
        "bundle.toml": "".join(line for line in manifest if not line.startswith(starts)).encode(),
        "run.sha256": "".join(line for line in digests if line.split()[1] not in changing).encode(),
        NAMES: "".join(f"{name}\n" for name in trainer).encode(),
    }


def kept(name: str) -> dict[str, bytes]:
    """Read the golden bundle of a spec: file name to content."""
    base = os.path.join(GOLDEN, f"{name}.bundle")
    out = {}
    for folder, _, names in os.walk(base):
        for one in names:
            path = os.path.join(folder, one)
            with open(path, "rb") as handle:
                out[os.path.relpath(path, base).replace(os.sep, "/")] = handle.read()
    return out


def main() -> int:
    """Write every golden bundle, and remove golden bundles without a spec."""
    os.makedirs(GOLDEN, exist_ok=True)
    for entry in os.listdir(GOLDEN):
        if entry.removesuffix(".bundle") not in SPECS:
            shutil.rmtree(os.path.join(GOLDEN, entry))
    for name in SPECS:
        out, wanted = os.path.join(GOLDEN, f"{name}.bundle"), decisions(compiled(name))
        if kept(name) != wanted:
            shutil.rmtree(out, ignore_errors=True)
            write(wanted, out)
            print(f"wrote golden/bundles/{name}.bundle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
