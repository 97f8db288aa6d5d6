"""Write lm-eval.json, which lists the tasks of the installed lm-evaluation-harness. Run this by hand, in an environment
that has the harness:

    python compiler/stacks/harness_names.py

The names of tasks, groups and tags come from the harness's own index. Three kinds of names are listed as unsafe,
because they execute code that the model wrote: tasks with `unsafe_code`, tasks whose file includes the file of an
unsafe task, and groups and tags that contain an unsafe task.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

PLACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lm-eval.json")
MARKED = re.compile(r"^unsafe_code:\s*true", re.MULTILINE)
INCLUDES = re.compile(r"^include:\s*(\S+)", re.MULTILINE)


def front_coded(names: list[str]) -> list[str]:
    """Compress a sorted list of names. Each name becomes two values: the number of letters that it shares with the
    beginning of the previous name, and its remaining letters.
    """
    out, before = [], ""
    for name in names:
        shared = next((i for i, (a, b) in enumerate(zip(before, name)) if a != b), min(len(before), len(name)))
        out.append(f"{shared} {name[shared:]}")
        before = name
    return out


def unsafe_files(root: str) -> set[str]:
    """Find the unsafe task files below the folder `root`: their tasks execute code that the model wrote. Returns
    absolute paths.
    """
    found, parents = set[str](), dict[str, str]()
    for folder, _, names in os.walk(root):
        for name in names:
            if "yaml" not in name:  # lm-eval's template files end in words such as `_template_yaml`, not in `.yaml`
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8", errors="replace") as handle:
                text = handle.read()
            if MARKED.search(text):
                found.add(path)
            included = INCLUDES.search(text)
            if included:
                parents[path] = os.path.normpath(os.path.join(folder, included.group(1).strip("\"'")))
    grown = -1
    while grown != len(found):
        grown = len(found)
        found |= {path for path, parent in parents.items() if parent in found}
    return found


def table() -> Mapping[str, Any]:
    """The content of lm-eval.json."""
    import lm_eval.tasks
    from lm_eval.tasks import TaskManager

    root = os.path.dirname(os.path.abspath(lm_eval.tasks.__file__))
    files = unsafe_files(root)
    index = TaskManager().task_index
    unsafe = {name for name, entry in index.items() if entry.yaml_path and str(entry.yaml_path) in files}
    tags = {tag for name in unsafe for tag in index[name].tags}
    unsafe |= tags & set(index)
    grown = -1
    while grown != len(unsafe):
        grown = len(unsafe)
        for name, entry in index.items():
            parts = (entry.cfg or {}).get("task") if entry.kind.name == "GROUP" else None
            inside = [part if isinstance(part, str) else part.get("task") for part in parts or [] if part]
            if any(part in unsafe for part in inside if isinstance(part, str)):
                unsafe.add(name)
    return {"version": version("lm-eval"), "unsafe": sorted(unsafe), "names": front_coded(sorted(index))}


def main() -> int:
    """Write lm-eval.json. Returns the exit status."""
    with open(PLACE, "w", encoding="utf-8") as handle:
        json.dump(table(), handle, indent=0, ensure_ascii=False)
        handle.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
