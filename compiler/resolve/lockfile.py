"""Reads `SPEC.lock`, which lies next to the spec and is written by `xpc lock`. Loaded only for a spec with a lock.

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
"""The last table. A bundle contains a copy of the lock up to here, because it cannot contain its own digest."""


def read(workspace: Workspace) -> tuple[Lock | None, list[Diagnostic]]:
    """The lock next to a spec. An unreadable lock is an error: its pins would be ignored silently."""
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
    head = table["lock"]
    digest = str(table.get("bundle", {}).get("digest", ""))
    return Lock(name, tuple(pins), files, rows, environments, str(head["target"]), str(head["xpc"]), digest, text)


def _pin(kind: str, one: Mapping[str, Any]) -> Pin:
    return Pin(
        kind, str(one["id"]), str(one.get("asked", "")), str(one["revision"]), str(one.get("part", "")),
        str(one.get("config", "")), one.get("chat"), str(one.get("template", "")),
        tuple(map(str, one.get("columns", ()))), {str(split): int(n) for split, n in one.get("rows", {}).items()},
    )  # fmt: skip


def bundle_digest(files: Mapping[str, bytes]) -> str:
    """The digest of a bundle's files, or of a sweep's, without the copy of the lock and without manifests, which have
    the digest of the source with its comments."""
    total = sha256()
    for name in sorted(files):
        last = name.rpartition("/")[2]
        if last not in ("bundle.toml", "sweep.toml") and not name.endswith(".lock"):
            total.update(f"{name}\0{sha256(files[name]).hexdigest()}\n".encode("utf-8", "surrogatepass"))
    return "sha256:" + total.hexdigest()


def constraints(lock: Lock) -> bytes | None:
    """The constraints for `pip install -c`: the resolved packages of the training environment."""
    found = lock.environments.get("requirements.txt")
    return None if found is None else "".join(f"{one}\n" for one in found.resolved).encode()
