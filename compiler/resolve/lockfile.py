"""`SPEC.lock`, read where it lies beside the spec; `xpc lock` writes it. Loaded only for a spec that has one.

It is TOML, so that a reviewer can read what moved.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from xpc.compiler.files.pins import KINDS, Environment, Lock, Pin
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.codes import report
from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.source import Source, Span

FORMAT = 1
BUNDLE = "\n[bundle]\n"
"""The last table. A bundle holds a copy of what is above it: it cannot hold its own digest."""


def read(workspace: Workspace) -> tuple[Lock | None, list[Diagnostic]]:
    """The lock beside a spec. One that cannot be read is an error: what it pins would float unseen."""
    name = workspace.lock
    found = workspace.read(name)
    if isinstance(found, str):
        return None, [_wrong(name, found)]
    above = found.data.partition(BUNDLE.encode())[0]
    workspace.reads[name] = sha256(above).hexdigest()
    try:
        table = tomllib.loads(found.data.decode())
        if table["lock"]["format"] != FORMAT:
            return None, [_wrong(name, f"`{name}` is of another version of xpc")]
        return _lock(name, table, above), []
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None, [_wrong(name, f"`{name}` is not a lock of xpc")]


def _wrong(name: str, why: str) -> Diagnostic:
    return report("XP114", why, Label(Source(name, ""), Span(0, 0)), help="`xpc lock` writes it anew")


def _lock(name: str, table: Mapping[str, Any], text: bytes) -> Lock:
    pins = [_pin(kind, one) for kind in KINDS for one in table.get(kind, ())]
    environments = {
        str(title): Environment(tuple(map(str, one["asked"])), tuple(map(str, one["resolved"])))
        for title, one in table.get("environment", {}).items()
    }
    files = {str(file): str(digest) for file, digest in table.get("files", {}).items()}
    rows = {str(file): int(count) for file, count in table.get("rows", {}).items()}
    said = table["lock"]
    digest = str(table.get("bundle", {}).get("digest", ""))
    return Lock(name, tuple(pins), files, rows, environments, str(said["target"]), str(said["xpc"]), digest, text)


def _pin(kind: str, one: Mapping[str, Any]) -> Pin:
    return Pin(
        kind, str(one["id"]), str(one.get("asked", "")), str(one["revision"]), str(one.get("part", "")),
        str(one.get("config", "")), one.get("chat"), str(one.get("template", "")),
        tuple(map(str, one.get("columns", ()))), {str(split): int(n) for split, n in one.get("rows", {}).items()},
    )  # fmt: skip


def bundle_digest(files: Mapping[str, bytes]) -> str:
    """The digest of a bundle's files, or of a sweep's: without manifests, which name the source's comments by their
    digest, and without the copy of the lock."""
    total = sha256()
    for name in sorted(files):
        last = name.rpartition("/")[2]
        if last not in ("bundle.toml", "sweep.toml") and not name.endswith(".lock"):
            total.update(f"{name}\0{sha256(files[name]).hexdigest()}\n".encode("utf-8", "surrogatepass"))
    return "sha256:" + total.hexdigest()


def constraints(lock: Lock) -> bytes | None:
    """What `pip install -c` reads: the packages that the training environment resolved to."""
    found = lock.environments.get("requirements.txt")
    return None if found is None else "".join(f"{one}\n" for one in found.resolved).encode()
