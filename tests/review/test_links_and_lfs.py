"""Specs and data behind symbolic links, submodules and pointers of Git LFS, in commits and in the working tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from compile_support import checked, put

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review import diff, verify
from xpc.compiler.review.pull_request.entries import entries

ROW = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
SPEC = 'xpc 1\n\nextends "house.xp"\n\ntrain qwen2.5-3b on "../data/rows.jsonl" for 2 epochs\n'
HOUSE = "xpc 1\n\nhardware 1 x h100-80gb\n\nbatch gbs=4 micro=2 seq=256\n"


def git(*arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)


def commit() -> None:
    git("add", "-A")
    git("commit", "-qm", "a commit")


def pointer(data: bytes) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data).hexdigest()}\nsize {len(data)}\n"


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a spec whose base is a link to a file and whose data is behind a link to a folder."""
    monkeypatch.chdir(tmp_path)
    put(
        tmp_path, {"specs/a.xp": SPEC, "base/house.xp": HOUSE, "rows/v1/rows.jsonl": ROW * 8, "rows/v2/rows.jsonl": ROW}
    )
    (tmp_path / "specs" / "house.xp").symlink_to("../base/house.xp")
    (tmp_path / "data").symlink_to("rows/v1")
    git("init", "-q", "-b", "main")
    commit()
    git("checkout", "-q", "-b", "change")
    return tmp_path


def compared() -> int:
    return diff.run(diff.parse(["main:specs/a.xp", "specs/a.xp", "--exit-code"]))[1]


@pytest.mark.parametrize("what", ["base", "rows", "link"])
def test_changes_behind_a_link_are_seen(what: str, linked: Path) -> None:
    """These changes were once missed: the comment said `No run changes`, because `diff` read the working tree's rows
    for both commits.
    """
    assert compared() == 0
    if what == "base":
        put(linked, {"base/house.xp": HOUSE.replace("gbs=4", "gbs=8")})
    elif what == "rows":
        put(linked, {"rows/v1/rows.jsonl": ROW * 4})
    else:
        os.unlink("data")
        os.symlink("rows/v2", "data")
    commit()
    assert compared() == 1
    assert [(one.path, one.kind) for one in entries(".", "main")] == [("specs/a.xp", "changed")]


def test_a_submodule_is_read_at_the_commit_of_each_side(linked: Path, tmp_path: Path) -> None:
    """A submodule was once read from the working tree for both sides, so `diff` printed `the same run` and the comment
    `No run changes`.
    """
    put(tmp_path / "other", {"rows.jsonl": ROW * 8, "house.xp": HOUSE})
    git("-C", "other", "init", "-q")
    git("-C", "other", "add", "-A")
    git("-C", "other", "commit", "-qm", "one")
    git("rm", "-q", "data")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"{tmp_path}/other", "data")
    put(linked, {"specs/b.xp": SPEC.replace("house.xp", "../data/house.xp")})
    shutil.rmtree("other")
    commit()
    git("branch", "-f", "main")
    assert compared() == 0
    assert verify.run(verify.parse(["--all"]))[0].splitlines()[0].endswith("tracked files are as in it")
    put(linked, {"data/rows.jsonl": ROW * 4})
    git("-C", "data", "commit", "-qam", "two")
    assert "data differs from it" in verify.run(verify.parse(["--all"]))[0].splitlines()[0]
    commit()
    assert compared() == 1
    assert [one.path for one in entries(".", "main")] == ["specs/a.xp", "specs/b.xp"]
    shutil.rmtree(".git/modules")
    shutil.rmtree("data")
    os.mkdir("data")
    with pytest.raises(UsageError, match="is a submodule, and its commit"):
        compared()


def test_a_pointer_of_lfs_is_its_file(linked: Path) -> None:
    """The commit contains the pointer; the file is in the working tree, or in the store of Git LFS."""
    rows = (ROW * 8).encode()
    put(linked, {"rows/v1/rows.jsonl": pointer(rows)})
    commit()
    git("branch", "-f", "main")
    put(linked, {"rows/v1/rows.jsonl": ROW * 8})
    assert compared() == 0
    assert verify.run(verify.parse(["--all"]))[0].splitlines()[0].endswith("tracked files are as in it")
    digest = sha256(rows).hexdigest()
    put(linked, {f".git/lfs/objects/{digest[:2]}/{digest[2:4]}/{digest}": ROW * 8, "rows/v1/rows.jsonl": ROW * 4})
    assert compared() == 1
    shutil.rmtree(linked / ".git" / "lfs")
    assert compared() == 5


@pytest.mark.parametrize("ending", ["jsonl", "txt", "csv", "parquet"])
def test_a_pointer_is_not_trained_on(ending: str, tmp_path: Path) -> None:
    """The three lines of an LFS pointer were once read as three documents."""
    put(tmp_path, {f"rows.{ending}": pointer(b"rows")})
    text = f'xpc 1\ntrain qwen2.5-3b on "rows.{ending}" for 2 epochs\nhardware 1 x h100-80gb\n'
    (found,) = [one for one in checked(text, str(tmp_path)).problems if one.severity == "error"]
    assert found.code == "XP114"
    assert "git lfs pull" in found.message
