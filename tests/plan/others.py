"""Write tests/plan/measured/others.json. It has the predictions of accelerate's and DeepSpeed's memory estimators for
the rows with which the plan is compared.

python tests/plan/others.py

accelerate 1.15's `accelerate estimate-memory` counts the weights, the largest layer and Adam's states for training in
one dtype; DeepSpeed's `estimate_zero*_model_states_mem_needs` counts the model states under ZeRO. Neither counts
activations or knows adapters, so a row with adapters gets the prediction for the full model. The numbers in the file
are predicted / measured - 1, in the order of the rows on the page.
"""

from __future__ import annotations

import contextlib
import io
import json
import os

import accuracy
import points
from points import Row

from xpc.compiler.plan import GIB


def accelerate(row: Row) -> float:
    """The GiB that `accelerate estimate-memory` prints for training with Adam."""
    from accelerate.commands.estimate import estimate_training_usage

    half = row["precision"] != "ds_fp32"
    usage = estimate_training_usage(row["params"] * 4, "bfloat16" if half else "float32")
    return max(usage.values()) / GIB


def deepspeed(row: Row) -> float | None:
    """The GiB of model states that DeepSpeed's estimator predicts for the row's number of processes. A run with one
    process counts as a run with ZeRO-2, and a run with FSDP as a run with ZeRO-3.
    """
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    world = row["world_size"]
    with contextlib.redirect_stdout(io.StringIO()):
        if row["strategy"] in ("fsdp", "zero3"):
            layer = row["params"] // row["layers"]
            _, gpu, _ = stage3.estimate_zero3_model_states_mem_needs(row["params"], layer, world, 1, False, False)
        else:
            _, gpu = stage_1_and_2.estimate_zero2_model_states_mem_needs(row["params"], world, 1, False)
    return float(gpu) / GIB


if __name__ == "__main__":
    rows = accuracy.kept()
    found = {
        "accelerate estimate-memory": accuracy.errors(rows, accelerate),
        "DeepSpeed's estimators": accuracy.errors(rows, deepspeed),
    }
    with open(os.path.join(points.HERE, "others.json"), "w", encoding="utf-8") as handle:
        handle.write(json.dumps({name: [round(one, 4) for one in values] for name, values in found.items()}) + "\n")
