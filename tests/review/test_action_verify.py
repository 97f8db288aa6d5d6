"""The step `Verify` of the GitHub Action, and the pre-commit hook `xpc-verify`. Both check committed bundles, sweeps,
locks and finished runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from case_support import ROW
from compile_support import LOCAL, REPOSITORY, compiled, put, xpc
from git_commands import git
from test_verify_all import run_of
from test_verify_models import MODEL
from tiers import slow_but

from xpc.compiler import __version__
from xpc.compiler.files.bundle import sealed
from xpc.compiler.locking.environments import requirements
from xpc.compiler.review.pull_request import comment, entries
from xpc.compiler.review.pull_request.verify import verify

ALL = ["--all", "--strict", "--base", "main", "--", "specs"]
SWEEP = "sweep { lr = [1e-5, 2e-5] }\n"


def lock(specs: Path) -> None:
    """Write the lock of x.xp. The locked packages are those that the spec requires, as if pip had resolved them."""
    assert xpc("lock", "x.xp", cwd=str(specs)).returncode == 1  # status 1: no package is pinned yet
    with open(specs / "x.xp.lock", "a", encoding="utf-8") as handle:
        for name, lines in requirements(compiled(LOCAL, str(specs), "x.xp")).items():
            handle.write(f'\n[environment."{name}"]\nasked = {json.dumps(lines)}\nresolved = {json.dumps(lines)}\n')
    done = xpc("lock", "x.xp", cwd=str(specs))
    assert done.returncode == 0, done


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a local model, a spec and a sweep, their bundles, a lock and a finished run."""
    root = tmp_path_factory.mktemp("chain") / "r"
    put(root / "specs" / "models" / "tiny", MODEL)
    put(root / "specs", {"x.xp": LOCAL, "rows.jsonl": ROW * 40, "s.xp": LOCAL + SWEEP, "alone.xp": LOCAL})
    lock(root / "specs")
    for name in ("x.xp", "s.xp"):
        done = xpc("compile", name, cwd=str(root / "specs"))
        assert done.returncode == 0, done
    run_of(root / "specs" / "x.bundle", root / "specs" / "out" / "x")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    git(root, "checkout", "-qb", "change")
    return root


@pytest.fixture
def root(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "r"
    shutil.copytree(honest, copy, symlinks=True)
    monkeypatch.chdir(copy)
    return copy


def edit(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in pairs:
        assert old in text, text
        text = text.replace(old, new)
    path.write_text(text)


def foreign(bundle: Path) -> None:
    """Change a bundle so that it seems to be written by another version of xpc. Update the digest in its last line."""
    text = (bundle / "bundle.toml").read_bytes().replace(b'xpc = "%s"' % __version__.encode(), b'xpc = "0.0.1"')
    (bundle / "bundle.toml").write_bytes(sealed(text.rpartition(b"# The lines above: ")[0]))


@pytest.mark.slow
def test_a_complete_chain_is_verified(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = verify(ALL)
    lines = capsys.readouterr().out.splitlines()
    assert (status, lines) == (0, [
        "specs/x.xp.lock: is current",
        "specs/s.bundle: is what specs/s.xp compiles to, 2 members",
        f"specs/models/tiny: {len(MODEL)} files are unchanged since specs/s.bundle was compiled",
        "specs/x.bundle: is what specs/x.xp compiles to",
        f"specs/models/tiny: {len(MODEL)} files are unchanged since specs/x.bundle was compiled",
        "specs/out/x: is what specs/x.bundle asks for: 10 steps, 40 sequences, 640 tokens",
    ])  # fmt: skip


def _pycache(root: Path) -> None:
    put(root / "specs/x.bundle/trainer/core/__pycache__", {"x.cpython-311.pyc": "x"})


def _run(root: Path) -> None:
    edit(root / "specs/out/x/metrics.jsonl", ("1.5", "1.4"))


def _manifest(root: Path) -> None:
    put(root / "specs/runs", {"bundle.toml": "", "spec.xp": LOCAL})


def _unmarked(root: Path) -> None:
    (root / "specs/out/x/xpc_run.json").unlink()
    _run(root)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a line of a program": (
        lambda root: edit(root / "specs/x.bundle/launch.sh", ("#!", "# \n#!")), "x.bundle: contains launch.sh",
    ),
    "a member": (
        lambda root: edit(root / "specs/s.bundle/members/lr=2e-05/trainer_args.json", ("2e-05", "3e-05")),
        "specs/s.bundle: contains members/lr=2e-05/trainer_args.json",
    ),
    "a stale bundle": (
        lambda root: edit(root / "specs/x.xp", ("save", "seed 9\nsave")), "specs/x.bundle",
    ),
    "weights": (lambda root: put(root / "specs/models/tiny", {"model.safetensors": "x"}) and None, "model.safetensors"),
    "bytecode": (_pycache, "was not written by the compiler"),
    "a lock": (lambda root: put(root / "specs", {"rows.jsonl": ROW * 41}) and None, "x.xp.lock: "),
    "a finished run": (_run, "specs/out/x: metrics.jsonl was edited"),
    "a run without its marker": (_unmarked, "specs/out/x: metrics.jsonl was edited"),
    "a bundle without its manifest": (
        lambda root: (root / "specs/x.bundle/bundle.toml").unlink(), "specs/x.bundle: is not a bundle",
    ),
    "a manifest that makes a folder look like a bundle": (_manifest, "specs/runs: is not a bundle"),
    "a bundle of another version": (lambda root: foreign(root / "specs/x.bundle"), "was written by xpc 0.0.1"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", slow_but(CHANGES, ("a member", "a finished run", "a stale bundle").__contains__))
def test_a_change_of_the_chain_fails_in_the_action(what: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, words = CHANGES[what]
    change(root)
    git(root, "add", "-A", "-f")
    git(root, "commit", "-qm", "two")
    status = verify(ALL)
    out = capsys.readouterr().out
    assert (status > 0, words in out) == (True, True), out


@pytest.mark.slow
def test_an_old_bundle_of_another_version_stays(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign(root / "specs" / "s.bundle" / "members" / "lr=1e-05")
    shutil.rmtree(root / "specs" / "out")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "old")
    git(root, "branch", "-f", "main")
    assert verify(ALL) == 1  # sweep.toml still has the digest of the unchanged member
    foreign(root / "specs" / "x.bundle")
    shutil.rmtree(root / "specs" / "s.bundle")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "old")
    git(root, "branch", "-f", "main")
    capsys.readouterr()
    assert verify(ALL) == 0
    assert "specs/x.bundle: was written by xpc 0.0.1 and is unchanged" in capsys.readouterr().out


@pytest.mark.slow
def test_a_hook_verifies_what_the_changed_files_belong_to(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(["--", "specs/alone.xp", "README.md"]) == 0
    assert capsys.readouterr().out == "no bundle, lock or run to verify\n"
    assert verify(["--", "specs/s.bundle/members/lr=1e-05/launch.sh", "specs/out/x/summary.json"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "specs/s.bundle", "specs/models/tiny", "specs/out/x",
    ]  # fmt: skip
    edit(root / "specs/x.xp", ("save", "seed 9\nsave"))
    os.chdir(root / "specs")
    assert verify(["--", "x.xp"]) == 1
    assert "x.bundle: " in capsys.readouterr().out


@pytest.mark.slow
def test_a_hook_verifies_the_bundles_of_specs_that_read_a_changed_file(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("models/tiny/config.json", "rows.jsonl"):
        assert verify(["--", f"specs/{name}"]) == 0
        out = capsys.readouterr().out
        assert "specs/x.bundle: is what" in out
        assert "specs/s.bundle: is what" in out
    put(root / "specs" / "base", {"house.xp": "xpc 1\noptimizer adamw(lr=1e-5)\n"})
    edit(root / "specs/x.xp", ("xpc 1\n", 'xpc 1\nextends "base/house.xp"\n'))
    (root / "specs/x.xp.lock").unlink()
    assert xpc("compile", "x.xp", cwd=str(root / "specs")).returncode == 0
    git(root, "add", "-A")
    assert verify(["--", "specs/base/house.xp"]) == 0
    capsys.readouterr()
    edit(root / "specs/base/house.xp", ("1e-5", "3e-5"))
    assert verify(["--", "specs/base/house.xp"]) == 1
    assert '"learning_rate": 1e-05, but the spec compiles to "learning_rate": 3e-05' in capsys.readouterr().out


@pytest.mark.slow
def test_a_repository_without_bundles_has_nothing_to_verify(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # With --all, the glob `specs/al*.xp` selects the folder `specs`. A bundle in this folder is checked, too.
    assert verify(["--all", "--", "specs/al*.xp", "specs/models"]) == 0
    assert "specs/x.bundle: is what" in capsys.readouterr().out
    assert verify(["--all", "--", "specs/models"]) == 0
    assert capsys.readouterr().out == "no bundle, lock or run to verify\n"


@pytest.mark.slow
def test_the_comment_says_which_specs_it_leaves_out(root: Path) -> None:
    edit(root / "specs/x.xp", ("save", "seed 9\nsave"))
    edit(root / "specs/s.xp", ("1e-5", "3e-5"))
    for name in "xs":
        assert xpc("compile", f"{name}.xp", cwd=str(root / "specs")).returncode == 0
    git(root, "add", "-A")
    git(root, "commit", "-qm", "two")
    text = comment(list(entries(".", "main")))
    assert text.splitlines()[1].startswith("**2 changed")
    last = "and 1 more are bundles with changed files; only &#96;xpc verify&#96; compares them with their specs."
    assert text.splitlines()[-1] == f"specs/s.bundle {last}", text
    git(root, "checkout", "-qB", "other", "main")
    edit(root / "specs/x.bundle/launch.sh", ("set -", "# a\nset -"))
    git(root, "commit", "-qam", "three")
    text = comment(list(entries(".", "main")))
    assert text.splitlines()[1:] == [
        "**No spec changes its run, but committed bundles change.**", "",
        "specs/x.bundle is a bundle with changed files; only &#96;xpc verify&#96; compares it with its spec.",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_step_runs_as_a_runner_runs_it(root: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    with open(os.path.join(REPOSITORY, "action.yml"), encoding="utf-8") as handle:
        (step,) = [one for one in yaml.safe_load(handle)["runs"]["steps"] if one["name"] == "Verify"]
    put(tmp_path / "xpc/bin", {"python": f'#!/bin/sh\nexec {sys.executable} "$@"\n'})
    (tmp_path / "xpc/bin/python").chmod(0o755)
    around = {**os.environ, "RUNNER_TEMP": str(tmp_path), "SPECS": "specs", "BASE": "main", "PYTHONPATH": ""}

    def run_step() -> subprocess.CompletedProcess[str]:
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(words, cwd=root, env=around, capture_output=True, text=True, check=False)

    put(root, {"json.py": "raise SystemExit(9)\n", "specs/a*.xp": LOCAL})
    done = run_step()
    assert (done.returncode, "specs/x.bundle: is what" in done.stdout) == (0, True), done
    _pycache(root)
    done = run_step()
    assert (done.returncode, "was not written by the compiler" in done.stdout) == (1, True), done
