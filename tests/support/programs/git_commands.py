"""Git repositories for tests: git has an author's name, and runs no hooks and no background work."""

from __future__ import annotations

import subprocess

OPTIONS = ("user.name=a", "user.email=a@b.c", "commit.gpgsign=false", "core.hooksPath=/dev/null", "gc.auto=0",
           "maintenance.auto=false", "protocol.file.allow=always")  # fmt: skip


def git(root: object, *words: str) -> str:
    """Run a git command in a folder; return its output. Raises CalledProcessError if the command fails."""
    options = [word for option in OPTIONS for word in ("-c", option)]
    done = subprocess.run(["git", *options, *words], cwd=str(root), check=True, capture_output=True, text=True)
    return done.stdout.strip()


def branch_off(root: object, *paths: str) -> None:
    """Make a repository. Its first commit has these paths (by default, all files). Then begin the branch `change`."""
    git(root, "init", "-q", "-b", "main")
    git(root, "add", *(paths or ("-A",)))
    git(root, "commit", "-qm", "first")
    git(root, "checkout", "-q", "-b", "change")
