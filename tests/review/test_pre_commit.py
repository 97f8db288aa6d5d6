"""The hooks of .pre-commit-hooks.yaml under the real pre-commit, which installs them from a copy of this repository."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_each_hook_passes_what_is_right_and_stops_what_is_wrong(pre_commit: str, tmp_path: object) -> None:
    work = put(tmp_path, {"a.xp": SEED})
    os.environ["PRE_COMMIT_HOME"] = os.path.join(work, "home")
    assert xpc("fmt", "a.xp", cwd=work).returncode == 0
    assert xpc("compile", "a.xp", cwd=work).returncode == 0
    run("git", "init", "-q", cwd=work)
    run("git", "add", "a.xp", "a.bundle", cwd=work)
    for hook in ("xpc-fmt", "xpc-check", "xpc-verify"):
        done = run(pre_commit, "try-repo", REPOSITORY, hook, "--all-files", cwd=work)
        assert done.returncode == 0, done.stdout + done.stderr
    put(
        work,
        {
            "a.xp": SEED.replace("528", "529").replace("\n\n", "\n\n\n\n", 1),
            "a.bundle/launch.sh": "exit 0\n",
        },
    )
    for hook, said in (("xpc-check", "XP201"), ("xpc-verify", "launch.sh"), ("xpc-fmt", "files were modified")):
        done = run(pre_commit, "try-repo", REPOSITORY, hook, "--all-files", cwd=work)
        assert done.returncode == 1, done.stdout + done.stderr
        assert said in done.stdout
