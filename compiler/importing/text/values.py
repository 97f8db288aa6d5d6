"""Map transformers' names of optimizers, schedules, attention, dtypes and trackers to xpc's names."""

from __future__ import annotations

from functools import cache

from xpc.compiler import stacks
from xpc.compiler.importing import keys

KEYS = keys.load("trl/keys.toml")
ATTENTION, DTYPES, SCHEDULES = (KEYS[name].values for name in ("attn_implementation", "dtype", "lr_scheduler_type"))
RENAMES = KEYS.column("renamed")
"""Maps an argument's name in older or newer versions of the libraries to its name in the table of settings."""

TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow", "swanlab", "clearml")
OTHER_TRACKERS = ("azure_ml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "neptune")
"""Trackers that transformers supports, but xpc does not."""


@cache
def optimizers() -> dict[str, str]:
    """Maps transformers' name of each optimizer to xpc's name. xpc's `adamw` is excluded, because in a spec it means
    the default.
    """
    out: dict[str, str] = dict(KEYS["optim"].values)
    for name in stacks.names():
        stack = stacks.load(name)
        assert stack is not None
        table = stack.table["policy"]["optimizers"]
        assert isinstance(table, dict)
        out.update({str(theirs): ours for ours, theirs in table.items() if ours != "adamw"})
    return out
