"""The hooks of .pre-commit-hooks.yaml, run by the real pre-commit, which installs them from a copy of this
repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from compile_support import REPOSITORY, SEED, put, xpc

pytestmark = pytest.mark.nightly


def run(*words: object, cwd: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(one) for one in words], cwd=str(cwd), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def pre_commit(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pre-commit")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", "pre-commit==4.6.0"], check=True)
    return str(folder / "bin" / "pre-commit")


CONFIG = """repos:
- repo: {repository}
  rev: {commit}
  hooks:
  - id: xpc-fmt
  - id: xpc-check
  - id: xpc-verify
"""


def test_each_hook_passes_what_is_right_and_stops_what_is_wrong(
    pre_commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = run("git", "rev-parse", "HEAD", cwd=REPOSITORY).stdout.strip()
    config = CONFIG.format(repository=REPOSITORY, commit=commit)
    work = put(os.path.join(tmp_path, "project"), {"a.xp": SEED, ".pre-commit-config.yaml": config})
    monkeypatch.setenv("PRE_COMMIT_HOME", os.path.join(tmp_path, "home"))
    for words in (("fmt", "a.xp"), ("compile", "a.xp")):
        assert xpc(*words, cwd=work).returncode == 0
    run("git", "init", "-q", cwd=work)
    run("git", "add", "-A", cwd=work)
    done = run(pre_commit, "run", "--all-files", cwd=work)
    assert (done.returncode, done.stdout.count("Passed")) == (0, 3), done.stdout + done.stderr
    put(work, {"a.xp": SEED.replace("528", "529") + "\n\n", "a.bundle/launch.sh": "exit 0\n"})
    done = run(pre_commit, "run", "--all-files", cwd=work)
    assert (done.returncode, done.stdout.count("Failed")) == (1, 3), done.stdout + done.stderr
    for output in ("files were modified by this hook", "XP201", "a.bundle: contains launch.sh, which was changed"):
        assert done.stdout.count(output) == 1, done.stdout
