"""Read `SPEC.lock`, which `xpc lock` writes next to the spec. This module is imported only for a spec that has a lock.

The lock is TOML, so that a reviewer can read what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from xpc.compiler.files import bounded_toml
from xpc.compiler.files.pins import KINDS, Environment, Lock, Pin
from xpc.compiler.files.workspace import Unreadable, Workspace
from xpc.compiler.language.codes import report
from xpc.compiler.resolve import lock_fields as fields
from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.source import Source, Span

FORMAT = 1
BUNDLE = "\n[bundle]\n"
"""The last table of a lock, which contains the digest of the bundle. The copy of the lock in the bundle lacks this
table, because a bundle cannot contain its own digest.
"""


def read(workspace: Workspace) -> tuple[Lock | None, list[Diagnostic]]:
    """Read the lock next to a spec. None if there is no lock. An unreadable lock is an error, because without this
    error its pins would silently be ignored.
    """
    name = workspace.lock
    try:
        found = workspace.read(name)
    except Unreadable as error:
        return None, [_wrong(name, str(error))]
    above = found.data.partition(BUNDLE.encode())[0]
    workspace.reads[name] = sha256(above).hexdigest()
    try:
        table = bounded_toml.loads(found.data.decode())
        if table["lock"]["format"] != FORMAT:
            return None, [_wrong(name, f"another version of xpc wrote the lock `{name}`")]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None, [_wrong(name, f"`{name}` is not a lock of xpc")]
    try:
        return _lock(name, table, above), []
    except ValueError as error:
        return None, [_wrong(name, f"`{name}` {error}")]
    except (RecursionError, KeyError, TypeError, AttributeError):
        return None, [_wrong(name, f"`{name}` is not a lock of xpc")]


def _wrong(name: str, why: str) -> Diagnostic:
    return report("XP114", why, Label(Source(name, ""), Span(0, 0)), help="`xpc lock` rewrites it")


def _lock(name: str, table: Mapping[str, Any], text: bytes) -> Lock:
    """Make a Lock from its TOML table. Raises ValueError with a sentence for an invalid field."""
    fields.known(table, "lock", *KINDS, "files", "rows", "environment", "bundle")
    head, bundle = table["lock"], table.get("bundle", {})
    fields.known(head, "format", "xpc", "target")
    fields.known(bundle, "digest")
    pins = [_pin(kind, one) for kind in KINDS for one in table.get(kind, ())]
    if len({(one.kind, one.id, one.part, one.requested) for one in pins}) < len(pins):
        raise ValueError("pins a repository twice")
    environments = {
        title: Environment(*fields.packages(title, one)) for title, one in table.get("environment", {}).items()
    }
    return Lock(
        name, tuple(pins), fields.digests(table.get("files", {})), fields.counts(table.get("rows", {})), environments,
        fields.text(head, "target"), fields.text(head, "xpc"),
        fields.matching(bundle, "digest", fields.DIGEST, "`sha256:` and 64 digits", ""), text,
    )  # fmt: skip


def _pin(kind: str, one: Mapping[str, Any]) -> Pin:
    fields.known(one, "id", "part", "asked", "revision", "template", "chat", "config", "columns", "rows")
    chat = one.get("chat")
    if chat is not None and not isinstance(chat, bool):
        raise ValueError("has a `chat` that is not true or false")
    return Pin(
        kind, fields.matching(one, "id", fields.REPOSITORY, "a repository"),
        fields.matching(one, "asked", fields.BRANCH, "a branch, tag or commit", ""), fields.commit(one),
        fields.text(one, "part", ""), fields.config(one), chat,
        fields.matching(one, "template", fields.DIGEST, "`sha256:` and 64 digits", ""),
        fields.texts(one, "columns"), fields.counts(one.get("rows", {})),
    )  # fmt: skip


def bundle_digest(files: Mapping[str, bytes]) -> str:
    """The digest of all files of a bundle or a sweep, except the copy of the lock and the manifests. A manifest changes
    with every comment in the spec, because it contains the digest of the spec's text.
    """
    total = sha256()
    for name in sorted(files):
        last = name.rpartition("/")[2]
        if last not in ("bundle.toml", "sweep.toml") and not name.endswith(".lock"):
            total.update(f"{name}\0{sha256(files[name]).hexdigest()}\n".encode("utf-8", "surrogatepass"))
    return "sha256:" + total.hexdigest()


def constraints(lock: Lock) -> bytes | None:
    """The constraints file for `pip install -c`, which lists the resolved packages of the training environment. None if
    the lock has no packages.
    """
    found = lock.environments.get("requirements.txt")
    return None if found is None else "".join(f"{one}\n" for one in found.resolved).encode()
