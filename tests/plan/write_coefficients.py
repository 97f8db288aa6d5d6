"""`make coefficients`: measure, with oracle.py, every model family of which the registry has models, and write the
table of a stack.

python tests/plan/write_coefficients.py STACK [FAMILY ...]

Run it with an interpreter that has the stack's libraries. If families are named, only these are measured, and the rows
of other families stay. If a family saves the same bytes as on the default stack, it gets the default stack's rows
without being measured at every shape. A mode that the table has for the same library versions is not measured again. If
the libraries fail in a mode, the mode gets no row. If a family cannot be built, or the registry does not count its
parameters, the program reports the reason, and the family gets no rows.
"""

from __future__ import annotations

import json
import os
import sys

import family_models
import oracle

from xpc.compiler.plan import coefficients
from xpc.compiler.registry import families
from xpc.compiler.registry.config_json import ConfigError
from xpc.compiler.stacks import DEFAULT

FIRST = (
    "llama", "qwen2", "qwen3", "mistral", "gemma3_text", "gemma2", "olmo2", "phi3", "granite", "gemma", "starcoder2",
    "gpt_neox", "gpt2", "falcon", "opt", "smollm3", "glm", "glm4", "mixtral", "qwen3_moe",
)  # fmt: skip

MOST = 0.05
"""A sum of sizes explains the bytes of a mode if it differs from them by at most this share. If there is no such sum,
the mode is left out, and the plan's verdict is `unknown`. For example, under autocast, the bytes depend on chance: only
those experts are copied to which tokens are routed.
"""


def write(
    stack: str, family: str, rows: dict[str, dict[str, float]], off: dict[str, str], versions: dict[str, str]
) -> None:
    """Write a family's rows into the table. The table is read again just before it is written, because another process
    may have added other families.
    """
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
    """Read two mappings from the coefficients file: the measured rows of a family by mode, and the errors of those rows
    that fit the measurement only roughly. Both are empty if other library versions were measured.
    """
    path = coefficients.table_of(stack)
    if not os.path.exists(path):
        return {}, {}
    with open(path, encoding="utf-8") as handle:
        table = json.load(handle)
    if table["versions"].get(family) != versions:
        return {}, {}
    return table["families"][family], table["differences"].get(family, {})


def main(stack: str, requested: list[str]) -> None:
    """Measure the families. The table is written after each family, so an interrupted run loses nothing that is
    measured.
    """
    import peft
    import torch
    import transformers

    torch.set_num_threads(1)
    versions = {one.__name__: one.__version__.partition("+")[0] for one in (torch, transformers, peft)}
    order = [*FIRST, *(name for name in families() if name not in FIRST)]
    for family in requested or order:
        try:
            why = family_models.uncounted(family)
        except ConfigError as error:
            why = str(error)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:300]
        if why is not None:
            print(f"{family}: {why}", flush=True)
            continue
        known, before = before_now(stack, family, versions)
        modes = {mode: how for mode, how in oracle.modes(family).items() if mode not in known}
        failing = {mode: why for mode, how in modes.items() if (why := oracle.failure(family, mode, how))}
        modes = {mode: how for mode, how in modes.items() if mode not in failing}
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
        excluded = [*unfit, *failing.items()]
        print(family, "as the default" if same else next(iter(rows.values())), off, "left out:", excluded, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
