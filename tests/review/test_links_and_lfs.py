"""A spec and its data may be reached through symbolic links, submodules, or pointers of Git LFS, both in commits and in
the working tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from compile_support import LOCAL, LOCAL_MODEL, checked, put
from git_commands import branch_off, git
from tiers import slow_but

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review import diff, verify
from xpc.compiler.review.pull_request.entries import entries

ROW = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
SPEC = 'xpc 1\n\nextends "house.xp"\n\ntrain qwen2.5-3b on "../data/rows.jsonl" for 2 epochs\n'
HOUSE = "xpc 1\n\nhardware 1 x h100-80gb\n\nbatch gbs=4 micro=2 seq=256\n"


def commit() -> None:
    git(".", "add", "-A")
    git(".", "commit", "-qm", "a commit")


def pointer(data: bytes) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data).hexdigest()}\nsize {len(data)}\n"


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a spec. The spec's base is a link to a file, and its data is in a folder to which a link
    leads.
    """
    monkeypatch.chdir(tmp_path)
    put(
        tmp_path, {"specs/a.xp": SPEC, "base/house.xp": HOUSE, "rows/v1/rows.jsonl": ROW * 8, "rows/v2/rows.jsonl": ROW}
    )
    (tmp_path / "specs" / "house.xp").symlink_to("../base/house.xp")
    (tmp_path / "data").symlink_to("rows/v1")
    branch_off(".")
    return tmp_path


def compared() -> int:
    return diff.run(diff.parse(["main:specs/a.xp", "specs/a.xp", "--exit-code"]))[1]


def test_a_commits_file_is_not_the_one_behind_a_link_of_today(linked: Path) -> None:
    """If a spec or its folder is a link now, `REV:FILE` still names the commit's own file. Before a fix, the spec
    behind the link was compared with itself: `the same run`.
    """
    put(linked, {"specs/b.xp": SPEC.replace("2 epochs", "5 epochs")})
    commit()
    git(".", "branch", "both")
    os.unlink("specs/a.xp")
    os.symlink("b.xp", "specs/a.xp")
    assert compared() == 1
    commit()
    git(".", "branch", "link")
    assert diff.run(diff.parse(["main:specs/a.xp", "link:specs/a.xp", "--exit-code"]))[1] == 1
    assert diff.run(diff.parse(["both:specs/b.xp", "link:specs/a.xp", "--exit-code"]))[1] == 0
    shutil.copytree("specs", "others", symlinks=True)
    shutil.rmtree("specs")
    os.symlink("others", "specs")
    assert compared() == 1
    assert diff.run(diff.parse(["both:specs/b.xp", str(linked / "specs" / "a.xp"), "--exit-code"]))[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("what", ["base", "rows", "link"])
def test_changes_behind_a_link_are_seen(what: str, linked: Path) -> None:
    """A change of a file behind a link is found. Before a fix, `diff` read the rows of both commits from the working
    tree, so the comment said `No run changes`.
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


@pytest.mark.slow
def test_a_submodule_is_read_at_the_commit_of_each_side(linked: Path, tmp_path: Path) -> None:
    """If two commits are compared, a submodule is read at the commit that each of the two records for it. Before a fix,
    both sides were read from the working tree, so `diff` printed `the same run` and the comment said `No run changes`.
    """
    put(tmp_path / "other", {"rows.jsonl": ROW * 8, "house.xp": HOUSE})
    git("other", "init", "-q")
    git("other", "add", "-A")
    git("other", "commit", "-qm", "one")
    git(".", "rm", "-q", "data")
    git(".", "submodule", "--quiet", "add", f"{tmp_path}/other", "data")
    put(linked, {"specs/b.xp": SPEC.replace("house.xp", "../data/house.xp")})
    shutil.rmtree("other")
    commit()
    git(".", "branch", "-f", "main")
    assert compared() == 0
    assert (
        verify.run(verify.parse(["--all"]))[0].splitlines()[0].endswith("tracked files are the same as in this commit")
    )
    put(linked, {"data/rows.jsonl": ROW * 4})
    git("data", "commit", "-qam", "two")
    assert "data differs from it" in verify.run(verify.parse(["--all"]))[0].splitlines()[0]
    commit()
    assert compared() == 1
    assert [one.path for one in entries(".", "main")] == ["specs/a.xp", "specs/b.xp"]
    shutil.rmtree(".git/modules")
    shutil.rmtree("data")
    os.mkdir("data")
    with pytest.raises(UsageError, match="is a submodule, and its commit"):
        compared()


@pytest.mark.slow
def test_a_pointer_of_lfs_is_its_file(linked: Path) -> None:
    """If a commit contains only an LFS pointer, the file's content is read from the working tree or from the store of
    Git LFS.
    """
    rows = (ROW * 8).encode()
    put(linked, {"rows/v1/rows.jsonl": pointer(rows)})
    commit()
    git(".", "branch", "-f", "main")
    put(linked, {"rows/v1/rows.jsonl": ROW * 8})
    assert compared() == 0
    assert (
        verify.run(verify.parse(["--all"]))[0].splitlines()[0].endswith("tracked files are the same as in this commit")
    )
    digest = sha256(rows).hexdigest()
    put(linked, {f".git/lfs/objects/{digest[:2]}/{digest[2:4]}/{digest}": ROW * 8, "rows/v1/rows.jsonl": ROW * 4})
    assert compared() == 1
    shutil.rmtree(linked / ".git" / "lfs")
    assert compared() == 5


@pytest.mark.parametrize("ending", ["jsonl", "txt", "csv", "parquet"])
def test_a_pointer_is_not_trained_on(ending: str, tmp_path: Path) -> None:
    """An LFS pointer is not data, and is refused. Its three lines were once read as three documents."""
    put(tmp_path, {f"rows.{ending}": pointer(b"rows")})
    text = f'xpc 1\ntrain qwen2.5-3b on "rows.{ending}" for 2 epochs\nhardware 1 x h100-80gb\n'
    (found,) = [one for one in checked(text, str(tmp_path)).problems if one.severity == "error"]
    assert found.code == "XP114"
    assert "git lfs pull" in found.message


# -- links in the folder of a local model ----------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the folder of a local model. Links in it lead to other folders, which have links back."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "models" / "tiny", LOCAL_MODEL)
    put(tmp_path, {"x.xp": LOCAL, "rows.jsonl": ROW * 8, "store/a.safetensors": "w", "other/f.safetensors": "w"})
    put(tmp_path, {"store/b.safetensors": "w", "store/deep/deep/deep.json": "{}"})
    for name, target in (("models/tiny/parts", "../../store"), ("store/again", "../other"), ("models/tiny/x", "."),
                         ("models/tiny/y", "../tiny"), ("store/up", "../models")):  # fmt: skip
        os.symlink(target, name)
    branch_off(".")
    return tmp_path


def test_links_in_circles_end(model: Path) -> None:
    """Copying the files of a commit ends even if links in the model's folder lead back to this folder."""
    assert diff.run(diff.parse(["main:x.xp", "x.xp", "--exit-code"]))[1] == 0
    assert list(entries(".", "main")) == []


CHANGES = {
    "a file": lambda: put(".", {"store/a.safetensors": "v"}),
    "a file behind two links": lambda: put(".", {"other/f.safetensors": "v"}),
    "a new file": lambda: put(".", {"other/g.safetensors": "v"}),
    "a file less": lambda: os.unlink("store/b.safetensors"),
    "the only file of a folder": lambda: git(".", "rm", "-q", "other/f.safetensors"),
    "another target": lambda: os.unlink("models/tiny/parts") or os.symlink("../../other", "models/tiny/parts"),
    "a link to nothing": lambda: os.unlink("store/again") or os.symlink("nowhere", "store/again"),
    "a pointer of LFS": lambda: put(".", {"store/a.safetensors": pointer(b"v")}),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", slow_but(CHANGES, ("a file behind two links", "a pointer of LFS").__contains__))
def test_a_change_behind_links_in_a_model(what: str, model: Path) -> None:
    CHANGES[what]()
    commit()
    if what == "a pointer of LFS":
        put(".", {"store/a.safetensors": "v"})
    assert diff.run(diff.parse(["main:x.xp", "x.xp", "--exit-code"]))[1] == 1
    assert diff.run(diff.parse(["change:x.xp", "x.xp", "--exit-code"]))[1] == 0
    (entry,) = entries(".", "main")
    assert entry.line.startswith("models/tiny/"), entry


def test_a_forged_tree_writes_nothing_elsewhere(model: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A forged git tree may contain both a link `a` and a file `a/b`, although git itself never writes such a tree. The
    file must not be written through the link.
    """
    outside = tmp_path_factory.mktemp("outside")
    blob, link = (
        subprocess.run(["git", "hash-object", "-w", "--stdin"], input=one, check=True, capture_output=True).stdout
        for one in (b"x", str(outside).encode())
    )
    inner = b"100644 f.json\0" + bytes.fromhex(blob.decode())
    below = subprocess.run(["git", "hash-object", "-w", "-t", "tree", "--stdin", "--literally"], input=inner,
                           check=True, capture_output=True).stdout  # fmt: skip
    entry = b"120000 evil\0" + bytes.fromhex(link.decode()) + b"40000 evil\0" + bytes.fromhex(below.decode())
    listed = subprocess.run(["git", "ls-tree", "HEAD:models/tiny"], check=True, capture_output=True).stdout
    for line in listed.splitlines():
        facts, name = line.split(b"\t")
        entry += facts.split()[0] + b" " + name + b"\0" + bytes.fromhex(facts.split()[2].decode())
    tree = subprocess.run(["git", "hash-object", "-w", "-t", "tree", "--stdin", "--literally"], input=entry,
                          check=True, capture_output=True).stdout  # fmt: skip
    for folder in ("tiny", "models"):
        above = subprocess.run(["git", "ls-tree", "HEAD:" + ("models" if folder == "tiny" else "")], check=True,
                               capture_output=True).stdout  # fmt: skip
        entry = b"".join(
            facts.split()[0].lstrip(b"0") + b" " + name + b"\0"
            + bytes.fromhex((tree if name == folder.encode() else facts.split()[2]).decode())
            for facts, name in (line.split(b"\t") for line in above.splitlines())
        )  # fmt: skip
        tree = subprocess.run(["git", "hash-object", "-w", "-t", "tree", "--stdin", "--literally"], input=entry,
                              check=True, capture_output=True).stdout  # fmt: skip
    forged = git(".", "commit-tree", "-m", "x", tree.decode().strip())
    diff.run(diff.parse([f"{forged}:x.xp", "x.xp"]))
    assert os.listdir(outside) == []
