"""Compile a spec to the files of a bundle without checking it by rules. So the libraries can be tried with specs that
the rules refuse.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from xpc.compiler.engines.environment import FILE, environment, stated
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.load import load
from xpc.compiler.lower import YAML_COMMENT, lower
from xpc.compiler.lower.accelerate import accelerate, yaml
from xpc.compiler.lower.deepspeed import deepspeed
from xpc.compiler.lower.payload import payload
from xpc.compiler.resolve.experiment import resolve
from xpc.compiler.rules.core.legality import error_codes
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.read import decode
from xpc.runtime.core.conditions import trainer

GONE = "\0gone"
"""In a change, this value stands for the removal of a name."""
LEFT_OUT = ("trainer/", "README.md", "spec.xp", "launch.sh", "bundle.toml", "requirements.txt")


def resolved(text: str, root: str, name: str = "proof.xp") -> Spec:
    """Resolve a text to a `Spec`, even if it has errors. Raises ValueError if the errors leave no `Spec`."""
    source, _ = decode(text.encode(), name)
    workspace = Workspace(root)
    spec, problems = resolve(load(source, workspace), workspace, error_codes)
    if spec is None:
        raise ValueError("; ".join(one.message for one in problems))
    return spec


def past(
    text: str, root: str, out: str, arguments: Mapping[str, Any] | None = None,
    yaml_changes: Mapping[str, Any] | None = None, deepspeed_changes: Mapping[str, Any] | None = None,
    payload_changes: Mapping[str, Any] | None = None,
) -> Spec:  # fmt: skip
    """Lower a text without checking it by rules, apply the changes, and write the files into `out`. Return the `Spec`.
    Local files of the spec are in `root`.

    The keys of the changes are dotted paths, such as `fsdp_config.fsdp_version`. The value GONE removes the key from
    the file.
    """
    spec = resolved(text, root)
    files = lowered_files(spec)
    plan = json.loads(files["trainer_args.json"])
    for name, value in (arguments or {}).items():
        change(plan["arguments"], name, value, dotted=False)
    for name, value in (payload_changes or {}).items():
        change(plan, name, value)
    plan["trainer"] = trainer(plan)
    files["trainer_args.json"] = json.dumps(plan, indent=2).encode()
    if yaml_changes:
        table: Any = accelerate(spec)
        for name, value in yaml_changes.items():
            change(table, name, value)
        files["accelerate.yaml"] = yaml(table, YAML_COMMENT).encode()
    if deepspeed_changes:
        table = json.loads(files.get("deepspeed.json", b"{}"))
        for name, value in deepspeed_changes.items():
            change(table, name, value)
        files["deepspeed.json"] = json.dumps(table, indent=2).encode()
    write(files, out)
    return spec


def lowered_files(spec: Spec) -> dict[str, bytes]:
    """Map the names of the bundle's files to their contents. Only the files that the libraries read are included, and
    the file with the environment variables that launch.sh would set.
    """
    texts = {"accelerate.yaml": yaml(accelerate(spec), YAML_COMMENT), "trainer_args.json": json.dumps(payload(spec))}
    if spec.zero_stage:
        texts["deepspeed.json"] = json.dumps(deepspeed(spec))
    if stated(spec):
        texts[FILE] = environment(spec)
    return {**{name: text.encode() for name, text in texts.items()}, **spec.bundled}


def complete_bundle(spec: Spec) -> dict[str, bytes]:
    """All files of the bundle, made by the same function with which the compiler makes them."""
    return {name: data for name, data in lower(CheckedSpec.of(spec)).items() if not name.startswith(LEFT_OUT)}


def write(files: Mapping[str, bytes], out: str) -> None:
    """Write files into a folder."""
    for name, data in files.items():
        path = os.path.join(out, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as handle:
            handle.write(data)


def change(table: dict[str, Any], path: str, value: object, dotted: bool = True) -> None:
    """Set or remove a value at a dotted path of nested mappings."""
    *heads, last = path.split(".") if dotted else [path]
    for head in heads:
        table = table.setdefault(head, {})
    if value == GONE:
        table.pop(last, None)
    else:
        table[last] = value
