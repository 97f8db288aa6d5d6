"""Fit the weights in compiler/plan/utilisation.json to public measurements. The weights predict the time of a training
step.

`python tests/plan/ranges.py` writes the file. The time of a token is a sum of four parts: matrix products, which are
slower in narrow models; attention; bytes that a process sends to other processes on its machine; and bytes that it
sends to other machines. The weights of the parts are fitted to the rows of one GPU generation and precision
(llm-foundry's published table, 125 M to 30 B parameters). The weight of the sent bytes is the share of the sending that
does not overlap with computation. For each kind of Hugging Face trainer, this sum is multiplied by one factor: the
median of measured / predicted time in runs of fms-hf-tuning on A100 (tokens/s in the notes of memory_points.jsonl, and
for adapters without fused kernels in heldout_speed.jsonl). Nothing is fitted to a single model. All chips other than
A100 and H100 share two numbers, fitted to published runs on five GPUs (other_chips.jsonl).
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import points

from xpc.compiler.plan import packed_bytes
from xpc.compiler.plan.from_spec import moved
from xpc.compiler.plan.time import Work, of_another_chip, parts, seconds, sent, touched
from xpc.compiler.registry import find_gpu

SHAPES = {
    "125m": (12, 768), "350m": (24, 1024), "760m": (24, 1536), "3b": (32, 2560), "7b": (32, 4096), "30b": (48, 7168),
}  # fmt: skip
"""Maps the name of each MPT model to its number of layers and its hidden size. Source: llm-foundry
scripts/train/yamls/pretrain.
"""
GENERATIONS = {"a": "8", "h": "9"}
CHIPS = {"8": ("A100", "a100-80gb"), "9": ("H100", "h100-80gb")}
"""Maps each GPU generation to its measured chip, and to the GPU whose peak and bandwidth are used for this chip."""
Row = points.Row


def foundry() -> list[Row]:
    """The measured runs that llm-foundry has published."""
    return [row for row in points.rows("throughput_points.jsonl") if "llm-foundry" in row["source"]]


def key(row: Row) -> str:
    """The key of a measurement in utilisation.json. It consists of the GPU generation and the precision."""
    return f"{GENERATIONS[row['gpu'][0]]}/{'fp8' if 'fp8' in row['precision'] else 'half'}"


def work(row: Row) -> Work:
    """The sizes that decide the time of an llm-foundry run. All runs except three shard the weights (FULL_SHARD)."""
    layers, hidden = SHAPES[row["model"].partition("-")[2]]
    stage = 3 if row["strategy"] == "FULL_SHARD" else 2
    return Work(
        params=row["params"], layers=layers, hidden=hidden, length=row["seq"], tokens=row["micro"] * row["seq"],
        checkpointing=row["ckpt"], trained=1.0, **card(row["gpu"].replace("_", "-")),
        sent=sent(stage, row["gpus"], 2 * row["params"], 2 * row["params"], float(row["accum"] or 1)),
        machines=-(-row["gpus"] // 8), touched=touched(2 * row["params"], 2 * row["params"], row["ckpt"]),
    )  # fmt: skip


def card(name: str) -> dict[str, float]:
    """The operations per second in half precision, and the bytes per second, of a GPU in the registry."""
    gpu = find_gpu(name)
    assert gpu is not None, name
    return {
        "peak": (gpu.bf16_tflops or gpu.fp16_tflops) * 1e12,
        "link": gpu.link_gbs * 1e9,
        "network": gpu.network_gbs * 1e9,
        "bandwidth": gpu.bandwidth_gbs * 1e9,
    }


def fit(rows: list[Row]) -> list[float]:
    """Fit the weights of the parts of a step's time by the normal equations, so that the relative error is as small as
    possible.

    The time for reading the model's weights is not fitted. Its weight is 1, because a GPU that computes little else
    reads at its full memory bandwidth.
    """
    system = [[part * row["tok_s_gpu"] for part in parts(work(row))] for row in rows]
    count = len(system[0]) - 1
    matrix = [
        [sum(one[i] * one[j] for one in system) for j in range(count)] + [sum(one[i] * (1 - one[-1]) for one in system)]
        for i in range(count)
    ]
    for i in range(count):
        pivot = max(range(i, count), key=lambda number: abs(matrix[number][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for other in range(count):
            if other != i:
                factor = matrix[other][i] / matrix[i][i]
                matrix[other] = [a - factor * b for a, b in zip(matrix[other], matrix[i])]
    return [*(matrix[i][count] / matrix[i][i] for i in range(count)), 1.0]


def excluded() -> list[tuple[Row, float]]:
    """Each row of llm-foundry with a prediction of its tokens/s per GPU, as a pair. The prediction is fitted to the
    rows of all other models.
    """
    found = []
    rows = foundry()
    for name, model in sorted({(key(row), row["model"]) for row in rows}):
        others = [one for one in rows if key(one) == name and one["model"] != model]
        if len({one["model"] for one in others}) > 1:
            weights = fit(others)
            mine = [row for row in rows if key(row) == name and row["model"] == model]
            found += [(row, 1 / sum(w * p for w, p in zip(weights, parts(work(row))))) for row in mine]
    return found


def measured(row: Row) -> float:
    """The tokens/s per GPU in the notes of a row of memory_points.jsonl. 0 if the notes have no such number."""
    return float(row["notes"].partition("tok/s/gpu=")[2].partition(";")[0] or 0)


def tuned() -> Iterator[tuple[Row, Work, str]]:
    """The runs of fms-hf-tuning with a known speed, each with its work and its kind of training."""
    for row in points.rows("memory_points.jsonl"):
        if not measured(row) or points.contradicts(row) or points.load(row).element == 4:
            # the factor of a trainer is the median of its runs in half precision
            continue
        done = Work(
            params=row["params"], layers=row["layers"], hidden=row["hidden"], length=row["seq_len"],
            tokens=row["micro_batch"] * row["seq_len"], checkpointing=row["grad_ckpt"],
            trained=float(not row["lora_r"]), machines=1, **moved(points.load(row), row["grad_accum"]),
            **card("a100-80gb"),
        )  # fmt: skip
        kind = "qlora" if row["quant"] else "lora" if row["lora_r"] else "full"
        yield row, done, kind + (" fused" if "foak" in row["notes"] else "")


def trainers(table: dict[str, list[float]]) -> dict[str, list[float]]:
    """Map each kind of training to a list of measured / predicted times, of runs with Hugging Face trainers."""
    found: dict[str, list[float]] = {}
    reported = [(done, kind, measured(row)) for row, done, kind in tuned()]
    reported += [(held_work(row), trainer_of(row), row["tokens_s_gpu"]) for row in of_other_models()]
    for done, kind, tokens in reported:
        ratio = 1 / tokens / sum(w * p for w, p in zip(table["8/half"], parts(done)))
        found.setdefault(kind, []).append(ratio)
    return found


def of_other_models() -> list[Row]:
    """Runs of fms-hf-tuning for the kinds of training that `tuned` lacks. They train adapters on dense models, either
    without fused kernels, or slowed down by PEFT's float32 casts.
    """
    kinds = {kind for _, _, kind in tuned()}
    rows = [row for row in points.rows("heldout_speed.jsonl") if row["group"] == "fms_models"]
    rows = [row for row in rows if trainer_of(row) not in kinds]
    return [row for row in rows if not points.sizes(row).experts]


def trainer_of(row: Row) -> str:
    """The key under which utilisation.json has the factor for the trainer of this row of heldout_speed.jsonl."""
    return f"{row['trainer']} casts" if row.get("casts") else str(row["trainer"])


def held_work(row: Row) -> Work:
    """The work of a run of heldout_speed.jsonl, as input for the prediction of its time."""
    facts, full = points.sizes(row), row["trainer"].startswith("full")
    stored = facts.params * (packed_bytes(4, row.get("nested", False)) if row["trainer"].startswith("qlora") else 2.0)
    gradients = stored if full else 0.0
    stage = {"ddp": 0, "zero1": 1, "zero2": 2}.get(row["strategy"], 3)
    return Work(
        params=facts.active_params or facts.params, layers=facts.layers, hidden=facts.heads * facts.head_dim,
        length=row.get("attended", row["length"]), tokens=row["micro"] * row["length"],
        checkpointing=row["checkpointing"], trained=float(full),
        machines=-(-row["gpus"] // row["node"]), **card(row["gpu"]),
        sent=sent(stage, row["gpus"], stored, gradients, row.get("accum", 1)),
        touched=touched(stored, gradients, row["checkpointing"]),
        loops=facts.experts if row["group"] in ("fms_models", "moe") else 0,
        hooked=row.get("modules", 9) if row["strategy"] == "zero3" else 0,
    )  # fmt: skip


def other_chips() -> list[Row]:
    """Published runs on GPUs with chips other than A100 and H100, in the fields of heldout_speed.jsonl.

    Runs on two 3090 with FSDP are left out, because their number of PCIe lanes is unknown. Runs without flash attention
    are left out, too.
    """
    return points.rows("other_chips.jsonl")


def by_chip(row: Row, known: Mapping[str, Any]) -> Callable[[float, float], float]:
    """Return a function of `share` and `least`, the two fitted numbers for GPUs with other chips. The function returns
    the measured time of this run divided by the time that is predicted with these two numbers.
    """
    gpu, work = find_gpu(row["gpu"]), held_work(row)
    assert gpu is not None, row["gpu"]
    generation = str(gpu.capability[0])
    weights, factor = known["weights"][f"{generation}/half"], known["trainers"][row["trainer"]]
    chip = card(CHIPS[generation][1])
    rest = seconds(work, weights, 0.0)
    products, measured = seconds(work, weights) - rest, 1 / row["tokens_s_gpu"]

    def time(share: float, least: float) -> float:
        longer = of_another_chip(work, (chip["peak"], chip["bandwidth"]), share, least)
        return measured / ((longer * products + rest) * factor)

    return time


def time_over_predicted(row: Row, known: Mapping[str, Any], share: float, least: float) -> float:
    """The measured time of a run divided by the predicted time. `by_chip` explains `share` and `least`."""
    return by_chip(row, known)(share, least)


def fit_other_chips(known: Mapping[str, Any], rows: list[Row]) -> tuple[float, float]:
    """Find the values of `share` and `least`, to two decimals, for which the mean square of log(measured / predicted
    time) is smallest. All GPUs have the same weight, regardless of their number of runs.
    """
    return _fitted(json.dumps([{name: known[name] for name in ("weights", "trainers")}, rows]))


@cache
def _fitted(reported: str) -> tuple[float, float]:
    known, rows = json.loads(reported)
    many = Counter(row["gpu"] for row in rows)
    times = [(by_chip(row, known), many[row["gpu"]]) for row in rows]

    def error(both: tuple[float, float]) -> float:
        return sum(math.log(time(*both)) ** 2 / often for time, often in times)

    return min(((share / 100, least / 100) for share in range(151) for least in range(50, 101)), key=error)


def other_chips_left_out(known: Mapping[str, Any]) -> list[tuple[Row, float]]:
    """The runs on GPUs with other chips, as pairs of a run and its measured / predicted time. The prediction for a run
    is fitted to the runs on all other such GPUs.
    """
    rows, found = other_chips(), []
    for gpu in dict.fromkeys(row["gpu"] for row in rows):
        both = fit_other_chips(known, [row for row in rows if row["gpu"] != gpu])
        found += [(row, time_over_predicted(row, known, *both)) for row in rows if row["gpu"] == gpu]
    return found


def chips() -> dict[str, dict[str, object]]:
    """Map each GPU generation to the GPU whose runs were used to fit the weights."""
    found = {}
    for generation, (name, of) in CHIPS.items():
        known = card(of)
        found[generation] = {"name": name, "peak_and_bandwidth": [known["peak"], known["bandwidth"]]}
    return found


def table() -> dict[str, object]:
    """The weights and factors of utilisation.json."""
    rows = foundry()
    weights = {}
    for name in sorted({key(row) for row in rows}):
        mine = [row for row in rows if key(row) == name]
        if len({row["model"] for row in mine}) > 1:
            weights[name] = [round(value, 5) for value in fit(mine)]
    ratios = trainers(weights)
    weights["7/fp32"] = seed(weights["8/half"])
    return {
        "source": "llm-foundry scripts/train/benchmarking; fms-acceleration scripts/benchmarks/refs; one run on V100",
        "weights": weights,
        "trainers": {name: round(statistics.median(values), 3) for name, values in sorted(ratios.items())},
        "rows": {name: len([row for row in rows if key(row) == name]) for name in weights},
        "chips": chips(),
        "other_chips": {
            "share": 0.0, "least": 0.0, "rows": len(other_chips()), "cards": len({row["gpu"] for row in other_chips()}),
        },
    }  # fmt: skip


def seed(known: list[float]) -> list[float]:
    """The weights for V100 in fp32. They are based on one published run with recomputation: 310 tokens/s per GPU with
    Qwen2.5-3B.

    The weights of communication and of memory reads are taken from the fit to A100 runs. The time that remains of the
    measured time is the time for matrix products, and determines their weight.
    """
    gpu = find_gpu("v100-32gb")
    assert gpu is not None
    bytes_ = 4 * 3085938688.0
    done = Work(
        params=3085938688, layers=36, hidden=2048, length=600, tokens=6600, checkpointing=True, trained=1.0,
        peak=gpu.fp32_tflops * 1e12, sent=sent(2, 8, bytes_, bytes_, 6), link=gpu.link_gbs * 1e9,
        network=gpu.network_gbs * 1e9, machines=1, touched=touched(bytes_, bytes_, True),
        bandwidth=gpu.bandwidth_gbs * 1e9,
    )  # fmt: skip
    products, _, _, *rest = parts(done)
    left = 1 / 310 - sum(weight * part for weight, part in zip(known[3:], rest))
    return [round(left / products, 5), 0.0, 0.0, *known[3:]]
