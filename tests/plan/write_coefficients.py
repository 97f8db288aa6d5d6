"""`make coefficients`: asks the oracle about every family of the registry that has models, and writes a stack's table.

    python tests/plan/write_coefficients.py STACK [FAMILY ...]

The interpreter is one with the stack's libraries. With names, only those families are measured and the others stay as
they are. A family that keeps what it keeps with the default stack gets the default's rows without being measured at
every shape, and a mode that stands in the table is not measured again with the very same libraries. A family that
cannot be built, or whose parameters the registry does not count, is named with the reason and stays out.
"""

from __future__ import annotations

import json
import os
import sys

import family_models
import oracle

from xpc.compiler.plan import coefficients
from xpc.compiler.registry import families
from xpc.compiler.stacks import DEFAULT

FIRST = (
    "llama", "qwen2", "qwen3", "mistral", "gemma3_text", "gemma2", "olmo2", "phi3", "granite", "gemma", "starcoder2",
    "gpt_neox", "gpt2", "falcon", "opt", "smollm3", "glm", "glm4", "mixtral", "qwen3_moe",
)  # fmt: skip

MOST = 0.05
"""A mode that no sum of sizes explains to this share is left out, and its plan is `unknown`: autocast's copies of the
experts that a few tokens happen to meet are none."""


def write(
    stack: str, family: str, rows: dict[str, dict[str, float]], off: dict[str, str], versions: dict[str, str]
) -> None:
    """Put a family's rows into the table, which is read anew: a run may be stopped and go on with other families."""
    path = coefficients.table_of(stack)
    table: dict[str, dict[str, object]] = {"versions": {}, "families": {}, "differences": {}}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as handle:
            table = json.load(handle)
    table["versions"][family] = versions
    table["families"][family] = rows
    table["differences"].pop(family, None)
    if off:
        table["differences"][family] = off
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(json.dumps(table, indent=1, sort_keys=True) + "\n")


def before_now(stack: str, family: str, versions: dict[str, str]) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """The rows of a family that were measured with these versions, and how far they are off; none otherwise."""
    path = coefficients.table_of(stack)
    if not os.path.exists(path):
        return {}, {}
    with open(path, encoding="utf-8") as handle:
        table = json.load(handle)
    if table["versions"].get(family) != versions:
        return {}, {}
    return table["families"][family], table["differences"].get(family, {})


def main(stack: str, asked: list[str]) -> None:
    """Measure and write after every family, so that a run that is stopped keeps what it has."""
    import peft
    import torch
    import transformers

    torch.set_num_threads(1)
    versions = {one.__name__: one.__version__.partition("+")[0] for one in (torch, transformers, peft)}
    order = [*FIRST, *(name for name in families() if name not in FIRST)]
    for family in asked or order:
        why = family_models.facts(family, family_models.shapes(family)[0])
        try:
            why = why if isinstance(why, str) else family_models.uncounted(family)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:300]
        if isinstance(why, str):
            print(f"{family}: {why}", flush=True)
            continue
        known, before = before_now(stack, family, versions)
        modes = {mode: how for mode, how in oracle.modes(family).items() if mode not in known}
        usual = {mode: row for mode, row in coefficients.family(family).items() if mode in modes and stack != DEFAULT}
        try:
            same = family not in coefficients.differences() and oracle.holds(family, usual, modes)
            measured = {mode: (row, 0.0) for mode, row in usual.items()} if same else oracle.coefficients(family, modes)
        except Exception as error:
            print(f"{family}: {type(error).__name__}: {error}"[:300], flush=True)
            continue
        unfit = sorted(mode for mode, (_, left) in measured.items() if left > MOST)
        measured = {mode: found for mode, found in measured.items() if mode not in unfit}
        rows = {**known, **{mode: dict(found) for mode, (found, _) in measured.items()}}
        off = before | {mode: f"{left:.2%}" for mode, (_, left) in measured.items() if left > oracle.EXACT}
        write(stack, family, rows, off, versions)
        print(family, "as the default" if same else next(iter(rows.values())), off, "left out:", unfit, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
