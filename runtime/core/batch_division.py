"""Going on with a step's rows divided among other processes and micro-batches. Standard library only.

accelerate hands out micro-batches in turn, so the rows of a step are the same, in the same order, for every division of
the global batch. The rows that fill the last step of an epoch may be others: whole micro-batches of all are filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIVIDED = {
    *(f"run.{name}" for name in ("accumulation", "distributed_type", "micro", "nodes")),
    *(f"run.{name}" for name in ("processes_per_node", "world_size")),
    *(f"arguments.per_device_{name}_batch_size" for name in ("train", "eval")),
    *(f"arguments.{name}" for name in ("ddp_backend", "ddp_find_unused_parameters", "gradient_accumulation_steps")),
    *(f"accelerate.yaml: {name}" for name in ("distributed_type", "num_machines", "num_processes")),
    *(f"deepspeed.json: {name}" for name in ("gradient_accumulation_steps", "train_micro_batch_size_per_gpu")),
}  # fmt: skip
"""Settings that say how a step is divided."""
PLAIN = {"NO", "MULTI_GPU", "MULTI_CPU"}
"""Strategies whose checkpoints hold a whole optimizer."""
OF_A_MICRO_BATCH = {"aot", "aot_pair", "aot_unpaired", "bco_pair", "sft"}
"""Losses of dpo that are no mean over pairs (trl 0.18 to 1.16, dpo_trainer.py)."""


def refusal(was: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Why a run cannot go on with its steps divided so, or None. Both are settings of same_run."""
    changed = {name for name in DIVIDED if was.get(name) != now.get(name)}
    losses = now.get("arguments.loss_type")
    named = {losses} if isinstance(losses, str) else set(losses or ())
    grouped = now.get("arguments.group_by_length") or now.get("arguments.train_sampling_strategy")
    kinds = {was.get("run.distributed_type"), now.get("run.distributed_type")}
    if now.get("method.generates"):
        return "each process draws its completions from a random state of its own"
    if now.get("method.unpaired"):
        return "its KL term is an estimate from the rows that all processes have at once"
    if grouped not in (None, False, "random", "sequential"):
        return "rows are grouped by their length in a process's share of a step"
    if now.get("arguments.dataloader_drop_last"):
        return "`dataloader_drop_last` leaves out as many rows as do not fill the micro-batches of all processes"
    if now.get("arguments.average_tokens_across_devices") is False and now.get("method.name") == "sft":
        return "`average_tokens_across_devices = false` weighs the tokens of each process by themselves"
    if len(kinds) > 1 and not kinds <= PLAIN:
        return "a checkpoint of another strategy holds other files"
    if "run.world_size" in changed and not kinds <= PLAIN:
        if kinds == {"DEEPSPEED"}:
            return "DeepSpeed reads shards of as many processes as wrote them"
        if now.get("accelerate.yaml: fsdp_version") != "2":
            return "FSDP1 was not seen to load what another number of processes has saved"
        if now.get("run.context_parallel", 1) > 1:
            return "processes share each sequence (`context_parallel`)"
    means = named & OF_A_MICRO_BATCH if now.get("method.name") == "dpo" else now.get("method.name") == "orpo"
    if "run.micro" in changed and (
        means or now.get("arguments.rpo_alpha") or now.get("model.config_overrides.output_router_logits")
    ):
        return f"a part of its loss is a mean over each micro-batch; write `micro = {was.get('run.micro')}` in batch"
    return None


def told(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A sentence where the steps are divided otherwise than when the run began, else none."""
    first, this = (
        tuple(one.get(f"run.{name}") for name in ("world_size", "micro", "accumulation")) for one in (was, now)
    )
    if first == this:
        return []
    words = ["{} process(es) x {} sequences x {} accumulation".format(*one) for one in (this, first)]
    return [f"a step's {now.get('run.gbs')} sequences are {words[0]} now; the run began with {words[1]}"]
