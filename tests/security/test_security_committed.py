"""Hostile pull requests that contain bundles, sweeps or runs, or models with links inside. They do no harm.

The tests run every command that a reviewer uses, as in test_security_reviewed.py. A forged bundle never passes the
Action's step `Verify`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compile_support import manifest_of, put
from git_commands import git
from test_security_reviewed import EVIL_NAME, SECRET, SPEC, assert_harmless, linked, reviewed, specs
from test_security_reviewed import honest as honest
from tiers import nightly_but

from xpc.compiler.files.bundle import sealed

pytestmark = pytest.mark.slow

BAD = SPEC.replace("gbs=4", "gbs=4000")
PRETENDED = {"spec.xp": BAD, "bundle.toml": manifest_of(BAD)}
DEEP = "/".join("a" * 700)
RUN = {"xpc_run.json": "{}", "metrics.jsonl": "{}"}
ALLOWED = ("open of /", "os.scandir of /")
"""Findings of the audit hook that are allowed for links in a model: the model's files may be anywhere, because only
their digests are compared.
"""
REFUSED = ("open of /dev/zero ", "open of {above}/secret ")
"""Findings of the audit hook that are allowed for links in a bundle. When xpc opens a link, the hook reports the link's
target; xpc then refuses the target and reads nothing of it.
"""


def in_folder(folder: str, files: dict[str, str | bytes]) -> Callable[[Path], None]:
    return specs({f"{folder}/{name}": data for name, data in files.items()})


def other_version(root: Path) -> None:
    """Edit a bundle. Its new manifest has the digests of the edited files, and claims that another version of xpc wrote
    the bundle.
    """
    bundle = root / "specs" / "a.bundle"
    text = (bundle / "launch.sh").read_bytes()
    (bundle / "launch.sh").write_bytes(text + b"# more\n")
    old, new = (hashlib.sha256(one).hexdigest().encode() for one in (text, text + b"# more\n"))
    manifest = (bundle / "bundle.toml").read_bytes().replace(old, new)
    lines = [b'xpc = "0.0.1"' if line.startswith(b"xpc = ") else line for line in manifest.split(b"\n")]
    (bundle / "bundle.toml").write_bytes(sealed(b"\n".join(lines).rpartition(b"# The lines above: ")[0]))


def copied(name: str) -> Callable[[Path], None]:
    """Copy an honest bundle to another name, and edit the spec in the copy without updating the digest of the spec."""

    def make(root: Path) -> None:
        shutil.copytree(root / "specs" / "a.bundle", root / name)
        path = root / name / "spec.xp"
        path.write_text(path.read_text().replace("seq = 256", "seq = 257"))

    return make


FORGED: dict[str, Callable[[Path], None]] = {
    "a manifest with the digest of a bad spec": in_folder("b.bundle", {**PRETENDED}),
    "such a manifest in a hidden folder": in_folder(".hidden/b", {**PRETENDED}),
    "such a manifest among the outputs of a run": in_folder("out/a", {
        **RUN, "summary.json": "{}", **{f"checkpoint-1/{name}": text for name, text in PRETENDED.items()},
    }),
    "such a manifest at the top": lambda root: put(root, {**PRETENDED}) and None,
    "such a manifest below 700 folders": in_folder(DEEP, {**PRETENDED}),
    "such a manifest with the name of commands": in_folder(EVIL_NAME.replace("/", ""), {**PRETENDED}),
    "such a manifest with the name of an option": in_folder("-rf --strict", {**PRETENDED}),
    "a manifest of ten megabytes": in_folder("b.bundle", {
        "spec.xp": BAD, "bundle.toml": "[bundle]\n[files]\n" + f'"a" = "sha256:{"1" * 64}"\n' * 130_000,
    }),
    "a manifest that is not text": in_folder("b.bundle", {"spec.xp": BAD, "bundle.toml": b"\xff\xfe" * 1000}),
    "a manifest that names a spec of commands": in_folder("b.bundle", {
        "spec.xp": BAD, "bundle.toml": manifest_of(BAD).replace('"a.xp"', '"../../\\u001b[2J::error::x.xp"'),
    }),
    "a manifest that is a link": linked("b.bundle/bundle.toml", "../a.bundle/bundle.toml", {"b.bundle/spec.xp": BAD}),
    "a manifest that is a folder": in_folder("b.bundle", {"spec.xp": BAD, "bundle.toml/x": "", "sweep.toml": ""}),
    "a bundle of another version": other_version,
    "a copy of a bundle with another spec": copied("specs/c.bundle"),
    "a copy of a bundle in a hidden folder": copied(".c"),
    "a sweep of folders of others": in_folder("s", {
        "sweep.toml": "", "members.txt": "../a.bundle\n", "members/x/y": "",
    }),
    "500 manifests": specs({f"b{n}.bundle/bundle.toml": "" for n in range(500)}),
    "a run of a bundle that is not here": in_folder("out/a", {**RUN, "summary.json": '{"bundle": "\\u001b[2J"}'}),
    "a run that is a link to a secret": linked("out/a/summary.json", "{root}/../secret", {"out/a/xpc_run.json": "{}"}),
    "a run without an end": linked("out/a/summary.json", "/dev/zero", {"out/a/xpc_run.json": "{}"}),
}  # fmt: skip
LINKS: dict[str, Callable[[Path], None]] = {
    "a folder of a model that is a link to everything": linked("m/x", "/"),
    "a folder of a model that is a link to processes": linked("m/x", "/proc/self"),
    "a folder of a model that is a link to itself": linked("m/x", "."),
    "a folder of a model that is a link to nothing": linked("m/x", "nowhere"),
}  # fmt: skip
DAILY = {
    "a manifest with the digest of a bad spec", "such a manifest in a hidden folder",
    "a bundle of another version", "500 manifests", "a run without an end",
    "a folder of a model that is a link to itself",
}  # fmt: skip


@pytest.mark.parametrize("what", nightly_but([*FORGED, *LINKS], DAILY.__contains__))
def test_a_pull_request_with_committed_files_does_no_harm(what: str, honest: Path, tmp_path: Path) -> None:
    root = tmp_path / "work"
    shutil.copytree(honest, root, symlinks=True)
    put(tmp_path, {"secret": SECRET})
    {**FORGED, **LINKS}[what](root)
    git(root, "add", "-A", "-f")
    git(root, "commit", "-qm", "two")
    found = reviewed(root)
    assert isinstance(found["findings"], list)
    above = os.path.realpath(root.parent)
    allowed = ALLOWED if what in LINKS else tuple(one.format(above=above) for one in REFUSED)
    assert not [one for one in found["findings"] if not one.startswith(allowed)]
    statuses = assert_harmless(found, root)
    if what in FORGED:
        assert statuses["verify"] in (1, 2), found["output"]
    assert len(str(found["comment"])) < 65_536
