"""git runs no command of a stranger, neither from plain files in a pull request that look like a git repository, nor
from an unpacked `.git`.

Every command that a planted configuration names writes a file `pwned`, which must not exist afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from case_support import spec
from compile_support import REPOSITORY, manifest_of, put, xpc
from git_commands import branch_off, git

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review.pull_request import Entry, entries
from xpc.compiler.review.repository import Commit, find
from xpc.compiler.review.spec_finder import specs_of_commit, specs_of_work_tree

pytestmark = pytest.mark.slow

BEFORE = spec().replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n')
AFTER = BEFORE.replace("gbs=128", "gbs=256")
BASE = "xpc 1\nseed 7\n"
MISSING = "1234567890" * 4
"""A commit that no repository has. Because it is missing, git would fetch it from the promisor remote."""
HOOKS = ("reference-transaction", "post-index-change", "query-watchman", "pre-auto-gc")


def config(mark: Path, top: str) -> str:
    """A git configuration with many settings whose value is a command. Without protection, git may run each of these
    commands even if it only reads the repository.
    """
    run = f"touch {mark}"
    return f"""[core]
\trepositoryformatversion = 1
\tbare = false
\tworktree = {top}
\tfsmonitor = {run}
\thooksPath = hooks
\tsshCommand = {run}
\tpager = {run}
\tgitProxy = {run}
\talternateRefsCommand = {run}
[extensions]
\tpartialClone = evil
[remote "evil"]
\turl = .
\tuploadpack = {run}; false
\tpromisor = true
[protocol "file"]
\tallow = always
[protocol "ext"]
\tallow = always
[diff]
\texternal = {run}
[diff "evil"]
\ttextconv = {run} #
\tcommand = {run}
[filter "evil"]
\tsmudge = {run}
\tprocess = {run}
[credential]
\thelper = !{run}
[color]
\tui = always
[submodule]
\trecurse = true
[pager]
\tgrep = {run}
\tls-files = {run}
"""


def plant(folder: Path, mark: Path, top: str) -> None:
    """Write plain files, which a commit can contain. If git is started in their folder, it takes them for a
    repository.
    """
    put(folder, {"HEAD": f"{MISSING}\n", "objects/kept": "", "refs/heads/main": f"{MISSING}\n"})
    put(folder, {".gitattributes": "* diff=evil filter=evil\n"})
    configure(folder, mark, top)


def configure(folder: Path, mark: Path, top: str) -> None:
    """Write the configuration and the hooks of a repository."""
    put(folder, {"config": config(mark, top)})
    for name in HOOKS:
        put(folder, {f"hooks/{name}": f"#!/bin/sh\ntouch {mark}\n"})
        (folder / "hooks" / name).chmod(0o755)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "pwned"


@pytest.fixture(params=["specs/deep", "specs", "."])
def planted(request: pytest.FixtureRequest, tmp_path: Path, mark: Path) -> Path:
    """A repository with a branch that changes a spec and adds the files of `plant`: in the spec's folder, in the folder
    above it, or in the root folder.
    """
    top = tmp_path / "work"
    put(top, {"specs/deep/a.xp": BEFORE, "specs/deep/base.xp": BASE, "other.xp": spec()})
    branch_off(top)
    put(top, {"specs/deep/a.xp": AFTER})
    plant(top / request.param, mark, str(top))
    git(top, "add", "-A", "-f")
    git(top, "commit", "-qm", "two")
    mark.unlink(missing_ok=True)
    return top


@pytest.fixture(params=["this git", "an older git"])
def any_git(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an older git, which knows neither `safe.bareRepository` nor GIT_NO_LAZY_FETCH."""
    if request.param == "this git":
        return
    shim = tmp_path / "bin" / "git"
    put(shim.parent, {"git": f"""#!{sys.executable} -I
import os, sys
words = [one.replace("safe.bareRepository=explicit", "x.y=z") for one in sys.argv[1:]]
os.environ.pop("GIT_NO_LAZY_FETCH", None)
os.execv({shutil.which("git")!r}, ["git", *words])
"""})  # fmt: skip
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")


def compared(entry: Entry) -> bool:
    return entry.path.endswith("a.xp") and "gbs 128 -> 256" in entry.line and not entry.broken


@pytest.mark.slow
@pytest.mark.usefixtures("any_git")
def test_diff_asks_no_folder_that_looks_like_a_repository(planted: Path, mark: Path) -> None:
    for where, path in (("", "specs/deep/a.xp"), ("specs/deep", "a.xp"), ("specs", "deep/a.xp")):
        done = xpc("diff", f"main:{path}", path, cwd=str(planted / where))
        assert not mark.exists()
        assert done.returncode == 0, done.stderr
        assert b"gbs 128 -> 256" in done.stdout.split(b"\n")[0]
        done = xpc("diff", f"HEAD:{path}", path, "--exit-code", cwd=str(planted / where))
        assert (done.returncode, done.stdout) == (0, b"the same run\n")
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("any_git")
def test_the_comment_asks_no_folder_that_looks_like_a_repository(
    planted: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, path in ((".", "specs/deep/a.xp"), ("specs", "deep/a.xp"), ("specs/deep", "a.xp")):
        monkeypatch.chdir(planted / where)
        (found,) = entries(".", "main")
        assert not mark.exists()
        assert found.path == path
        assert compared(found)


def two_commits(top: Path) -> Path:
    """A repository whose second commit changes the spec."""
    put(top, {"a.xp": BEFORE, "base.xp": BASE, ".gitattributes": "* diff=evil filter=evil\n"})
    git(top, "init", "-q", "-b", "main")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "one")
    put(top, {"a.xp": AFTER})
    git(top, "commit", "-qam", "two")
    return top


@pytest.mark.slow
@pytest.mark.usefixtures("any_git")
def test_a_repository_of_somebody_else_runs_nothing(tmp_path: Path, mark: Path) -> None:
    """An archive with a `.git` was unpacked. If git is started in its folder, git must run none of the commands in its
    configuration.
    """
    top = two_commits(tmp_path / "work")
    configure(top / ".git", mark, str(tmp_path))
    done = xpc("diff", "main~1:a.xp", "a.xp", cwd=str(top))
    assert b"gbs 128 -> 256" in done.stdout, done.stderr
    assert xpc("diff", f"{MISSING}:a.xp", "a.xp", cwd=str(top)).returncode == 2
    assert [compared(one) for one in entries(str(top), "main~1")] == [True]
    with pytest.raises(UsageError, match="fetch-depth"):
        list(entries(str(top), MISSING))
    repository = find(str(top))
    assert repository is not None
    assert specs_of_work_tree(repository).files == ("a.xp", "base.xp")
    assert not mark.exists()


def test_the_planted_commands_would_run(tmp_path: Path, mark: Path) -> None:
    """Without xpc's protection, git runs the command in the remote's configuration as soon as an object is missing. So
    the other tests of this file would fail without the protection.
    """
    top = two_commits(tmp_path / "work")
    configure(top / ".git", mark, str(top))
    subprocess.run(["git", "cat-file", "-t", MISSING], cwd=top, capture_output=True, check=False)
    assert mark.exists()


def test_a_linked_worktree_and_a_submodule_have_a_file_in_the_place_of_git(tmp_path: Path, mark: Path) -> None:
    main = two_commits(tmp_path / "main")
    git(main, "worktree", "add", "-q", "-b", "linked", "../linked")
    outer = two_commits(tmp_path / "outer")
    git(outer, "submodule", "--quiet", "add", "../main", "sub/module")
    for top in (tmp_path / "linked", outer / "sub" / "module"):
        assert (top / ".git").is_file()
        (top / "specs").mkdir()
        shutil.copy(top / "a.xp", top / "specs")
        shutil.copy(top / "base.xp", top / "specs")
        git(top, "add", "specs")
        git(top, "commit", "-qm", "three")
        plant(top / "specs", mark, str(top))
        put(top, {"specs/a.xp": BEFORE})
        for folder, path in ((top, "specs/a.xp"), (top / "specs", "a.xp")):
            found = find(str(folder))
            assert found is not None
            assert found.top == os.path.realpath(top)
            done = xpc("diff", f"HEAD:{path}", path, cwd=str(folder))
            assert b"gbs 256 -> 128" in done.stdout, done.stderr
        done = xpc("diff", "HEAD~2:a.xp", "a.xp", cwd=str(top))
        assert b"gbs 128 -> 256" in done.stdout, done.stderr
    assert not mark.exists()


def test_the_nearest_repository_is_the_one(tmp_path: Path) -> None:
    outer = two_commits(tmp_path / "outer")
    inner = two_commits(outer / "inner")
    put(inner, {"a.xp": AFTER.replace("256", "512")})
    # `.git` is here, but is not a repository, so git would search in the folders above.
    (inner / "folder" / ".git").mkdir(parents=True)
    for folder in (inner, inner / "folder"):
        found = find(str(folder))
        assert found is not None
        assert (found.top, found.folder) == (str(inner.resolve()), str((inner / ".git").resolve()))
    done = xpc("diff", "HEAD:inner/a.xp", "inner/a.xp", cwd=str(outer))
    assert b"gbs 256 -> 512" in done.stdout, done.stderr
    (tmp_path / "link").symlink_to(inner)
    assert b"gbs 256 -> 512" in xpc("diff", "HEAD:link/a.xp", "link/a.xp", cwd=str(tmp_path)).stdout


def test_no_repository_is_a_sentence(tmp_path: Path, mark: Path) -> None:
    top = tmp_path / "work"
    put(top, {"a.xp": BEFORE, "base.xp": BASE})
    plant(top, mark, str(top))
    done = xpc("diff", "HEAD:a.xp", "a.xp", cwd=str(top))
    assert (done.returncode, b"is not in a git repository" in done.stderr) == (2, True)
    for text in ("gitdir: ../nowhere\n", "gitdir: \0\n", "gitdir\n", "\xff" * 9999):
        put(top, {".git": text})
        done = xpc("diff", "HEAD:a.xp", "a.xp", cwd=str(top))
        assert done.returncode == 2
        assert b".git does not name a git repository" in done.stderr or b".git cannot be read" in done.stderr
    with pytest.raises(UsageError, match="git"):
        list(entries(str(top), "main"))
    assert not mark.exists()


def test_git_gets_no_token_and_no_repository_of_a_hook(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = two_commits(tmp_path / "work")
    plant(tmp_path / "evil", mark, str(top))
    put(tmp_path / "bin", {"git": f'#!/bin/sh\nenv >> {tmp_path}/seen\nexec {shutil.which("git")} "$@"\n'})
    put(top, {"git": f"#!/bin/sh\ntouch {mark}\n"})
    for one in (tmp_path / "bin" / "git", top / "git"):
        one.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([".", "", str(tmp_path / "bin"), os.environ["PATH"]]))
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "evil"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {mark}")
    monkeypatch.setenv("GITHUB_TOKEN", "planted-token")
    done = xpc("diff", "HEAD~1:a.xp", "a.xp", cwd=str(top))
    assert b"gbs 128 -> 256" in done.stdout, done.stderr
    seen = (tmp_path / "seen").read_text()
    assert "planted-token" not in seen
    assert str(tmp_path / "evil") not in seen
    assert not mark.exists()


def test_what_a_partial_clone_lacks_is_a_sentence(tmp_path: Path) -> None:
    full = two_commits(tmp_path / "full")
    git(full, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{full}", "part")
    done = xpc("diff", "HEAD~1:a.xp", "a.xp", cwd=str(tmp_path / "part"))
    assert done.returncode == 2
    assert b"is not in this clone; `git show" in done.stderr
    assert b"the same run" in xpc("diff", "HEAD:a.xp", "a.xp", cwd=str(tmp_path / "part")).stdout
    put(full, {"a.xp": AFTER + "# more\n"})
    git(full, "commit", "-qam", "three")
    git(full, "rm", "-q", "base.xp")
    put(full, {"a.xp": spec()})
    git(full, "commit", "-qam", "without the base")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{full}", "later")
    git(tmp_path / "later", "show", "HEAD~1:a.xp")
    # the rows are read from the working tree here, not from the commit
    put(tmp_path / "later", {"base.xp": "xpc 1\nseed 8\n"})
    done = xpc("diff", "HEAD~1:a.xp", "a.xp", cwd=str(tmp_path / "later"))
    assert (done.returncode, b"base.xp is not in this clone" in done.stderr) == (2, True), done.stderr
    put(full, {"folder/x": ""})
    git(full, "add", "folder")
    git(full, "commit", "-qm", "a folder")
    assert b"`folder` is not in HEAD" in xpc("diff", "HEAD:folder", "a.xp", cwd=str(full)).stderr


# -- the Action ------------------------------------------------------------------------------------------------------


def step(name: str) -> str:
    yaml = pytest.importorskip("yaml")
    with open(os.path.join(REPOSITORY, "action.yml"), encoding="utf-8") as handle:
        (found,) = [one["run"] for one in yaml.safe_load(handle)["runs"]["steps"] if one["name"] == name]
    return str(found)


def test_the_action_starts_git_nowhere_and_python_apart_from_the_folder() -> None:
    scripts = [step(name) for name in ("Install xpc", "Check", "Verify", "Comment")]
    lines = [line.strip() for line in "\n".join(scripts).split("\n") if not line.strip().startswith("#")]
    assert not [line for line in lines if line.startswith("git ") or "(git " in line or "| git " in line]
    started = [line for line in lines if " -m " in line]
    assert len(started) == 5
    assert not [line for line in started if " -I -m " not in line]


@pytest.mark.slow
def test_the_installation_of_the_action_runs_no_module_of_a_pull_request(tmp_path: Path, mark: Path) -> None:
    """A workflow has `PYTHONPATH: src`, and the pull request adds modules there. pip starts other Python processes
    without the option -I, so they could import these modules. The modules could change the installed xpc, which gets
    the token in a later step.
    """
    yaml = pytest.importorskip("yaml")
    with open(os.path.join(REPOSITORY, "action.yml"), encoding="utf-8") as handle:
        steps = yaml.safe_load(handle)["runs"]["steps"]
    assert [one["env"]["PYTHONPATH"] for one in steps] == ["", "", "", ""]
    put(tmp_path / "work", {"src/sitecustomize.py": f"open({str(mark)!r}, 'w').close()\n"})
    around = {
        **os.environ, "PYTHONPATH": "src", "RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": REPOSITORY,
        "PIP_NO_INDEX": "1", **steps[0]["env"],
    }  # fmt: skip
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("Install xpc")]
    subprocess.run(words, cwd=tmp_path / "work", env=around, capture_output=True, check=False)
    assert (tmp_path / "xpc" / "bin" / "python").exists()
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("any_git")
def test_the_action_runs_nothing_of_a_pull_request(planted: Path, mark: Path, tmp_path: Path) -> None:
    """The Action's scripts start in the checked-out folder of the pull request. The folder also contains planted Python
    modules and hostile file names, and none of them runs.
    """
    evil = f"open({str(mark)!r}, 'w').close()\n"
    put(planted, {f"{name}.py": evil for name in ("json", "html", "sitecustomize", "argparse", "venv")})
    put(
        planted,
        {"xpc/__init__.py": evil, "specs/-o.xp": AFTER, "specs/a\n::error::x.xp": spec(), "specs/base.xp": BASE},
    )
    put(planted, {"specs/b\n::error::x/bundle.toml": ""})
    git(planted, "add", "-A", "-f")
    git(planted, "commit", "-qm", "three")
    mark.unlink(missing_ok=True)
    temporary = tmp_path / "runner"
    put(temporary, {
        "xpc/bin/python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        "xpc/bin/xpc": f'#!/bin/sh\nexec {sys.executable} -P -m xpc.compiler.cli "$@"\n',
        "event.json": json.dumps({"pull_request": {"number": 7}}),
    })  # fmt: skip
    for one in ("python", "xpc"):
        (temporary / "xpc" / "bin" / one).chmod(0o755)
    around = {
        "RUNNER_TEMP": str(temporary), "SPECS": "specs", "DENY": "", "ALLOW_OOM": "false", "BASE": "main",
        "PYTHONPATH": "", "GITHUB_TOKEN": "planted-token", "GITHUB_EVENT_PATH": str(temporary / "event.json"),
        "GITHUB_REPOSITORY": "me/runs", "GITHUB_API_URL": "http://127.0.0.1:1",
        "GITHUB_STEP_SUMMARY": str(temporary / "summary"),
    }  # fmt: skip
    out = {}
    for name in ("Check", "Verify", "Comment"):
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)]
        done = subprocess.run(
            words, cwd=planted, env={**os.environ, **around}, capture_output=True, text=True, check=False
        )
        out[name] = done.stdout + done.stderr
        assert not mark.exists(), name
        assert "\n::error::x" not in out[name]
    assert "in the summary of the job" in out["Comment"], out
    assert "a.xp" in out["Check"], out
    assert "is not a bundle" in out["Verify"], out
    assert "gbs 128 -&gt; 256" in (temporary / "summary").read_text(), (temporary / "summary").read_text()


def test_specs_of_bundles_and_links_are_none_of_the_repository(planted: Path) -> None:
    bundle = {"spec.xp": spec(), "bundle.toml": manifest_of(spec())}
    for folder in ("specs/x.bundle", "specs/run1", "specs/s/members/a"):
        put(planted / folder, bundle)
    put(planted, {
        "specs/new.xp": spec(), "specs/s/sweep.toml": "", "secret": "train x on y\n",
        "fake/spec.xp": spec(), "fake/bundle.toml": "", "specs/y.bundle/spec.xp": spec(),
    })  # fmt: skip
    (planted / "specs" / "link.xp").symlink_to("../secret")
    git(planted, "add", "-f", "fake", "specs/x.bundle", "specs/y.bundle", "specs/run1", "specs/s", "specs/link.xp")
    git(planted, "commit", "-qm", "bundles")
    repository = find(str(planted))
    assert repository is not None
    commit = repository.commit("HEAD")
    assert commit is not None
    for found in (specs_of_work_tree(repository), specs_of_commit(Commit.of(repository, commit))):
        assert list(found.runs) == ["fake/spec.xp", "other.xp", "specs/deep/a.xp", "specs/y.bundle/spec.xp"]
        assert found.runs["specs/deep/a.xp"] == ("specs/deep/base.xp",)
        assert found.links == ("specs/link.xp",)


def test_replaced_commits_of_an_archive_are_not_read(tmp_path: Path) -> None:
    """With `refs/replace`, a repository can show other files under the name of a commit. xpc tells git to ignore these
    references.
    """
    put(tmp_path, {"a.xp": "seed 1\n"})

    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    shown = git(tmp_path, "rev-parse", "HEAD")
    put(tmp_path, {"a.xp": "seed 2\n"})
    git(tmp_path, "commit", "-qam", "two")
    git(tmp_path, "replace", shown, "HEAD")
    repository = find(str(tmp_path))
    assert repository is not None
    assert git(tmp_path, "show", f"{shown}:a.xp") == "seed 2"
    assert Commit.of(repository, shown).data("a.xp") == b"seed 1\n"
