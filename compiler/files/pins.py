"""What a lock holds: the commits, files and packages that the names of a spec meant when `xpc lock` looked."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.grammar.record import field, mutable, record

MODEL, DATASET, KERNEL = KINDS = ("model", "dataset", "kernel")


@record
class Pin:
    """A repository of the hub. `asked` is the branch, tag or commit of the spec, empty for the default branch.

    Of a model: `config` is the text of its config.json, `chat` says whether its tokenizer has a chat template, and
    `template` is the digest of that. Of a dataset: `columns`, and `rows` of each split, of one `part` (configuration).
    A kernel has nothing but its commit.
    """

    kind: str
    id: str
    asked: str
    revision: str
    part: str = ""
    config: str = ""
    chat: bool | None = None
    template: str = ""
    columns: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(factory=dict)

    @property
    def name(self) -> str:
        """As it is typed."""
        return f"{self.id}{f':{self.part}' if self.part else ''}{f'@{self.asked}' if self.asked else ''}"


@record
class Environment:
    """What one pip is asked for, and every package that this comes to."""

    asked: tuple[str, ...]
    resolved: tuple[str, ...]


@mutable
class Lock:
    """A lock, and while a spec is resolved with it: `asked`, every reference that was looked up, with what was found.

    `name` is the file's. `files` are digests and `rows` counts by the names that the spec has, `digest` is the bundle's
    and `text` the part of the file that a bundle copies.
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
    asked: dict[tuple[str, str, str, str], Pin | None] = field(factory=dict)

    def find(self, kind: str, id: str, asked: str | None, part: str | None = None) -> Pin | None:
        """The pin of a reference: the same repository, asked for at the same branch, or at the very commit."""
        wanted = asked or ""
        for one in self.pins:
            if (one.kind, one.id, one.part) == (kind, id, part or "") and wanted in (one.asked, one.revision):
                break
        else:
            one = None
        self.asked[kind, id, wanted, part or ""] = one
        return one
