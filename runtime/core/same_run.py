"""Decide whether two bundles are the same run: all values that affect its numbers are equal. Standard library only.

`keep`, `save every`, `hub`, `track`, timeouts and the output folder do not affect the numbers, so they may change
between two starts. The GPU model may also change, and so may the division of a step among processes and micro-batches,
unless trainer_args.json gives a reason against it. accelerate distributes micro-batches in turn, so each step has the
same rows in the same order. This does not hold for the last step of an epoch: the rows that pad it may differ, because
they complete the micro-batches of all processes.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .feature import Bundle
    from .payload import Division

NEUTRAL = {
    *(f"arguments.{one}_{name}" for one in ("logging", "save") for name in ("strategy", "steps")),
    *(f"arguments.{name}" for name in ("logging_first_step", "save_only_model", "save_total_limit")),
    *(f"arguments.hub_{name}" for name in ("always_push", "model_id", "private_repo", "revision", "strategy")),
    *(f"arguments.{name}" for name in ("ddp_timeout", "output_dir", "project", "push_to_hub", "report_to", "run_name")),
    *(f"run.{name}" for name in ("disk", "division", "flops", "full_state", "gpu", "host_memory", "project", "resume")),
    *("arguments.dataset_num_proc", "data.workers", "format", "hub", "run.deepspeed_extension", "run.use_cache_after"),
    *("lora.merge", "model.liger_unchecked", "model.renamed", "trainer"),
}
"""Keys of trainer_args.json that do not affect what a run computes."""
DIVIDED = {
    *(f"run.{name}" for name in ("accumulation", "distributed_type", "micro", "nodes")),
    *(f"run.{name}" for name in ("processes_per_node", "world_size")),
    *(f"arguments.per_device_{name}_batch_size" for name in ("train", "eval")),
    *(f"arguments.{name}" for name in ("ddp_backend", "ddp_find_unused_parameters", "gradient_accumulation_steps")),
    *(f"accelerate.yaml: {name}" for name in ("distributed_type", "num_machines", "num_processes")),
    *(f"deepspeed.json: {name}" for name in ("gradient_accumulation_steps", "train_micro_batch_size_per_gpu")),
}  # fmt: skip
"""Settings that only decide how the rows of a step are divided among processes and micro-batches."""
PLAIN = {"NO", "MULTI_GPU", "MULTI_CPU"}
"""Distributed types (of accelerate) whose checkpoints contain the complete optimizer state in one file."""
MOST = 8
"""A message lists at most this many differences."""


def settings(bundle: "Bundle") -> dict[str, Any]:
    """Every value that affects the numbers, by its dotted name in the files of the bundle."""
    found = {name: value for name, value in _flat("", bundle.plan) if not {name, name.rpartition(".")[0]} & NEUTRAL}
    for file in ("accelerate.yaml", "deepspeed.json"):
        path = os.path.join(bundle.folder, file)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                text = handle.read()
            found.update(_flat(file + ": ", json.loads(text) if file.endswith("json") else _lines(text)))
    return found


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(f"{name}{'.' if name and not name.endswith(' ') else ''}{key}", inner)


def _lines(text: str) -> dict[str, str]:
    entries = (line.strip().partition(": ") for line in text.splitlines() if not line.startswith("#"))
    return {key: value for key, _, value in entries}


def differences(was: dict[str, object], now: dict[str, object], division: "Division") -> str:
    """Describe the settings that differ; the text is the end of a sentence. "" if the run can resume."""
    names = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
    # ignore settings that do not affect the numbers: older versions of xpc recorded these, too
    names = [name for name in names if not {name, name.rpartition(".")[0]} & NEUTRAL]
    divided = DIVIDED.intersection(names)
    why = _refusal(was, now, division, alone=DIVIDED.issuperset(names)) if divided else None
    if divided and not why:
        names = [name for name in names if name not in divided]
        if "run.gbs" in names and all(name.endswith(("gbs", "batch_size")) for name in names):
            why = f"write `gbs = {was.get('run.gbs')}` in batch to resume with another number of processes"
    changes = [f"{name} was {json.dumps(was.get(name))} and is {json.dumps(now.get(name))}" for name in names[:MOST]]
    more = f", and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(changes) + more + (f" ({why})" if names and why else "")


def _refusal(was: Mapping[str, object], now: Mapping[str, object], division: "Division", alone: bool) -> str | None:
    """Why a run cannot resume with other processes or micro-batches; what to write, if they are the `alone` change."""
    kinds = {was.get("run.distributed_type"), now.get("run.distributed_type")}
    if division["step"]:
        return division["step"]
    if len(kinds) > 1 and not kinds <= PLAIN:
        return "a checkpoint of another strategy has other files"
    if division["processes"] and was.get("run.world_size") != now.get("run.world_size"):
        return division["processes"]
    if division["micro"] and was.get("run.micro") != now.get("run.micro"):
        return division["micro"] + f"; write `micro = {was.get('run.micro')}` in batch" * alone
    return None


def divided_otherwise(was: Mapping[str, Any], now: Mapping[str, object]) -> list[str]:
    """A list with one sentence on how the division of steps has changed since the run began. Empty without a change."""
    names = [f"run.{name}" for name in ("world_size", "micro", "accumulation")]
    this, first = ([one.get(name) for name in names] for one in (now, was))
    if first == this:
        return []
    words = ["{} process(es) x {} sequences x {} accumulation".format(*one) for one in (this, first)]
    return [f"a step's {now.get('run.gbs')} sequences are {words[0]} now; the run began with {words[1]}"]
