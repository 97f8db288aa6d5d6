"""Functions shared by the programs that record what axolotl and LLaMA-Factory do: they read the tools' files, and write
the records as JSON.
"""

from __future__ import annotations

import copy
import glob
import json
import os
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import torch
from file_cases import CASES
from file_cases import table as file_table


def plain(value: Any) -> Any:
    """Convert a value to JSON. An enum becomes its value, an object becomes its attributes, and a value of any other
    unknown type becomes a string.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return plain(vars(value)) if hasattr(value, "__dict__") else str(value)


def files(published: str, tool: str, version: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the keys of each published file of a tool, and of each case in file_cases.py. Some cases
    belong only to one `version` of the tool, such as 0.19.
    """
    import yaml

    if not os.path.isdir(os.path.join(published, tool)):
        # without the files, the records would lose their answers
        raise SystemExit(f"{published} has no folder {tool}: XPC_PUBLISHED names the folder of the published files")
    for path in sorted(glob.glob(os.path.join(published, tool, "**", "*.y*ml"), recursive=True)):
        with open(path, encoding="utf-8") as handle:
            yield os.path.relpath(path, published), yaml.safe_load(handle)
    for one in (tool, f"{tool}-{version}"):
        for name in CASES.get(one, ()):
            yield f"own/{name}", copy.deepcopy(file_table(one, name))


def write(out: str, head: dict[str, Any], lines: Sequence[dict[str, Any]]) -> None:
    """Write a JSONL file. Its first line is about the tool; then there is a line for each file or case."""
    with open(out, "w", encoding="utf-8") as handle:
        for one in (head, *lines):
            handle.write(json.dumps(one, sort_keys=True, separators=(",", ":")) + "\n")
