"""Prints what bundles train on: `python prepared_rows.py BUNDLE...` in the folder that has their model and data.

One line of JSON for each: the rows of the trainer that the bundle's own code builds, each through the collator, as
token ids and labels; and what the run would count of them.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def trainer_of(folder: str) -> tuple[Any, Any]:
    """A bundle as its own code reads it, and the trainer that this code builds."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainer"]:
        del sys.modules[name]  # each bundle has its own
    sys.path.insert(0, folder)
    run, arguments, bundles = (import_module(f"trainer.core.{name}") for name in ("run", "arguments", "bundle"))
    features = import_module("trainer.enabled").FEATURES
    sys.path.pop(0)
    bundle = bundles.read(folder, features)
    arguments.prepare_environment(bundle)
    return bundle, run._trainer(bundle, arguments.build_arguments(bundle))[0]


def prepared(folder: str) -> dict[str, Any]:
    """The rows of one bundle, and its counts."""
    _, trainer = trainer_of(folder)
    rows = []
    for row in trainer.train_dataset:
        if "input_ids" not in row:  # pairs and judged answers: only their number is compared
            rows.append({})
            continue
        batch = trainer.data_collator([row])
        rows.append({name: batch[name][0].tolist() for name in ("input_ids", "labels")})
    evaluation = trainer.eval_dataset
    return {"rows": rows, "counted": trainer.data_facts, "evaluated": None if evaluation is None else len(evaluation)}


if __name__ == "__main__":
    for one in sys.argv[1:]:
        print("ROWS", json.dumps(prepared(os.path.abspath(one))), flush=True)
