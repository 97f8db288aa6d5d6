"""xpc reads what git prints only up to a limit. For large files, many files and long lists, the result is one
sentence.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from compile_support import put, xpc
from git_commands import branch_off, git

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review import repository
from xpc.compiler.review.pull_request import comment, entries
from xpc.compiler.review.repository import Commit, Repository, find
from xpc.compiler.review.spec_finder import specs_of_commit

SPEC = "xpc 1\n\ntrain qwen2.5-0.5b-instruct on alpaca for 1 epochs\n\nhardware 1 x h100-80gb\nprecision bf16\n"
BATCH = "\nbatch {\n  gbs = 16\n  micro = 4\n  seq = 512\n}\n"


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose branch changes a spec."""
    root = tmp_path / "work"
    put(root, {"a.xp": SPEC + BATCH, "b.xp": SPEC + BATCH + "seed 8\n"})
    branch_off(root)
    put(root, {"a.xp": SPEC + BATCH.replace("16", "32")})
    git(root, "commit", "-qam", "two")
    monkeypatch.chdir(root)
    return root


def opened(folder: str = ".") -> tuple[Repository, Commit]:
    found = find(folder)
    assert found is not None
    commit = found.commit("HEAD")
    assert commit is not None
    return found, Commit.of(found, commit)


@pytest.mark.slow
def test_a_program_with_an_answer_without_an_end_is_killed(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"#!{sys.executable} -I\nimport sys\nwhile True:\n    sys.stdout.write('x' * 2**16)\n"
    put(tmp_path / "bin", {"git": script})
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = find(".")
    assert found is not None
    with pytest.raises(UsageError, match=r"git's answer about .* is longer than 128 MiB"):
        found.git("ls-tree")


@pytest.mark.slow
def test_a_long_input_and_a_long_answer_do_not_wait_for_each_other(top: Path) -> None:
    found, commit = opened()
    blob = commit.files["b.xp"][1]
    answer = found.git("cat-file", "--batch-check=%(objectname) %(objectsize)", given=f"{blob}\n".encode() * 50_000)
    assert answer is not None
    assert answer.count(blob.encode()) == 50_000


def test_a_large_file_of_a_commit_is_a_sentence(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "LARGEST_FILE", 2**20)
    put(top, {"rows.jsonl": "x" * (2**20 + 1)})
    git(top, "add", "-A")
    git(top, "commit", "-qm", "three")
    _, commit = opened()
    monkeypatch.setattr(Commit.read, "__kwdefaults__", {"most": 2**20})
    with pytest.raises(UsageError, match=r"rows.jsonl is larger than 1 MiB, and is not read"):
        commit.data("rows.jsonl")
    assert commit.data("a.xp") == (SPEC + BATCH.replace("16", "32")).encode()


def test_files_that_are_large_together_are_a_sentence(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "TOTAL", 200)
    _, commit = opened()
    with pytest.raises(UsageError, match=r"the files of .* that specs read have more than"):
        commit.read("a.xp", "b.xp")


def test_many_files_are_a_sentence(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MOST_FILES", 1)
    found = find(".")
    assert found is not None
    with pytest.raises(UsageError, match="has more than 1 files"):
        found.index()
    done = xpc("diff", "HEAD:a.xp", "a.xp", cwd=str(top))
    assert (done.returncode, b"has more than 1 files, too many for xpc" in done.stderr) == (2, True), done


@pytest.mark.slow
def test_a_spec_of_20_mib_hides_no_other_spec(top: Path) -> None:
    put(top, {"large.xp": SPEC + "# x\n" * 5 * 2**20})
    git(top, "add", "-A")
    git(top, "commit", "-qm", "three")
    _, commit = opened()
    found = specs_of_commit(commit)
    assert (set(found.runs), commit.total < 2**20) == ({"a.xp", "b.xp", "large.xp"}, True)
    text = comment(list(entries(".", "main")))
    assert "gbs 16 -&gt; 32" in text
    assert "large.xp" in text


@pytest.mark.slow
def test_a_tree_that_is_in_itself_many_times_is_a_sentence(top: Path) -> None:
    """A repository has ten nested git trees, each of which contains the next one under ten names. So a few kilobytes
    stand for 10**10 files.
    """
    environment = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def made(*words: str, given: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=top, input=given, capture_output=True, text=True, check=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        return done.stdout.strip()

    tree = made("mktree", given=f"100644 blob {made('hash-object', '-w', '--stdin', given='x')}\tx\n")
    for _ in range(10):
        tree = made("mktree", given="".join(f"040000 tree {tree}\t{n}\n" for n in range(10)))
    commit = made("commit-tree", tree, given="all\n")
    done = xpc("diff", f"{commit}:0/0/a.xp", "a.xp", cwd=str(top))
    assert (done.returncode, b"is longer than 128 MiB" in done.stderr) == (2, True), done


@pytest.mark.parametrize("name", ["HEAD", "config", "packed-refs", "objects/info/alternates", "commondir"])
def test_a_pipe_in_the_folder_of_git_is_not_waited_for(top: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unpacked archive has a folder `.git` in which a file is a pipe. git itself would wait for ever, but xpc must
    not.
    """
    path = top / ".git" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    monkeypatch.setattr(repository, "SECONDS", 0.5)
    with pytest.raises(UsageError, match=r"git took more than 0\.5 seconds to read .*, and was stopped"):
        opened()[0].commit("main")
