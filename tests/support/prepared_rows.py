"""Print the rows that bundles train on: `python prepared_rows.py BUNDLE...` in the folder with their model and data.

Prints one line of JSON for each bundle. The bundle's own code builds the trainer. In the line, `rows` has the
`input_ids` and `labels` of each row after the collator, `counted` has the trainer's counts of rows and tokens, and
`evaluated` is the number of evaluation rows.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def trainer_of(folder: str) -> tuple[Any, Any]:
    """Import the code of the bundle in ``folder``. Return two things: the `Bundle` that this code reads, and the
    trainer that it builds.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainer"]:
        del sys.modules[name]  # each bundle has its own package `trainer`
    sys.path.insert(0, folder)
    run, arguments, bundles = (import_module(f"trainer.core.{name}") for name in ("run", "arguments", "bundle"))
    features = import_module("trainer.enabled").FEATURES
    sys.path.pop(0)
    bundle = bundles.read(folder, features)
    arguments.prepare_environment(bundle)
    return bundle, run._trainer(bundle, arguments.build_arguments(bundle))[0]


def prepared(folder: str) -> dict[str, Any]:
    """Build the trainer of one bundle; return a JSON object with its rows and its counts."""
    _, trainer = trainer_of(folder)
    rows = []
    for row in trainer.train_dataset:
        # preference pairs and labelled answers have other columns; tests compare only the number of such rows
        if "input_ids" not in row:
            rows.append({})
            continue
        batch = trainer.data_collator([row])
        rows.append({name: batch[name][0].tolist() for name in ("input_ids", "labels")})
    evaluation = trainer.eval_dataset
    return {"rows": rows, "counted": trainer.data_facts, "evaluated": None if evaluation is None else len(evaluation)}


if __name__ == "__main__":
    for one in sys.argv[1:]:
        print("ROWS", json.dumps(prepared(os.path.abspath(one))), flush=True)
