#!/usr/bin/env python3
"""Write `stack.json` of a stack from the installed classes of its library versions and from its policy.toml.

Run it with the interpreter of an environment that has the stack's versions:

    python compiler/stacks/generate.py NAME           # introspect, fold the policy in, write NAME/stack.json
    python compiler/stacks/generate.py NAME --fold    # replace only the policy; needs no library
    python compiler/stacks/generate.py NAME -o FILE   # write elsewhere (- for standard output)
    python compiler/stacks/generate.py NAME --pins    # print what an environment of the stack needs; writes nothing

The compiler loads only stack.json, so it never parses TOML. The part "library" comes from the classes, the part
"policy" from policy.toml. The output is the same on every machine: a value that depends on the machine is left out, and
its field is marked with `"machine": true`.
"""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from typing import Any

FORMAT = 1
HERE = os.path.dirname(os.path.abspath(__file__))


def fold(library: Mapping[str, Any], policy: Mapping[str, Any]) -> str:
    """The text of `stack.json`, made from its two parts: `library`, which was read from the libraries, and `policy`."""
    return render({"format": FORMAT, "library": library, "policy": policy}) + "\n"


def read_policy(name: str) -> dict[str, Any]:
    """Read a stack's policy.toml, and add the entries that are the same for all stacks. Raises FileNotFoundError if the
    stack has no policy.toml.
    """
    with open(os.path.join(HERE, name, "policy.toml"), "rb") as file:
        own = tomllib.load(file)
    with open(os.path.join(HERE, "common.toml"), "rb") as file:
        common = tomllib.load(file)
    for table, entries in common.items():
        both = {**entries, **own.get(table, {})}
        own[table] = {key: value for key, value in both.items() if value is not False}
    return own


def render(value: Any, indent: int = 0) -> str:
    """Write JSON with sorted keys and one entry per line. An entry is a field of a class, or a list without nested
    lists.
    """
    if not isinstance(value, dict) or "type" in value or not value:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    pad = " " * (indent + 1)
    lines = [f"{pad}{json.dumps(key)}: {render(value[key], indent + 1)}" for key in sorted(value)]
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"


def pins(policy: Mapping[str, Any]) -> str:
    """The packages to install in an environment for `introspect`: all pinned packages except those that can be built
    only with a GPU.
    """
    kernels = {
        package for extra, packages in policy["extras"].items() if extra.startswith("flash") for package in packages
    }
    return "".join(f"{name}=={version}\n" for name, version in policy["pins"].items() if name not in kernels)


def main(argv: list[str]) -> int:
    """Run the script. Returns 0 if stack.json was written."""
    parser = argparse.ArgumentParser(description="Write stack.json of a stack.")
    parser.add_argument(
        "stack", help="name of a folder that contains a policy.toml and lies next to this script, such as trl-1.16"
    )
    parser.add_argument("--fold", action="store_true", help="replace only the policy in stack.json; needs no library")
    parser.add_argument("--pins", action="store_true", help="print the packages of the stack's environment")
    parser.add_argument("-o", "--output", help="where to write; - is standard output")
    options = parser.parse_args(argv)
    path = os.path.join(HERE, options.stack, "stack.json")
    policy = read_policy(options.stack)
    if options.pins:
        sys.stdout.write(pins(policy))
        return 0
    if options.fold:
        with open(path, encoding="utf-8") as file:
            library = json.load(file)["library"]
    else:
        sys.path.insert(0, HERE)
        from introspect import introspect  # type: ignore[import-not-found, unused-ignore]

        library = introspect(policy["methods"].values())
    text = fold(library, policy)
    if options.output == "-":
        sys.stdout.write(text)
        return 0
    with open(options.output or path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
