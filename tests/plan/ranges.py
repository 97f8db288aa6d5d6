"""Compute the range of hours that a plan states, and check that it holds for runs to which it was not fitted.

python tests/plan/ranges.py

writes compiler/plan/utilisation.json. A range has a lower and an upper bound for measured time / predicted time. The
base range is the narrowest range that contains nine of ten measured runs. A source with n rows has the weight sqrt(n),
so that neither one large table nor one unusual trainer decides it. The prediction itself is not moved to the middle of
the range, so it stays without bias for the rows to which it was fitted. A row of llm-foundry is predicted from
llm-foundry's rows of other models. Except for one factor for fms-hf-tuning, nothing was fitted to any other source. If
a GPU has neither the chip of an A100 nor that of an H100, runs on it are predicted from runs on other such GPUs. Some
settings widen the range: DeepSpeed, a quantized base, rows of many lengths (GPUs wait for each other), mixtures of
experts and other chips. The range of such a setting contains the base range and the setting's own runs.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import heldout
import later
import points
import utilisation
from points import Row

from xpc.compiler.plan import time
from xpc.compiler.plan.time import parts, range_of, speed
from xpc.compiler.plan.time import table as speeds
from xpc.grammar.package_data import read_json, read_text
from xpc.grammar.record import record

SHARE = 0.9
OTHER = "other chip"
"""The name of the range for runs on GPUs with a chip other than A100 or H100."""
KINDS = ("base", "deepspeed", "experts", "lengths", OTHER, "quantized")
LENGTHS = "training_hub"
"""The group of measured runs whose rows have many different lengths."""
MODELS = {
    "Llama-2-7B": "llama-2-7b", "Llama-2-13B": "llama-2-13b", "Llama3-8B": "llama-3-8b", "Qwen2.5-7B": "qwen2.5-7b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
}  # fmt: skip
CARDS = {"A100-80": "a100-80gb", "H100": "h100-80gb"}
LEFT = {
    "model": lambda row: row["model"],
    "kind of GPU": lambda row: row["gpu"],
    "strategy": lambda row: row["strategy"],
    "number of GPUs": lambda row: row["gpus"],
    "recomputation, on or off": lambda row: row["ckpt"],
    "length of rows": lambda row: row["seq"],
}  # fmt: skip
"""The rows of llm-foundry's table can be grouped in several ways, such as by model. Each way is mapped to a function
that returns the group of a row. Each fit leaves out all rows of one group.
"""


@record
class Run:
    """A measured run: its source, the name of its range (`kind`), and its measured time divided by its predicted time
    (`time`).
    """

    source: str
    kind: str
    time: float


def unplanned(row: Row) -> str:
    """The reason why a row of throughput_points.jsonl has no prediction. Empty if the row has a prediction. Must not
    be called with rows of llm-foundry.
    """
    if "fp8" in row["method"] + row["notes"]:
        return "fp8"
    if any(way in row["strategy"].split(" ", 1)[-1] for way in ("tp", "cp", "ep")):
        return "tensor, context or expert parallel"
    return "" if row["model"] in MODELS else "a model whose sizes the registry lacks"


def apart() -> list[Row]:
    """Runs of throughput_points.jsonl that llm-foundry did not publish, in the form of the rows of heldout_speed.jsonl.

    A run used recomputation if "GC" is in the row's `method`. HSDP counts as FSDP within one machine. All LoRA rows
    count as runs with a fused kernel ("TE+triton").
    """
    found = []
    for row in points.rows("throughput_points.jsonl"):
        if "llm-foundry" in row["source"] or unplanned(row):
            continue
        single, inside = row["strategy"] == "single", row["strategy"] == "hsdp"
        found.append(
            {
                "source": row["source"], "group": row["source"].split()[0], "model": MODELS[row["model"]],
                "gpu": CARDS[row["gpu"]], "gpus": 8 if inside else row["gpus"], "node": 8, "length": row["seq"],
                "micro": row["micro"] or 1, "checkpointing": "GC" in row["method"],
                "trainer": "lora fused" if row["method"] == "lora" else "full", "strategy": "ddp" if single else "fsdp",
                "tokens_s_gpu": row["tokens_s_gpu"],
            }
        )  # fmt: skip
    return found


def runs() -> list[Run]:
    """Every measured run that has a prediction."""
    found = [Run("llm-foundry", "base", value / row["tok_s_gpu"]) for row, value in utilisation.excluded()]
    for row, work, kind in utilisation.tuned():
        reported = speed(work, 8, "bf16", kind)
        assert reported is not None
        one = "quantized" if kind.startswith("qlora") else "base"
        found.append(Run("fms-hf-tuning", one, reported.tokens / utilisation.measured(row)))
    for row in [*heldout.speed_rows(), *apart()]:
        reported = heldout.tokens(row)
        assert reported is not None, row
        found.append(Run(source(row), kind_of(row), reported.tokens / row["tokens_s_gpu"]))
    found += [Run(row["source"], kind, later.time(row)) for row, kind in later.fitted()]
    return [*found, *on_other_chips(speeds())]


def on_other_chips(known: dict[str, Any]) -> list[Run]:
    """The runs on GPUs that have another chip than A100 and H100. All runs on one such GPU count as one source, and are
    predicted from the runs on the other such GPUs.
    """
    return [
        Run(f"{row['group']} on {row['gpu']}", OTHER, time) for row, time in utilisation.other_chips_left_out(known)
    ]


def source(row: Row) -> str:
    """The source to which a row belongs, that is, its trainer and its publisher. Runs are weighted by source."""
    return "xtuner" if "attended" in row else {"fms_models": "fms-hf-tuning"}.get(row["group"], str(row["group"]))


def kind_of(row: Row) -> str:
    """The kind of a held-out measurement, such as "deepspeed". Each kind has its own range."""
    if points.sizes(row).experts:
        return "experts"
    if row["trainer"].startswith("qlora"):
        return "quantized"
    if row["strategy"].startswith("zero"):
        return "deepspeed"
    return "lengths" if row["group"] == LENGTHS else "base"


def narrowest(found: Sequence[Run]) -> tuple[float, float]:
    """The narrowest range of measured / predicted time that contains nine tenths of the runs (by weight)."""
    many = Counter(one.source for one in found)
    weighed = sorted((one.time, 1 / math.sqrt(many[one.source])) for one in found)
    enough, best = SHARE * sum(weight for _, weight in weighed) - 1e-9, (0.0, math.inf)
    for start, (low, _) in enumerate(weighed):
        inside = 0.0
        for high, weight in weighed[start:]:
            inside += weight
            if inside >= enough:
                best = min(best, (low, high), key=lambda one: one[1] - one[0])
                break
    return best


def ranges(found: Sequence[Run]) -> dict[str, list[float]]:
    """The range of each kind of run. Each range contains the range of the kind `base`."""
    base = narrowest([one for one in found if one.kind == "base"])
    out = {"base": base}
    for kind in sorted({one.kind for one in found} - {"base"}):
        own = narrowest([one for one in found if one.kind == kind])
        out[kind] = (min(base[0], own[0]), max(base[1], own[1]))
    return {kind: [math.floor(low * 100) / 100, math.ceil(high * 100) / 100] for kind, (low, high) in out.items()}


def inside(one: Run, known: dict[str, list[float]]) -> bool:
    """Whether the time that a run took is within the range that is stated for it."""
    low, high = known.get(one.kind, known["base"])
    return low <= one.time <= high


def without() -> list[tuple[str, int, float, float, int, int]]:
    """For each source, a tuple: its name, its number of rows, the smallest and the largest measured / predicted time,
    how many of its rows are in the stated range, and how many are in a range that is computed without this source.
    """
    found, out = runs(), []
    known = ranges(found)
    for name in dict.fromkeys(one.source for one in found):
        mine = [one for one in found if one.source == name]
        others = ranges([one for one in found if one.source != name])
        times = [one.time for one in mine]
        hits = sum(inside(one, known) for one in mine), sum(inside(one, others) for one in mine)
        out.append((name, len(mine), min(times), max(times), *hits))
    return out


def fitted(rows: list[Row]) -> list[float]:
    """Fit a weight for each part of a step's time, such as the matrix products. Return [] if the rows are too few or
    too similar to determine the weights.
    """
    try:
        weights = utilisation.fit(rows)
    except ZeroDivisionError:
        return []
    return weights if min(weights) >= 0 else []


def groups(part: Callable[[Row], object]) -> tuple[list[float], int]:
    """A pair. The first member is a list of measured time / predicted time, for each row of llm-foundry with a
    prediction. The second one is the number of rows without a prediction. A row is predicted only from rows with
    another value of `part`, such as the number of GPUs.

    A row has no prediction if a fit to these other rows has no solution, or if the fit gives a part of a step's time a
    weight below zero.
    """
    rows, found, none = utilisation.foundry(), [], 0
    for name, value in sorted({(utilisation.key(row), part(row)) for row in rows}, key=str):
        mine = [row for row in rows if (utilisation.key(row), part(row)) == (name, value)]
        others = [row for row in rows if utilisation.key(row) == name and part(row) != value]
        if len({row["model"] for row in others}) < 2 or not (weights := fitted(others)):
            none += len(mine)
            continue
        for row in mine:
            seconds = sum(w * p for w, p in zip(weights, parts(utilisation.work(row)), strict=True))
            found.append(1 / seconds / row["tok_s_gpu"])
    return found, none


def section() -> list[str]:
    """The lines of this module's section of docs/plan-accuracy.md."""
    named = {
        "base": "without DeepSpeed, rows of one length or packed", "deepspeed": "with DeepSpeed",
        "lengths": "rows of many lengths that are not packed", "quantized": "a quantized base",
        "experts": "a mixture of experts", OTHER: "a GPU with another chip than A100 and H100",
    }  # fmt: skip
    found = runs()
    out = ["## The range of hours", ""]
    out += [
        "The base range is the narrowest range of (measured time / predicted time) that contains nine of ten runs. A",
        "source with n runs has the weight sqrt(n). Some settings of a spec widen the range:", "",
    ]  # fmt: skip
    out += ["| runs | measured | sources | range of the hours |", "|---|---|---|---|"]
    for kind, (low, high) in ranges(found).items():
        mine = [one for one in found if one.kind == kind]
        many = len({one.source for one in mine})
        hours = f"{low:.2f} to {high:.2f} of the predicted hours"
        out.append(f"| {named[kind]} | runs: {len(mine)} | sources: {many} | {hours} |")
    out += [
        "",
        "Each range was also fitted without one source (or without one model of llm-foundry's table), and then tested",
        "with it:",
        "",
    ]
    out += ["| source | runs | measured / predicted time | in the stated range | in the range fitted without it |"]
    out += ["|---|---|---|---|---|"]
    for name, many, least, most, hits, alone in without():
        times = f"runs: {many} | took {least:.2f} to {most:.2f} of the predicted time"
        out.append(f"| {name} | {times} | {hits} in the stated range | {alone} in the range fitted without it |")
    base = range_of(())
    out += ["", "The same test with llm-foundry's rows, leaving out all rows of a group, such as one model's:", ""]
    out += ["| without rows of the same | rows | mean error | nine of ten within | in the range | no fit possible |"]
    out += ["|---|---|---|---|---|---|"]
    for name, part in LEFT.items():
        times, none = groups(part)
        off = sorted(abs(one - 1) for one in times)
        if off:
            hits = sum(base[0] <= one <= base[1] for one in times)
            nine = off[math.ceil(SHARE * len(off)) - 1]
            mean = f"mean error {statistics.mean(off):.1%} | nine of ten within {nine:.1%}"
            out.append(f"| {name} | rows: {len(off)} | {mean} | {hits} in the range | {none} cannot be fitted |")
    reasons = Counter(
        unplanned(row) for row in points.rows("throughput_points.jsonl") if "llm-foundry" not in row["source"]
    )
    left = ", ".join(f"{why}: {many}" for why, many in sorted(reasons.items()) if why)
    return [*out, "", f"These rows of throughput_points.jsonl from other sources have no prediction ({left}).", ""]


def table() -> dict[str, object]:
    """The contents of utilisation.json, with newly fitted weights and ranges."""
    cards = {f"{row['group']} on {row['gpu']}" for row in utilisation.other_chips()}
    moved = [one for one in runs() if one.source not in cards]
    known: dict[str, Any] = utilisation.table()
    share, least = utilisation.fit_other_chips(known, utilisation.other_chips())
    known["other_chips"] |= {"share": share, "least": least}
    return {**known, "ranges": ranges([*moved, *on_other_chips(known)])}


if __name__ == "__main__":
    # utilisation.json is written three times, because predictions read it. The first write has new weights. The second
    # one adds the values for other chips, which are fitted to predictions with the new weights. The third one adds the
    # ranges, which are computed from predictions with both.
    for made in (lambda: {**utilisation.table(), "ranges": {kind: [1.0, 1.0] for kind in KINDS}}, table, table):
        written = json.dumps(made(), indent=1) + "\n"
        with open(os.path.join(os.path.dirname(time.__file__), "utilisation.json"), "w", encoding="utf-8") as handle:
            handle.write(written)
        read_text.cache_clear()
        read_json.cache_clear()
    print("utilisation.json written")
