"""The files that a spec names, read through one door so that every byte that decides a bundle is counted and hashed.

`Workspace` is the edge of the pure stages: they ask it for a file by the name written in the spec, relative to the file
that names it, and get bytes or a sentence. Names in results are relative to the spec's folder, never absolute, so a
bundle does not know on which machine it was compiled.
"""

from __future__ import annotations

import os
from hashlib import sha256

from attrs import field

from xpc.grammar.record import mutable, record

MAX_TEXT = 16 * 2**20
"""Largest text (spec, template, config) that is read, bytes."""
MAX_DATA = 64 * 2**20
"""Largest local data file that is copied into a bundle, bytes."""
HEAD = 2**20
"""What is read of a data file to see the columns of its first row, bytes."""
BASES = (".xp",)
OURS = (*BASES, ".jinja", ".jinja2", ".j2")
"""Endings of files that are written for a training run and for nothing else."""
TEXTS = (*OURS, ".txt", ".md", ".json", ".jsonl", ".yaml", ".yml", ".py", ".csv", ".tsv", ".parquet", ".arrow")
"""Endings of files that a spec may name out of its own folder: keys and passwords have none of them."""

MARKS = (
    "hf_", "sk-", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AIza",
    "PRIVATE KEY", "wandb_v1_",
)  # fmt: skip
"""What tokens begin with, or hold."""


@record
class Read:
    """A file that was read: the name it is known by, its bytes and their SHA-256 in hex."""

    name: str
    data: bytes = field(repr=False)
    digest: str


@mutable
class Workspace:
    """Files relative to `root`, the folder of the spec.

    `seen` maps every path that was asked for to its digest, `reads` the names of files that were read.
    """

    root: str
    seen: dict[str, str] = field(factory=dict)
    reads: dict[str, str] = field(factory=dict)

    def locate(self, written: str, base: str = "") -> tuple[str, str]:
        """The name and the path of a file written in `base` (a name relative to the root)."""
        if os.path.isabs(written):
            return written, written
        name = os.path.normpath(os.path.join(os.path.dirname(base), written)).replace(os.sep, "/")
        return name, os.path.join(self.root, name)

    def read_beside(
        self, written: str, base: str, endings: tuple[str, ...] = TEXTS, limit: int = MAX_TEXT
    ) -> Read | str:
        """A file named by `file("x")` or `extends "x"`, which are relative to the file `base` that says so.

        An absolute path is refused: what it names goes into the bundle, and differs from machine to machine. So is what
        is no text of a training run and lies elsewhere (`astray`).
        """
        if os.path.isabs(written):
            return f"`{_shown(written)}` is an absolute path"
        return self.astray(written, base, endings) or self.read(written, base, limit)

    def astray(self, written: str, base: str = "", endings: tuple[str, ...] = TEXTS) -> str:
        """Why a file out of the spec's folder, by its name or by a link, is not taken; nothing where it is.

        A spec may come from anybody, and what it names is copied into a bundle that others can read, or quoted in a
        diagnostic: `../../.ssh/id_ed25519` and a link to it are not followed. Templates and bases of a folder beside
        the spec's are.
        """
        if "\0" in written:
            return ""  # refused where it is read
        home, path = os.path.realpath(self.root), os.path.realpath(self.locate(written, base)[1])
        above = os.path.commonpath((home, path))
        if above == home:
            return ""
        name = path.lower()
        if not name.endswith(endings):
            return (
                f"`{_shown(written)}` lies outside of the spec's folder, and does not end in {' or '.join(endings[:4])}"
            )
        if not name.endswith(OURS) and any(part.startswith(".") for part in os.path.relpath(path, above).split(os.sep)):
            return f"`{_shown(written)}` lies in a hidden folder, outside of the spec's"
        return ""

    def read(self, written: str, base: str = "", limit: int = MAX_TEXT) -> Read | str:
        """The file's bytes, or a sentence that says why not."""
        if "\0" in written or not written.strip():
            return "the name of a file cannot be empty or hold NUL"
        name, path = self.locate(written, base)
        self.seen[path] = ""  # whatever stands there decides the answer
        try:
            if os.path.isdir(path):
                return f"`{_shown(written)}` is a folder"
            if os.path.exists(path) and not os.path.isfile(path):
                return f"`{_shown(written)}` is not a regular file"
            if os.path.getsize(path) > limit:
                return f"`{_shown(written)}` is larger than {limit // 2**20} MiB"
            with open(path, "rb", opener=_without_waiting) as handle:
                data: bytes | None = handle.read(limit + 1)
            if data is None:
                return f"`{_shown(written)}` has nothing to read"
            if len(data) > limit:  # files of /proc have size 0
                return f"`{_shown(written)}` is larger than {limit // 2**20} MiB"
        except FileNotFoundError:
            return f"`{_shown(written)}` is not there"
        except (OSError, ValueError) as error:
            return f"`{_shown(written)}` cannot be read ({getattr(error, 'strerror', None) or error})"
        digest = sha256(data).hexdigest()
        self.seen[path] = self.reads[name] = digest
        return Read(name, data, digest)

    def kind(self, written: str, base: str = "") -> str:
        """`file`, `folder` or `` for nothing there."""
        if "\0" in written:
            return ""
        _, path = self.locate(written, base)
        try:
            found = "folder" if os.path.isdir(path) else "file" if os.path.isfile(path) else ""
        except (OSError, ValueError):
            return ""
        self.seen.setdefault(path, found)
        return found

    def size(self, written: str) -> int:
        """Bytes of a file that is there."""
        return os.path.getsize(self.locate(written)[1])

    def head(self, written: str) -> bytes:
        """The first MiB of a local data file, to see the columns of its first row."""
        with open(self.locate(written)[1], "rb", opener=_without_waiting) as handle:
            return handle.read(HEAD) or b""  # None: a file that would have to be waited for


def _without_waiting(path: str, flags: int) -> int:
    """Some files look regular and have no end or no beginning (/proc/kmsg): an error is better than waiting for one."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _shown(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "..."


def suspect(text: str) -> bool:
    """Whether a text may hold what `secrets.find` knows: cheap, for nearly every text is without."""
    if any(mark in text for mark in MARKS):
        return True
    return "://" in text and any(
        "@" in part[:400].partition("/")[0].partition("\n")[0] for part in text.split("://")[1:]
    )
