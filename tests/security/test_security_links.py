"""Hostile pull requests that contain links in circles, or manifests, tables, lists and runs that once took minutes to
read. They do no harm.

The tests run every command that a reviewer uses, as in test_security_reviewed.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compile_support import put
from git_commands import git
from growing import HEAD_OF_MANIFEST, manifest
from test_security_reviewed import EVIL_NAME, SECRET, assert_harmless, edited, linked, reviewed, specs
from test_security_reviewed import honest as honest
from tiers import nightly_but

pytestmark = pytest.mark.slow

ALLOWED = ("open of /", "os.scandir of /")
"""Findings of the audit hook that are allowed for links in a model: the model's files may be anywhere, because only
their digests are compared.
"""
DIGEST = "sha256:" + "1" * 64


def links(count: int, target: str, folder: str = "specs/m") -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for one in range(count):
            (root / folder / f"l{one}").symlink_to(target.format(one=one, next=one + 1))

    return make


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for change in changes:
            change(root)

    return make


def appended(name: str, text: str) -> Callable[[Path], None]:
    return edited(name, lambda old: old + text)


def run(files: object, **more: object) -> Callable[[Path], None]:
    facts = {"bundle": DIGEST, "steps": 1, "arguments": {}, "files": files, **more}
    return specs({"out/a/xpc_run.json": "{}", "out/a/metrics.jsonl": "{}", "out/a/summary.json": json.dumps(facts)})


EVIL: dict[str, Callable[[Path], None]] = {
    "40 links of a model to itself": links(40, "."),
    "3,000 links of a model to a folder": both(specs({"d/a.json": "{}"}), links(3000, "../d")),
    "3,000 links of a model to nothing": links(3000, "nowhere{one}"),
    "60 links of a model, each to the next": links(60, "l{next}"),
    "a link of a model to the repository": linked("m/x", "../.."),
    "a link of a model to git": linked("m/x", "../../.git"),
    "a link of a model to a bundle": linked("m/x", "../a.bundle"),
    "a link of a model with the name of commands": linked(f"m/{EVIL_NAME.replace('/', '')}", "../a.bundle"),
    "a manifest with a key of a million parts": appended("a.bundle/bundle.toml", "a" + ".a" * 10**6 + " = 1\n"),
    "a manifest of 20,000 copies with one digest": specs({"a.bundle/bundle.toml": manifest(20_000)}),
    "a manifest of 200,000 digests of weights": appended(
        "a.bundle/bundle.toml", "[weights]\n" + "".join(f'"x/{one}/a" = "{DIGEST}"\n' for one in range(200_000))
    ),
    "a manifest whose weights are a number": edited("a.bundle/bundle.toml", lambda text: f"weights = 5\n{text}"),
    "a manifest whose weights are tables": appended("a.bundle/bundle.toml", '[weights."a/b"]\nx = 1\n'),
    "a manifest of no spec": specs({"a.bundle/bundle.toml": HEAD_OF_MANIFEST + "[inputs]\n[files]\n"}),
    "a lock with a key of a million parts": specs({"a.xp.lock": "a" + ".a" * 10**6 + " = 1\n"}),
    "a table with a name of megabytes": specs({"a.bundle/trainer_args.json": json.dumps(
        {"k" * 10**6: {f"a{one}": 1 for one in range(10_000)}}
    )}),
    "packages of one name": specs({"a.bundle/requirements.txt": "".join(f"a=={one}\n" for one in range(200_000))}),
    "a run of values of other types": run({}, versions={"trl": 1}, world=True, sequences=None, data=[1]),
    "a run of names that are none": run({"a\0b": [1, ""], "\ud800": [1, ""], "a/" * 10**5: [1, ""], EVIL_NAME: None}),
    "a run with links with the names of commands": both(run({}), linked(f"out/a/{EVIL_NAME.replace('/', '')}", "/")),
}  # fmt: skip
DAILY = {"40 links of a model to itself", "a manifest whose weights are a number"}


@pytest.mark.parametrize("what", nightly_but(EVIL, DAILY.__contains__))
def test_a_pull_request_of_links_and_lists(what: str, honest: Path, tmp_path: Path) -> None:
    root = tmp_path / "work"
    shutil.copytree(honest, root, symlinks=True)
    put(tmp_path, {"secret": SECRET})
    EVIL[what](root)
    git(root, "add", "-A", "-f")
    git(root, "commit", "-qm", "two")
    found = reviewed(root)
    assert isinstance(found["findings"], list)
    allowed = ALLOWED if "link" in what else ()
    assert not [one for one in found["findings"] if not one.startswith(allowed)]
    assert_harmless(found, root)
    assert len(str(found["comment"])) < 65_536
    assert os.path.exists(root / "specs" / "a.xp")
