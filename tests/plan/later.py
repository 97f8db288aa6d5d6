"""Read the newest collection of published measurements, and write the section of docs/plan-accuracy.md about it.

The measurements are divided into two halves by the digest of a row's source (`points.aside`). The first half may be
used to widen ranges and to correct formulas; the second half is never used for that. `lengths` marks runs whose rows
are not packed and have different lengths. For these, `length` is the mean length, including padding if the trainer
counts padding tokens.
"""

from __future__ import annotations

import statistics

import heldout
import points
from points import Row

from xpc.compiler.plan.time import range_of
from xpc.compiler.registry import find_gpu

OTHER = "other chip"
WHAT = {
    "orca": "fms-hf-tuning, full and QLoRA, Mistral 7B on 1 to 8 A100: 8,000 short rows, 2 to 64 in a micro-batch",
    "moe": "fms-hf-tuning, granite-3.0-3b-a800m on 1 to 4 A100, 40 experts one after the other",
    "peft_l40s": "PEFT's comparison of methods, Llama 3.2 3B on L40S, 4 short rows",
    "torchtune_cards": "torchtune, Llama 3.1 8B on RTX 4090 and A6000, compiled",
    "soup_h100": "a trainer over TRL 0.26, Llama 3.1 8B and Qwen2.5 0.5B on H100",
    "liger_fsdp": "Hugging Face trainers, FSDP1 on 4 A100, models of 2B to 8B, short padded rows",
    "qwen_table": "transformers' trainer, Qwen (the first version) of 1.8B to 72B on 1 to 4 A100: LoRA, and ZeRO-3",
    "padded_zero3": "transformers' trainer, ZeRO-3 with DeepSpeed's own buckets on 4 and 8 A100, Llama 3 8B",
}
FASTEST = 0.8
"""Every run reaches less than this share of a GPU's peak operations."""


def speed_rows() -> list[Row]:
    """The measurements of speed. A measurement above FASTEST is left out, because no GPU can be so fast."""
    return [row for row in points.rows("later_speed.jsonl") if used(row) <= FASTEST]


def used(row: Row) -> float:
    """The share of the GPU's peak FLOPS that a run achieved, according to the fields of its row."""
    facts, gpu = points.sizes(row), find_gpu(row["gpu"])
    assert gpu is not None, row["gpu"]
    passes = 2 + (row["trainer"] == "full") + bool(row["checkpointing"])
    return 2e-12 * passes * (facts.active_params or facts.params) * row["tokens_s_gpu"] / gpu.bf16_tflops


def kinds(row: Row) -> list[str]:
    """The reasons why the range of a run's predicted hours is wider: `quantized`, `experts`, `lengths`, `deepspeed`, or
    a GPU that has another chip than A100 and H100.
    """
    gpu = find_gpu(row["gpu"])
    assert gpu is not None
    found = ["quantized"] * row["trainer"].startswith("qlora") + ["experts"] * bool(points.sizes(row).experts)
    found += ["lengths"] * bool(row.get("lengths")) + ["deepspeed"] * row["strategy"].startswith("zero")
    return found + [OTHER] * (gpu.name not in ("a100-80gb", "h100-80gb"))


def time(row: Row) -> float:
    """The measured time of a run, divided by its predicted time. `row` describes the run and its measured speed."""
    found = heldout.tokens(row)
    assert found is not None
    return float(found.tokens / row["tokens_s_gpu"])


def fitted() -> list[tuple[Row, str]]:
    """The measured runs that may widen a range of predicted speeds, as pairs of a run and the name of this range.

    Two groups of runs are left out: compiled runs of torchtune, because the plan does not cover them, and runs whose
    measured memory contradicts their own description.
    """
    rows = [row for row in speed_rows() if not points.aside(row) and row["group"] in ("orca", "moe", "peft_l40s")]
    return [(row, (kinds(row) or ["base"])[-1] if not points.sizes(row).experts else "experts") for row in rows]


def _half(rows: list[Row]) -> list[str]:
    out = ["| group | what is measured | number | measured / predicted time | median | in the stated range |"]
    out += ["|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["group"] for row in rows):
        mine = [row for row in rows if row["group"] == name]
        times = [time(row) for row in mine]
        hits = sum(low <= one <= high for one, (low, high) in zip(times, (range_of(kinds(row)) for row in mine)))
        out.append(
            f"| {name} | {WHAT[name]} | runs: {len(mine)} | took {min(times):.2f} to {max(times):.2f} of the predicted "
            f"time | median {statistics.median(times):.2f} | {hits} in the stated range |"
        )
    return out


def inside(rows: list[Row]) -> int:
    """How many of these runs took a time within the range that the plan states for them."""
    ranges = [range_of(kinds(row)) for row in rows]
    return sum(low <= time(row) <= high for row, (low, high) in zip(rows, ranges))


def section() -> list[str]:
    """The lines of docs/plan-accuracy.md about measurements that were collected last."""
    every, rows = points.rows("later_speed.jsonl"), speed_rows()
    models, cards = {row["model"] for row in every}, {row["gpu"] for row in every}
    left = ", ".join(f"{row['gpu']} {row['trainer']} ({used(row):.0%})" for row in every if row not in rows)
    memory = points.rows("later_memory.jsonl")
    peaks = [[row for row in memory if points.aside(row) == half] for half in (False, True)]
    died = [heldout.judged(row) for row in memory if row["peak_gib"] is None]
    return [
        "## Collected later, in two halves",
        "",
        f"{len(every)} speeds and {len(memory)} peaks of {len(models)} models on {len(cards)} GPUs, from sources that",
        "no other table here uses (tests/plan/measured/later_speed.jsonl, later_memory.jsonl), and five peaks of the",
        "fused head above. Before any row was predicted, a hash of each source's name decided whether its speeds may",
        "be used for fitting (the first half) or only for testing (the second half).",
        "",
        "The first half showed three things. First, a GPU with few tokens waits for the CPU that starts its kernels.",
        "A model with 40 small experts, which are computed one after the other, was predicted 7 to 10 times too fast.",
        "The plan now has a minimum time for a micro-batch: that of starting the kernels of such experts, or of PEFT's",
        "adapter layers, as measured on L40S. The number for PEFT was added after `soup_h100`, a source of the second",
        "half, had been predicted 4 to 30 times too fast. The number is not fitted to the runs of `soup_h100`, and",
        "they are now in the stated range, but they do not test it independently. Second, short rows that are not",
        "packed take longer than predicted, by about a fifth of a second in each micro-batch of a 7B model. The",
        "sources do not show why,",
        "so these runs only widen the range for rows of many lengths. Third, L40S is faster than predicted by the two",
        "numbers that convert measurements to other chips, which widens the range of those predictions.",
        "",
        "The second half shows what is still wrong: QLoRA with 300 to 900 tokens in a micro-batch is predicted up to",
        "three times too fast on one GPU and up to eight times under FSDP.",
        "",
        "Speeds of the first half:",
        "",
        *_half([row for row in rows if not points.aside(row)]),
        "",
        "Speeds of the second half:",
        "",
        *_half([row for row in rows if points.aside(row)]),
        "",
        f"These runs are not compared, because their matrix products alone would need more than {FASTEST:.0%} of the",
        f"GPU's peak speed: {left}.",
        "torchtune's runs are compiled, which the plan does not count. With 512 tokens in a micro-batch, ZeRO-3 took",
        "1.9 to 2.5 times the predicted time, until the plan also counted the time that the CPU needs for ZeRO-3's",
        "hooks. This time was measured on a CPU (tests/plan/hook_time.py) and not fitted, but these runs were known",
        "when it was measured. The runs of `qwen_table` under ZeRO-2 on two machines are 1.4 to 2.1 times as slow as",
        "predicted; the network between these machines is not known. Gemma 2 in `liger_fsdp` takes two and a half",
        "times as long: nearly all memory of its GPUs was reserved, and the time of a step varied between 1.1 and 6.6",
        "seconds.",
        "",
        "Peaks of the first half:",
        "",
        *heldout.group(peaks[0], heldout.memory_error, WHAT),
        "",
        "Peaks of the second half:",
        "",
        *heldout.group(peaks[1], heldout.memory_error, WHAT),
        "",
        f"{len(died)} of these runs ran out of memory; the verdict is {', '.join(f'`{one}`' for one in died)}.",
        "",
        "`padded_zero3` showed what the plan lacked for ZeRO-3: the mean error was 19.5% in the first half and 17.6%",
        "in the second, and the run that ran out of memory got the verdict `fits`. DeepSpeed's code shows what was",
        "missing: all gradients of a process exist from start to end, the optimizer's step copies a sub-group's",
        "gradients before it converts them, and up to three buckets are reduced at a time, each with a copy. The plan",
        "did not read the size of the buckets, which is 500 million elements in these runs. The peaks are those of",
        "active memory, which includes tensors that another stream still uses.",
        "",
        "`liger_fsdp` reports the allocator's peak in each step, and the number of tokens on all four GPUs, so a row",
        "has the mean of all steps. Gemma 2 was predicted 12.6% too low: its head keeps the output of a tanh over the",
        "logits. Five logs of Phi 3.5 are left out, because their memory grows with the logits although the fused",
        "loss should be active.",
        "",
        "`soup_h100` reports the used memory of the whole GPU for a run without recomputation. The figure includes",
        "memory that torch's allocator keeps in reserve, which the plan does not count. The dtype of the base is not",
        "stated; a base in float32 would need 15 GiB more than predicted.",
        "",
    ]  # fmt: skip
