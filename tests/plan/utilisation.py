"""Writes compiler/plan/utilisation.json: how fast GPUs compute a training step, from public measurements.

    python tests/plan/utilisation.py

The time of a token is a sum of five parts, whose weights are fitted to the rows of one GPU generation and precision
(llm-foundry's published table, 125 M to 30 B parameters): products of matrices, which are slower in narrow models;
attention; the network, by the doublings of the GPUs beyond one node; and what a small micro-batch leaves idle. Trainers
of the Hugging Face libraries get one factor over that each, from runs of fms-hf-tuning on A100 (the tokens/s in the
notes of memory_points.jsonl), the median of their rows. Nothing is fitted to a model.
"""

from __future__ import annotations

import json
import math
import os
import statistics

import points

from xpc.compiler.plan.time import TABLE, Work, parts

SHAPES = {
    "125m": (12, 768), "350m": (24, 1024), "760m": (24, 1536), "3b": (32, 2560), "7b": (32, 4096), "30b": (48, 7168),
}  # fmt: skip
"""Layers and width of MPT's models: llm-foundry scripts/train/yamls/pretrain."""
PEAKS = {"a100_40gb": 312.0, "a100_80gb": 312.0, "h100_80gb": 989.5}
GENERATIONS = {"a": "8", "h": "9"}
Row = points.Row


def foundry() -> list[Row]:
    """llm-foundry's rows."""
    return [row for row in points.rows("throughput_points.jsonl") if "llm-foundry" in row["source"]]


def key(row: Row) -> str:
    """The row of the table that a measurement belongs to: generation and precision."""
    return f"{GENERATIONS[row['gpu'][0]]}/{'fp8' if 'fp8' in row['precision'] else 'half'}"


def work(row: Row) -> Work:
    """What a measured run computes."""
    layers, hidden = SHAPES[row["model"].partition("-")[2]]
    return Work(
        params=row["params"], layers=layers, hidden=hidden, length=row["seq"], tokens=row["micro"] * row["seq"],
        checkpointing=row["ckpt"], adapters=False, gpus=row["gpus"], node=8, peak=PEAKS[row["gpu"]] * 1e12,
    )  # fmt: skip


def fit(rows: list[Row]) -> list[float]:
    """The weights of the parts with the least relative error, by the normal equations."""
    system = [[part * row["tok_s_gpu"] for part in parts(work(row))] for row in rows]
    count = len(system[0])
    matrix = [
        [sum(one[i] * one[j] for one in system) for j in range(count)] + [sum(one[i] for one in system)]
        for i in range(count)
    ]
    for i in range(count):
        pivot = max(range(i, count), key=lambda number: abs(matrix[number][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for other in range(count):
            if other != i:
                factor = matrix[other][i] / matrix[i][i]
                matrix[other] = [a - factor * b for a, b in zip(matrix[other], matrix[i])]
    return [matrix[i][count] / matrix[i][i] for i in range(count)]


def left_out() -> list[tuple[Row, float]]:
    """Each row of llm-foundry with what the others' models predict of it, tokens/s a GPU."""
    found = []
    rows = foundry()
    for name, model in sorted({(key(row), row["model"]) for row in rows}):
        others = [one for one in rows if key(one) == name and one["model"] != model]
        if len({one["model"] for one in others}) > 1:
            weights = fit(others)
            mine = [row for row in rows if key(row) == name and row["model"] == model]
            found += [(row, 1 / sum(w * p for w, p in zip(weights, parts(work(row))))) for row in mine]
    return found


def trainers(table: dict[str, list[float]]) -> dict[str, list[float]]:
    """Measured over predicted time of Hugging Face trainers by what they train."""
    found: dict[str, list[float]] = {}
    for row in points.rows("memory_points.jsonl"):
        speed = row["notes"].partition("tok/s/gpu=")[2].partition(";")[0]
        if not speed or points.contradicts(row) or points.load(row).element == 4:
            continue  # the factor is that of runs in half precision
        done = Work(
            params=row["params"], layers=row["layers"], hidden=row["hidden"], length=row["seq_len"],
            tokens=row["micro_batch"] * row["seq_len"], checkpointing=row["grad_ckpt"], adapters=bool(row["lora_r"]),
            gpus=row["world_size"], node=8, peak=312e12,
        )  # fmt: skip
        ratio = 1 / float(speed) / sum(w * p for w, p in zip(table["8/half"], parts(done)))
        fused = "foak" in row["notes"]
        kind = ("qlora" if row["quant"] else "lora" if row["lora_r"] else "full") + (" fused" if fused else "")
        found.setdefault(kind, []).append(ratio)
    return found


def table() -> dict[str, object]:
    """The whole table."""
    rows = foundry()
    weights = {}
    for name in sorted({key(row) for row in rows}):
        mine = [row for row in rows if key(row) == name]
        if len({row["model"] for row in mine}) > 1:
            weights[name] = [round(value, 5) for value in fit(mine)]
    errors = sorted(abs(predicted / row["tok_s_gpu"] - 1) for row, predicted in left_out())
    ratios = trainers(weights)
    # One run of the seed recipe on V100 in fp32: 310 tokens/s a GPU of Qwen2.5-3B, with recomputation.
    seed = Work(3085938688, 36, 2048, 600, 6600, True, False, 8, 8, 15.7e12)
    weights["7/fp32"] = [round(1 / 310 / parts(seed)[0], 5), 0.0, 0.0, 0.0, 0.0]
    return {
        "source": "llm-foundry scripts/train/benchmarking; fms-acceleration scripts/benchmarks/refs; one run on V100",
        "weights": weights,
        "trainers": {name: round(statistics.median(values), 3) for name, values in sorted(ratios.items())},
        "spread": {name: round(spread(values), 3) for name, values in sorted(ratios.items())},
        "range": math.ceil(errors[math.ceil(0.9 * len(errors)) - 1] * 1000) / 1000,
        "rows": {name: len([row for row in rows if key(row) == name]) for name in weights},
    }


def spread(values: list[float]) -> float:
    """How far nine of ten rows are from their median."""
    middle = statistics.median(values)
    return sorted(abs(value / middle - 1) for value in values)[math.ceil(0.9 * len(values)) - 1]


if __name__ == "__main__":
    with open(TABLE, "w", encoding="utf-8") as handle:
        handle.write(json.dumps(table(), indent=1) + "\n")
    print(os.path.basename(TABLE), "written")
