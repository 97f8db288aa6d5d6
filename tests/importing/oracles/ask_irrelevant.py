"""Record whether the keys of irrelevant_cases.py change a tool's arguments. For each key, the tool reads two files: one
with the key, and the same file without the key.

python ask_irrelevant.py axolotl|llamafactory OUT.jsonl [KEYS ...]

Run it with the interpreter that has the tool. It writes a line for each key: the arguments that differ between the two
files, or the reason why the tool refuses a file.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import ask_axolotl
import file_cases
from answers import write
from irrelevant_cases import NEEDED, VALUES

Answer = dict[str, Any]


def of_axolotl(table: dict[str, Any]) -> Answer:
    """Let axolotl read a file; return the trainer's arguments and axolotl's configuration with its defaults."""
    found = ask_axolotl.ask(table, {"qwen/qwen2.5-3b": "qwen2"}, {})
    return {**found["config"], **found["arguments"], "class": found["class"]}


def of_llamafactory(table: dict[str, Any]) -> Answer:
    """Let LLaMA-Factory read a file; return the arguments of all of its classes."""
    import ask_llamafactory

    found = ask_llamafactory.ask(table, {})["arguments"]
    return {f"{kind}.{key}": one for kind, arguments in found.items() for key, one in arguments.items()}


def main() -> None:
    """Compare the tool's arguments with and without each key, and write the differences to OUT.jsonl."""
    tool, out = sys.argv[1:3]
    if tool == "llamafactory":
        import ask_llamafactory

        ask_llamafactory.answers()
    ask = of_axolotl if tool == "axolotl" else of_llamafactory
    lines: list[dict[str, Any]] = []
    for key, value in VALUES[tool].items():
        if sys.argv[3:] and key not in sys.argv[3:]:
            continue
        base = {"axolotl": file_cases.AXOLOTL, "llamafactory": file_cases.LLAMAFACTORY}[tool]
        table = {name: one for name, one in {**base, **NEEDED.get(key, {})}.items() if one is not None}
        try:
            without, changed = ask(copy.deepcopy(table)), ask({**copy.deepcopy(table), key: copy.deepcopy(value)})
            names = {name for name in {*without, *changed} if without.get(name) != changed.get(name)}
            found: dict[str, Any] = {"differs": sorted(name for name in names if name.rpartition(".")[2] != key)}
        except (Exception, SystemExit) as error:
            found = {"refused": f"{type(error).__name__}: {error}"[:200]}
        lines.append({"key": key, **found})
        print(key, found, file=sys.stderr, flush=True)
    write(out, {"tool": tool}, lines)


if __name__ == "__main__":
    main()
