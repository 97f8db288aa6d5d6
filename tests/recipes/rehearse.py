"""`make rehearse`: rehearse each recipe of specs/ on its own stack and on the default stack, and keep the results.

    python tests/recipes/rehearse.py tests/recipes/rehearsals.json [RECIPE ...]

A result has the date, the stages that were run, the stages that could not be run, and the findings. docs/recipes.md
shows these results. A recipe takes 15 to 60 seconds on two idle cores.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))

from compile_support import REPOSITORY
from interpreters import interpreter

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.stacks import DEFAULT

SPECS = os.path.join(REPOSITORY, "specs")
BUILT = ("quickstart", "quickstart-trl-0.18")
"""Specs that are not rehearsed. Their model is not published: `make demo` builds it."""


def rehearsed(recipe: str, stack: str | None) -> dict[str, Any]:
    """Rehearse a recipe on the given stack; return the report."""
    with open(os.path.join(SPECS, recipe + ".xp"), encoding="utf-8") as handle:
        text = handle.read()
    target = stack or own_stack(recipe)
    if re.search(r"^target \S+$", text, re.MULTILINE):
        text = re.sub(r"^target \S+$", f"target {target}", text, flags=re.MULTILINE)
    else:
        text += f"\ntarget {target}\n"
    with tempfile.NamedTemporaryFile("w", dir=SPECS, prefix=f"{recipe}-", suffix=".xp", encoding="utf-8") as spec:
        spec.write(text)
        spec.flush()
        done = subprocess.run(
            [sys.executable, "-m", "xpc.compiler.cli", "rehearse", spec.name, "--format", "json", "--python",
             interpreter(target)], capture_output=True, text=True, check=False,
        )  # fmt: skip
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        return {"stack": target, "exercised": [], "replaced": [], "findings": [{"message": done.stderr[-500:]}]}


def own_stack(recipe: str) -> str:
    """The stack for which a recipe is written. The recipe or its base states this stack as `target`."""
    path = os.path.join(SPECS, recipe + ".xp")
    with open(path, encoding="utf-8") as handle:
        checked = check_text(handle.read().encode(), recipe, Workspace(SPECS))
    assert checked.spec is not None, recipe
    return str(checked.spec.stack.name)


def kept(report: dict[str, Any]) -> dict[str, Any]:
    """The entries of a report that are written into the committed rehearsals.json."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "done": [one["step"] for one in report["exercised"] if one["state"] == "done"],
        "not_here": [one["setting"] for one in report["replaced"]],
        "failed": [one["step"] for one in report["exercised"] if one["state"] == "failed"],
        "found": [one["message"] for one in report["findings"]],
    }


def recipes() -> list[str]:
    """The names of the specs whose models are published on the hub."""
    names = sorted(name.removesuffix(".xp") for name in os.listdir(SPECS) if name.endswith(".xp"))
    return [name for name in names if name not in BUILT]


def main(path: str, *chosen: str) -> int:
    """Rehearse the recipes, and write each result at once. Returns 1 if a recipe failed."""
    found: dict[str, Any] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as handle:
            found = json.load(handle)
    for recipe in chosen or recipes():
        for stack in (None, DEFAULT):
            report = rehearsed(recipe, stack)
            if stack is None and report["stack"] == DEFAULT:
                continue
            found.setdefault(recipe, {})[report["stack"]] = kept(report)
            with open(path, "w", encoding="utf-8") as out:
                out.write(json.dumps(found, indent=1, sort_keys=True) + "\n")
            print(
                f"{recipe} on {report['stack']}: {found[recipe][report['stack']]['found'] or 'nothing is wrong'}",
                flush=True,
            )
    return int(any(one["failed"] or not one["done"] for each in found.values() for one in each.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
