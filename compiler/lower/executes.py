"""The first section of a bundle's `README.md`: what the run executes that the spec has asked for, with digests."""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler.files.digest import shared_digest
from xpc.compiler.files.secrets import pinned
from xpc.compiler.spec import Spec

PROGRAMS = (".sh", ".py", ".yaml", ".yml", ".jinja", ".jinja2", ".j2")


def executes(spec: Spec, cell: Callable[[str], str]) -> list[str]:
    """A line for each thing that runs beside the trainer; a sentence where there is none."""
    lines: list[str] = []
    model = cell(spec.model.location)
    at = f"commit {cell(str(spec.model.revision))}" if pinned(spec.model.revision) else "no fixed commit: it can change"
    where = "a folder of your own" if spec.model.path is not None else at
    if spec.flag("model.trust_remote_code"):
        lines.append(f"- Python of the model's repository, {model}, as you, with your files and your network ({where})")
    if spec.flag("model.pickle"):
        lines.append(f"- pickled weights of {model}, read with `weights_only` ({where})")
    for name, data in sorted(spec.bundled.items()):
        if name.startswith("data/") or not name.endswith(PROGRAMS):
            continue
        kind = "Python" if name.endswith(".py") else "a chat template, in jinja2's sandbox"
        if name.endswith((".yaml", ".yml")):
            kind = "a task of `evaluate.sh`" + (", which names Python functions" if b"!function" in data else "")
        lines.append(f"- {cell(name)}: {kind}, {shared_digest(data)}")
    if spec.get("eval.tasks") is not None and spec.flag("eval.allow_code_execution"):
        lines.append("- in `evaluate.sh`: programs that the model writes, as you, without a sandbox")
    head = ["", "## What this run executes", ""]
    if not lines:
        return [*head, "`launch.sh` and `trainer/`, which xpc wrote, and nothing that the spec names."]
    return [*head, "Beside `launch.sh` and `trainer/`, which xpc wrote:", "", *lines]
