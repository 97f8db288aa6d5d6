"""Write a lock file: TOML with one entry per line, so that a diff shows what changed."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.files.pins import KINDS, Lock
from xpc.compiler.lower.toml_text import key, value
from xpc.compiler.resolve.lockfile import BUNDLE, FORMAT

HEAD = "# Pinned versions of what the spec names, written by `xpc lock`. Commit this file next to the spec.\n"


def written(lock: Lock) -> bytes:
    """The text of the lock without its last part, which is the digest of the bundle. The bundle contains a copy of this
    shorter text.
    """
    out = [HEAD, "\n[lock]\n", f"format = {FORMAT}\n", f"xpc = {value(lock.xpc)}\n", f"target = {value(lock.target)}\n"]
    for one in sorted(lock.pins, key=lambda pin: (KINDS.index(pin.kind), pin.id, pin.part, pin.requested)):
        out += [f"\n[[{one.kind}]]\n", f"id = {value(one.id)}\n"]
        texts = {"part": one.part, "asked": one.requested, "revision": one.revision, "template": one.template}
        out += [f"{name} = {value(text)}\n" for name, text in texts.items() if text]
        if one.chat is not None:
            out.append(f"chat = {'true' if one.chat else 'false'}\n")
        if one.config:
            out.append(f"config = {value(one.config)}\n")
        if one.columns:
            out.append(f"columns = {_list(one.columns)}\n")
        if one.rows:
            out.append(f"rows = {{ {', '.join(f'{key(split)} = {n}' for split, n in sorted(one.rows.items()))} }}\n")
    tables: dict[str, Mapping[str, str | int]] = {"files": {**lock.files}, "rows": {**lock.rows}}
    for title, table in tables.items():
        lines = [f"{key(name)} = {value(one)}\n" for name, one in sorted(table.items())]
        out += [f"\n[{title}]\n", *lines] if lines else []
    for title, environment in sorted(lock.environments.items()):
        out += [f"\n[environment.{key(title)}]\n", f"asked = {_list(environment.requirements)}\n"]
        out += ["resolved = [\n", *(f"  {value(one)},\n" for one in environment.resolved), "]\n"]
    return "".join(out).encode("utf-8", "surrogatepass")


def complete(lock: Lock) -> bytes:
    """The complete text of the lock file."""
    return written(lock) + f"{BUNDLE}digest = {value(lock.digest)}\n".encode()


def _list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(value, texts))}]"
