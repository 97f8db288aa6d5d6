"""The defaults of Unsloth's configuration classes.

If a script imports Unsloth before TRL, Unsloth replaces TRL's classes by its own, with other defaults and some fixed
values.
"""

from __future__ import annotations

from collections.abc import Iterable

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.entries import Entries
from xpc.compiler.importing.python.interpreter.values import Argument, Object
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.importing.trl import versions

DEFAULTS: dict[str, object] = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "per_device_eval_batch_size": 4,
    "learning_rate": 5e-5, "weight_decay": 0.01, "warmup_ratio": 0.1, "optim": "adamw_8bit", "seed": 3407,
    "logging_steps": 1,
}  # fmt: skip
"""Defaults that Unsloth sets for all trainers since version 2025.2 (`replacements` in unsloth/models/rl.py). In May
2026, Unsloth changed the weight decay to 0.001.
"""
GROUPED: dict[str, object] = {"num_generations": 8}
SINCE_0_19: dict[str, object] = {"beta": 0.001, "loss_type": "bnpo"}
"""Unsloth's defaults for GRPO that differ from TRL's since TRL 0.19, which changed these defaults."""
REPLACED: dict[str, dict[str, object]] = {
    "dapo": {"mask_truncated_completions": True, "epsilon_high": 0.28},
    "dr_grpo": {"scale_rewards": False},
}
"""Maps a loss of GRPO to arguments that Unsloth always sets for it, even if the script sets other values."""
INSTEAD = {"warmup_ratio": "warmup_steps"}
"""Maps an argument to one that replaces it: if a script sets `warmup_steps`, Unsloth's default of `warmup_ratio` is not
used.
"""


def write(entries: Entries, draft: Draft, trainer: Object, packages: Iterable[str]) -> None:
    """Add Unsloth's defaults for the trainer's configuration, and the values that Unsloth sets itself. `packages` are
    the packages that the script and its modules import, in the order of the imports.
    """
    config = entries.config
    first = next((one for one in packages if one in ("unsloth", "trl")), "unsloth")
    if draft.transformers or first != "unsloth":
        return
    location = trainer.location if config is None else config.location
    grouped = draft.method in ("grpo", "rloo")
    recent = versions.numbers().index(draft.trl) >= versions.numbers().index("0.19")
    table = {**DEFAULTS, **(GROUPED if grouped else {}), **(SINCE_0_19 if draft.method == "grpo" and recent else {})}
    given = {*entries.values, *(one.key for one, _ in entries.problems)}
    added = [name for name in table if name not in given and INSTEAD.get(name) not in given]
    for name in added:
        entries.add(name, Argument(table[name], location))
    if not {"bf16", "fp16"} & given and _value(entries, "dtype") == "bfloat16":
        entries.add("bf16", Argument(True, location))
    if added:
        shown = ", ".join(f"{name} = {table[name]}" for name in added)
        draft.warn(
            location.entry("unsloth"),
            f"Unsloth replaces TRL's defaults: {shown}" + (" (0.001 from May 2026)" if "weight_decay" in added else ""),
        )
    if grouped:
        _groups(entries, draft)
    for name, value in REPLACED.get(str(_value(entries, "loss_type")), {}).items() if grouped else ():
        if _value(entries, name) != value:
            entries.add(name, Argument(value, location))
            draft.warn(entries.values[name], f"Unsloth sets this value for the loss `{_value(entries, 'loss_type')}`")


def _groups(entries: Entries, draft: Draft) -> None:
    """If micro-batch x accumulation is not a multiple of the number of completions per prompt, set the micro-batch to
    this number, as Unsloth does.
    """
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
    micro, accum, group = (_value(entries, name) for name in names)
    if {"steps_per_generation", "generation_batch_size"} & set(entries.values):
        return
    if not (isinstance(micro, int) and isinstance(accum, int) and isinstance(group, int)) or group < 1:
        return
    if micro * accum % group:
        old = entries.values[names[0]]
        entries.values[names[0]] = Entry(old.key, group, old.file, old.line)
        why = f"Unsloth replaces this value by {group}, because a batch must be a multiple of the {group} completions"
        draft.warn(old, f"{why} of a prompt")


def _value(entries: Entries, name: str) -> object:
    found = entries.values.get(name)
    return None if found is None else found.value
