"""Print the batches that bundles train on: `python batches.py BUNDLE...` in the folder with their model and data.

Prints one line of JSON for each bundle: `{"rows": [{"input_ids": [text], "learned": [text]}, ...]}`. The bundle's own
code builds the trainer. The trainer's rows go through its collator one by one and in order, and the resulting token ids
are decoded to text. `learned` is the text of the tokens with a loss. If an error stops the run, the line is `{"error":
message}`.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def batches(folder: str) -> dict[str, Any]:
    """Build the trainer of one bundle; return its batches, or its error."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainer"]:
        del sys.modules[name]  # each bundle has its own package `trainer`
    sys.path.insert(0, folder)
    run, arguments, bundles = (import_module(f"trainer.core.{name}") for name in ("run", "arguments", "bundle"))
    rows, error = import_module("trainer.core.first_rows"), import_module("trainer.core.errors").RunError
    features = import_module("trainer.enabled").FEATURES
    sys.path.pop(0)
    bundle = bundles.read(folder, features)
    arguments.prepare_environment(bundle)
    try:
        if found := rows.rows_and_tokens(bundle):
            return {"error": "; ".join(found)}
        trainer, tokenizer = run._trainer(bundle, arguments.build_arguments(bundle))
    except error as stopped:
        return {"error": str(stopped)}
    return {"rows": [_row(trainer.data_collator([row]), tokenizer) for row in trainer.train_dataset]}


def _row(batch: Any, tokenizer: Any) -> dict[str, Any]:
    out = {}
    for name, values in batch.items():
        if "input_ids" in name:
            out[name] = [tokenizer.decode(ids) for ids in (values if isinstance(values, list) else values.tolist())]
    if "labels" in batch:
        out["learned"] = [tokenizer.decode([one for one in ids if one != -100]) for ids in batch["labels"].tolist()]
    elif "completion_mask" in batch and "input_ids" in batch:
        pairs = zip(batch["input_ids"].tolist(), batch["completion_mask"].tolist(), strict=True)
        out["learned"] = [tokenizer.decode([i for i, one in zip(*pair, strict=True) if one]) for pair in pairs]
    return out


if __name__ == "__main__":
    for one in sys.argv[1:]:
        print("BATCHES", json.dumps(batches(os.path.abspath(one))), flush=True)
