"""The contents of a lock file: the commits, files and packages that the names in a spec referred to when `xpc lock`
ran.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.grammar.record import entity, field, record

MODEL, DATASET, KERNEL = KINDS = ("model", "dataset", "kernel")


@record
class Pin:
    """The pinned commit of a repository on the hub. `requested` is the branch, tag or commit in the spec, "" for the
    default branch.

    For a model, `config` is the text of its config.json, `chat` tells whether its tokenizer has a chat template, and
    `template` is the digest of this template. For a dataset, `part` is its configuration; `columns` and `rows` are this
    configuration's columns and its number of rows in each split. A kernel has only a commit.
    """

    kind: str
    id: str
    requested: str
    revision: str
    part: str = ""
    config: str = ""
    chat: bool | None = None
    template: str = ""
    columns: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(factory=dict)

    @property
    def name(self) -> str:
        """The repository in the notation of a spec: `org/rows:part@v1`."""
        return f"{self.id}{f':{self.part}' if self.part else ''}{f'@{self.requested}' if self.requested else ''}"


@record
class Environment:
    """The packages of one pip command. `requirements` are those that the command names. `resolved` are all packages
    that pip installs for the command, each with its version.
    """

    requirements: tuple[str, ...]
    resolved: tuple[str, ...]


@entity
class Lock:
    """A lock file. `lookups` is filled while a spec is resolved: it maps each of the spec's references to the hub to
    the reference's pin in the lock, or to None.

    `name` is the name of the lock file. `files` and `rows` map the name of a file in the spec to its digest and to its
    number of rows. `digest` is the digest of the bundle. `text` is the part of the lock file that a bundle copies.
    """

    name: str
    pins: tuple[Pin, ...] = ()
    files: Mapping[str, str] = field(factory=dict)
    rows: Mapping[str, int] = field(factory=dict)
    environments: Mapping[str, Environment] = field(factory=dict)
    target: str = ""
    xpc: str = ""
    digest: str = ""
    text: bytes = b""
    lookups: dict[tuple[str, str, str, str], Pin | None] = field(factory=dict)

    def find(self, kind: str, id: str, requested: str | None, part: str | None = None) -> Pin | None:
        """The pin of a repository on the hub for the revision `requested` in a spec. A pin fits if `requested` is the
        branch or tag for which the pin was made, or the pinned commit. None if no pin fits.
        """
        wanted = requested or ""
        for one in self.pins:
            if (one.kind, one.id, one.part) == (kind, id, part or "") and wanted in (one.requested, one.revision):
                break
        else:
            one = None
        self.lookups[kind, id, wanted, part or ""] = one
        return one
