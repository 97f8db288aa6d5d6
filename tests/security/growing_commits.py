"""Inputs of a given size for the functions that read git's output and the records of runs; see growing.py.

Git's answers are made here, so that only our own loops are measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress

from case_support import spec
from compile_support import checked, put

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.report.command import parse as parse_report
from xpc.compiler.report.command import run as report
from xpc.compiler.review.commit_paths import followed
from xpc.compiler.review.operands import Operand, Run
from xpc.compiler.review.pull_request.causes import cause
from xpc.compiler.review.pull_request.entries import changed_files
from xpc.compiler.review.repository import LINK, Commit, Repository
from xpc.compiler.review.spec_finder import parents, specs_of_commit
from xpc.compiler.review.verifying import run_files
from xpc.compiler.tuning import finished

Work = Callable[[], object]
FILE = "100644"
SPEC = 'xpc 1\n\nextends "{}"\n\ntrain qwen2.5-0.5b on alpaca\n'


class Answers(Repository):
    """A repository that answers like git. It has one commit; `files` has the path, the mode and the content of each
    file in this commit.
    """

    def __init__(self, files: Iterable[tuple[str, str, bytes]]) -> None:
        listed, staged, blobs = list[str](), list[str](), dict[str, bytes]()
        for path, mode, data in files:
            blob = hashlib.sha1(data, usedforsecurity=False).hexdigest()
            listed.append(f"{mode} blob {blob}\t{path}\0")
            staged.append(f"{mode} {blob} 0\t{path}\0")
            blobs[blob] = data
        lists = {"ls-tree": "".join(listed).encode(), "ls-files": "".join(staged).encode()}
        for name, value in (("top", "/nowhere"), ("folder", "/nowhere/.git"), ("lists", lists), ("blobs", blobs)):
            object.__setattr__(self, name, value)

    def git(self, *arguments: str, given: bytes = b"", most: int = 0) -> bytes | None:
        """Answer a subcommand of git with the output that git would print."""
        if arguments[0] != "cat-file":
            return self.lists[arguments[0]]  # type: ignore[attr-defined, no-any-return]
        found = [(name, self.blobs[name]) for name in given.decode().split()]  # type: ignore[attr-defined]
        if arguments[1] == "--batch":
            return b"".join(f"{name} blob {len(data)}\n".encode() + data + b"\n" for name, data in found)
        return "".join(f"{name} {len(data)}\n" for name, data in found).encode()


def committed(
    make: Callable[[int], Iterable[tuple[str, str, bytes]]], work: Callable[[Commit], object]
) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: listing the files
    of a commit, and calling `work` with the commit.
    """

    def sized(n: int) -> Work:
        repository = Answers(make(n))

        def timed() -> None:
            with suppress(UsageError):
                work(Commit.of(repository, "1" * 40))

        return timed

    return sized


def files(n: int) -> Iterable[tuple[str, str, bytes]]:
    return ((f"a/{one % 97}/{one}", FILE, b"%d" % one) for one in range(n))


def specs(base: Callable[[int], str], more: Callable[[int], Iterable[tuple[str, str, bytes]]] = lambda n: ()):
    """Return a function that makes n specs; the spec `number` extends `base(number)`."""

    def made(n: int) -> Iterable[tuple[str, str, bytes]]:
        yield from ((f"s/{one}.xp", FILE, SPEC.format(base(one)).encode()) for one in range(n))
        yield from more(n)

    return made


def read_all(commit: Commit) -> None:
    commit.read(*commit.files)


def below_a_module(commit: Commit) -> None:
    """Call the functions that follow or split a path, for every file of a commit that contains a submodule."""
    commit.modules["m"] = "1" * 40
    for path in commit.files:
        commit.module(path)
        commit.folder(path)
        list(followed(path, commit.link))
        parents(path)


def copies(n: int) -> Iterable[tuple[str, str, bytes]]:
    for one in range(n):
        yield f"{one}.bundle/spec.xp", FILE, b"train a on b # %d\n" % one
        yield f"{one}.bundle/bundle.toml", FILE, b'[bundle]\nspec = "a.xp"\n[files]\n'


def changed(n: int) -> Work:
    one, other = (Commit.of(Answers((path, mode, data + end) for path, mode, data in files(n)), "1" * 40)
                  for end in (b"", b"x"))  # fmt: skip
    return lambda: changed_files(one, other)


def recorded(make: Callable[[int], str], work: Callable[[str], object]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: calling `work` with
    the folder of a finished run, whose metrics.jsonl is `make(n)`.
    """

    def sized(n: int) -> Work:
        folder, text = tempfile.mkdtemp(dir=os.environ.get("PYTEST_TMP")), make(n)
        put(folder, {"metrics.jsonl": text, "summary.json": '{"steps": 1}'})

        def timed() -> None:
            with suppress(UsageError):
                work(folder)

        return timed

    return sized


def disagreements(folder: str) -> object:
    return list(run_files._disagreements(folder, {}))


def page(folder: str) -> object:
    return report(parse_report([folder, "--html", os.path.join(folder, "x.html")]))


def events(n: int, **more: object) -> str:
    return "".join(
        json.dumps({"step": one + 1, "loss": 1.0, "seconds": 1.0 * one, "tokens": one, **more}) + "\n"
        for one in range(n)
    )


def compared(line: Callable[[int, bool], str]) -> Callable[[int], Work]:
    """Return a function of the input's size n. It makes the input and returns the work to be timed: finding, ten times,
    the lines that change a spec. `line(k, new)` is the line of source k, in the new spec if `new` is true, otherwise in
    the old spec. A spec has at most 8,000 sources.
    """

    def sized(n: int) -> Work:
        sides = []
        for new in (False, True):
            sources = "".join(f"  {line(one, new)}\n" for one in range(min(n, 8000)))
            found = checked(spec(train="qwen2.5-0.5b on data for 1 epochs") + f"data {{\n{sources}}}\n").spec
            assert found is not None
            sides.append(Operand("a.xp", (Run("", found),)))
        return lambda: [cause("a.xp", *sides) for _ in range(10)]

    return sized


RECORDS: dict[str, Callable[[int], str]] = {
    "steps": events,
    "damaged lines": lambda n: "{\n" * n,
    "empty lines": lambda n: "\n" * n,
    "names": lambda n: json.dumps({"step": 1, "loss": 1.0, **{f"eval_{one}_loss": 1.0 for one in range(n)}}) + "\n",
    "another name in each step": lambda n: "".join(
        json.dumps({"step": one, "loss": 1.0, f"rewards/f{one}/mean": 1.0}) + "\n" for one in range(n)
    ),
    "steps backwards": lambda n: "".join(f'{{"step": {n - one}, "loss": 1}}\n' for one in range(n)),
    "a nested value": lambda n: '{"step": 1, "loss": ' + "[" * n + "\n",
    "a text": lambda n: json.dumps({"step": 1, "loss": "\u202e" * n}) + "\n",
}
READERS: dict[str, Callable[[str], object]] = {"verify": disagreements, "report": page, "tune": finished.events}
COMMITS: dict[str, Callable[[int], Work]] = {
    "git: files of a commit": committed(files, lambda commit: commit.folder("a/1")),
    "git: files of the index": committed(files, lambda commit: commit.repository.index()),
    "git: contents of files": committed(files, read_all),
    "git: changed files": changed,
    "git: one content in many files": committed(lambda n: ((f"{one}", FILE, b"x") for one in range(n)), read_all),
    "git: a path of many folders": committed(lambda n: [("a/" * n + "b", FILE, b"x")], below_a_module),
    "git: links": committed(lambda n: ((f"l{one}", LINK, b"l%d" % (one + 1)) for one in range(n)), specs_of_commit),
    "git: specs of one base": committed(specs(lambda _: "b.xp"), specs_of_commit),
    "git: specs that extend the next": committed(specs(lambda one: f"{one + 1}.xp"), specs_of_commit),
    "git: specs that extend a link": committed(
        specs(lambda one: f"../l{one}.xp", lambda n: ((f"l{one}.xp", LINK, b"s/0.xp") for one in range(n))),
        specs_of_commit,
    ),
    "git: specs of a base that is not there": committed(specs(lambda one: f"{'../' * 40}x{one}"), specs_of_commit),
    "git: specs of bundles": committed(copies, specs_of_commit),
    "git: the path of a base": committed(
        lambda n: [("a.xp", FILE, SPEC.format("a/" * min(n, 120_000) + "b.xp").encode())], specs_of_commit
    ),
    **{
        f"{reader}: {what}": recorded(make, work)
        for reader, work in READERS.items()
        for what, make in RECORDS.items()
    },
    "cause: sources": compared(lambda one, new: f"a/{one}{'x' * new}"),
    "cause: sources that repeat": compared(lambda one, new: f"a/{(one * one * 7 + 3 * new) % 5}"),
}  # fmt: skip
