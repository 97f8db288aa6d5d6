"""Distinguish paths from names on the hub, for models and datasets."""

from __future__ import annotations

from xpc.compiler.files.workspace import DATA_FORMATS, Workspace
from xpc.grammar.diagnostic import Diagnostic, Label


def unquoted(name: str, label: Label, code: str, note: str, workspace: Workspace) -> Diagnostic | None:
    """The finding for a path without quotes. A name is taken for a path if it looks like the name of a file, or if a
    local file has this name. None for any other name.
    """
    kind = workspace.kind(name)
    if not kind and not name.lower().endswith((*DATA_FORMATS, ".safetensors", ".gguf")):
        return None
    # imported only here, because only a wrong spec needs it
    from xpc.compiler.suggest.registry_names import unquoted as finding

    return finding(name, label, note if kind == "folder" else code, kind)


def is_hub_id(path: str) -> bool:
    """Whether a quoted path has the form `org/name`."""
    org, slash, name = path.partition("/")
    plain = all(c.isascii() and (c.isalnum() or c in "-_.") for c in org + name)
    return bool(slash and org.strip(".") and name) and plain and not path.lower().endswith(DATA_FORMATS)
