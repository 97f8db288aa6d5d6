"""The names and defaults of the arguments of TRL's configuration classes in every release. They are read from the
sources in the wheels, by their syntax trees; TRL is not imported.

pip download --no-deps -d WHEELS trl==0.9.6 ...

python trl_versions.py WHEELS TRAINING_ARGUMENTS.py > compiler/importing/trl/versions.json

For each method and name, the file has the versions at which the default changed, such as `"beta": [["0.14", 0.04],
["0.19", 0.0]]`. An entry without a value is the version that removed the argument. TRAINING_ARGUMENTS.py is the file of
transformers with the class TrainingArguments: every version of TRL inherits these arguments, and changes only some
defaults.
"""

from __future__ import annotations

import ast
import glob
import json
import os
import re
import sys
import warnings
import zipfile
from typing import Any

METHODS = {
    "SFTConfig": "sft", "DPOConfig": "dpo", "ORPOConfig": "orpo", "CPOConfig": "cpo", "KTOConfig": "kto",
    "RewardConfig": "reward", "GRPOConfig": "grpo", "RLOOConfig": "rloo", "GKDConfig": "distill",
    "ModelConfig": "model", "ScriptArguments": "script",
}  # fmt: skip
FIRST = {"rloo": (0, 22)}
"""Maps a method to the first TRL version in which the name of the method's class stands for today's trainer. In earlier
versions, this name stands for another trainer.
"""
Classes = dict[str, list[ast.ClassDef]]


def version(path: str) -> tuple[int, ...]:
    """The major and minor version in the name of a wheel."""
    found = re.search(r"trl-(\d+)\.(\d+)", os.path.basename(path))
    assert found is not None
    return int(found[1]), int(found[2])


def classes(path: str) -> Classes:
    """Every class in the configuration modules of a wheel, by name."""
    out: Classes = {}
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith(".py") and any(part in name for part in ("config", "args", "utils", "base")):
                for node in ast.walk(ast.parse(wheel.read(name))):
                    if isinstance(node, ast.ClassDef):
                        out.setdefault(node.name, []).append(node)
    return out


def default(value: ast.expr | None) -> Any:
    """The default of a field as JSON. If the default is not a literal, a text such as `<function>`; if there is no
    default, `<required>`.
    """
    if isinstance(value, ast.Call):
        words = {one.arg: one.value for one in value.keywords}
        factory = words.get("default_factory")
        if isinstance(factory, ast.Name):
            return {"list": [], "dict": {}}.get(factory.id, f"<{factory.id}>")
        value = factory.body if isinstance(factory, ast.Lambda) else words.get("default")
    if value is None:
        return "<required>"
    try:
        return ast.literal_eval(value)
    except ValueError:
        return f"<{ast.unparse(value)}>"


def own(node: ast.ClassDef) -> dict[str, Any]:
    """The fields that a class itself declares."""
    return {
        one.target.id: default(one.value)
        for one in node.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and "ClassVar" not in ast.unparse(one.annotation)
    }


def fields(found: Classes, name: str) -> dict[str, Any]:
    """The fields of a class and its bases. If several classes of a wheel have this name, the class with the most fields
    is used, because the others only warn that the class has moved.
    """
    if name not in found:
        return {}
    node = max(found[name], key=lambda one: len(own(one)))
    out: dict[str, Any] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id != name:
            out |= fields(found, base.id)
    return out | own(node)


def main(wheels: str, training_arguments: str) -> None:
    """Print the content of versions.json."""
    warnings.simplefilter("ignore")
    with open(training_arguments, encoding="utf-8") as handle:
        (inherited,) = (one for one in ast.parse(handle.read()).body
                        if isinstance(one, ast.ClassDef) and one.name == "TrainingArguments")  # fmt: skip
    paths = sorted(glob.glob(os.path.join(wheels, "trl-*.whl")), key=version)
    table: dict[str, dict[str, list[list[Any]]]] = {name: {} for name in METHODS.values()}
    for path in paths:
        found = classes(path)
        number = ".".join(map(str, version(path)))
        for kind, method in METHODS.items():
            if version(path) < FIRST.get(method, (0, 0)):
                continue
            now = fields(found, kind)
            for name, value in now.items():
                runs = table[method].setdefault(name, [])
                if not runs or runs[-1][1:] != [value]:
                    runs.append([number, value])
            for name, runs in table[method].items():
                if name not in now and len(runs[-1]) == 2:
                    runs.append([number])
    names = sorted(own(inherited))
    versions = list(dict.fromkeys(".".join(map(str, version(path))) for path in paths))
    lines = [f'"versions": {json.dumps(versions)}', f'"inherited": {json.dumps(names)}']
    for method, rows in table.items():
        inside = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
        lines.append(f'"{method}": {{\n{inside}\n}}')
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main(*sys.argv[1:])
