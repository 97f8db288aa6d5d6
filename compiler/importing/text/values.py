"""Values that all sources share: transformers' names of optimizers, schedules, attention, dtypes and trackers."""

from __future__ import annotations

from functools import cache

from xpc.compiler import stacks
from xpc.compiler.importing import keys

KEYS = keys.load("trl/keys.toml")
ATTENTION, DTYPES, SCHEDULES = (KEYS[name].values for name in ("attn_implementation", "dtype", "lr_scheduler_type"))
RENAMES = KEYS.column("renamed")
"""Names of earlier or later versions, each with the name in the schema."""

TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow", "swanlab", "clearml")
OTHER_TRACKERS = ("azure_ml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "neptune")
"""Trackers of transformers that the language does not have."""


@cache
def optimizers() -> dict[str, str]:
    """xpc's optimizer for each of transformers' names. `adamw` is omitted, because it means the default choice."""
    out: dict[str, str] = dict(KEYS["optim"].values)
    for name in stacks.names():
        stack = stacks.load(name)
        assert stack is not None
        table = stack.table["policy"]["optimizers"]
        assert isinstance(table, dict)
        out.update({str(theirs): ours for ours, theirs in table.items() if ours != "adamw"})
    return out
