"""Write the first section of a bundle's `README.md`: the code that the run executes because the spec names it, with
digests.
"""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler.files.digest import shared_digest
from xpc.compiler.files.secrets import pinned
from xpc.compiler.spec import CALLED, Spec

PROGRAMS = (".sh", ".py", ".yaml", ".yml", ".jinja", ".jinja2", ".j2")


def executes(spec: Spec, cell: Callable[[str], str]) -> list[str]:
    """Lines for README.md: one for each program of somebody else that the run executes, such as the model's own code or
    a reward function. If there is no such program, a sentence says so. `cell` escapes a text for Markdown.
    """
    lines: list[str] = []
    model = cell(spec.model.location)
    where = "not a fixed commit: it can change"
    if spec.model.path is not None:
        where = "your own folder"
    elif pinned(spec.model.revision):
        where = f"commit {cell(str(spec.model.revision))}"
    if spec.flag("model.trust_remote_code"):
        lines.append(f"- Python code of the model's repository, {model}, with your rights, files and network ({where})")
    if spec.flag("model.pickle"):
        lines.append(f"- pickled weights of {model}, read with `weights_only` ({where})")
    for name, data in sorted(spec.bundled.items()):
        if name.startswith("data/") or not name.endswith(PROGRAMS):
            continue
        kind = "Python" if name.endswith(".py") else "a chat template, in jinja2's sandbox"
        if any(one.file == name for path in CALLED for one in spec.weighted(path)):
            kind = "Python that the model calls, with arguments that it writes, and with your rights, files and network"
        if name.endswith((".yaml", ".yml")):
            kind = "a task of `evaluate.sh`" + (", which names Python functions" if b"!function" in data else "")
        lines.append(f"- {cell(name)}: {kind}, {shared_digest(data)}")
    if spec.get("eval.tasks") is not None and spec.flag("eval.allow_code_execution"):
        lines.append("- in `evaluate.sh`: programs that the model writes, with your rights and without a sandbox")
    head = ["", "## What this run executes", ""]
    if not lines:
        return [
            *head,
            "This run executes only `launch.sh` and `trainer/`, which xpc wrote, and nothing that the spec names.",
        ]
    return [*head, "In addition to `launch.sh` and `trainer/`, which xpc wrote:", "", *lines]
