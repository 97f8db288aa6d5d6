"""Find in which ways a resumed run may divide its global batch differently than before: among another number of
processes, or into other micro-batches.

accelerate gives micro-batches to the processes in turn. Therefore a step has the same rows in the same order with every
division into processes, micro-batches and accumulation. But other things in a step may depend on the division, and this
module lists them. When a run resumes, `runtime/core/same_run.py` compares the list with the earlier run's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xpc.compiler.language.methods.micro_batch import means_over_micro_batch
from xpc.compiler.stacks import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Division, Method

ELEMENTWISE = {"adamw_torch", "adamw_torch_fused", "rmsprop", "sgd"}
"""Optimizers (transformers' names) whose states can be divided among another number of processes, because each state
has the shape of its weight. Other optimizers keep one number for a block or a row, or, as bitsandbytes does, save in a
format of their own.
"""
UNTESTED = ("hpz", "mics", "nvme", "parameter_alignment", "grad_accum_dtype")
"""Parts of the names of DeepSpeed's keys. A run with such a key in `extra deepspeed` does not load checkpoints of
another number of processes, because this was not tested.
"""


def division(
    method: Method, arguments: Mapping[str, Json], distributed_type: str, fsdp1: bool, context_parallel: int,
    extra: Iterable[str] = (),
) -> Division:  # fmt: skip
    """The section `division` of trainer_args.json. It says in which ways a resumed run may divide its batch
    differently. Each of the keys `step`, `processes` and `micro` stands for one way. Its value is None if the way is
    possible, and otherwise the reason why it is not. `extra` are the keys in `extra deepspeed`.
    """
    ulysses = distributed_type == "DEEPSPEED" and context_parallel > 1
    if distributed_type == "DEEPSPEED" and not ulysses:
        processes = _shard_obstacle(arguments, extra)
    else:
        processes = _process_obstacle(distributed_type, fsdp1, context_parallel)
    means = ulysses or _has_micro_batch_mean(method, arguments)
    return {
        "step": _step_obstacle(method, arguments),
        "processes": processes,
        "micro": "a part of the run's loss is a mean over each micro-batch" if means else None,
    }


def _step_obstacle(method: Method, arguments: Mapping[str, Json]) -> str | None:
    """The reason why the result of a step depends on how the batch is divided, or None."""
    grouped = arguments.get("group_by_length") or arguments.get("train_sampling_strategy")
    if method["generates"]:
        return "each process generates its completions from a random state of its own"
    if method["unpaired"]:
        return "the loss has a KL term that is estimated from one micro-batch of each process"
    if grouped not in (None, False, "random", "sequential"):
        return "rows are grouped by length within a process's share of a step"
    if arguments.get("dataloader_drop_last"):
        return "`dataloader_drop_last` drops the rows that do not fill the micro-batches of all processes"
    if arguments.get("average_tokens_across_devices") is False and method["name"] == "sft":
        return "with `average_tokens_across_devices = false` each process averages the loss over its own tokens"
    return None


def _shard_obstacle(arguments: Mapping[str, Json], extra: Iterable[str]) -> str | None:
    """The reason why the runtime cannot reshard ZeRO's shards for another number of processes, or None. (DeepSpeed
    itself does not reshard them.)
    """
    if arguments.get("optim") not in ELEMENTWISE:
        return f"{arguments.get('optim')} keeps states per shard, which cannot be divided among other processes"
    untested = next((key for key in extra if any(part in key for part in UNTESTED)), None)
    return f"loading a checkpoint of another number of processes was not tested with `{untested}`" if untested else None


def _process_obstacle(distributed_type: str, fsdp1: bool, context_parallel: int) -> str | None:
    """The reason why a run with another number of processes cannot load this run's checkpoints, or None."""
    if distributed_type == "FSDP" and fsdp1:
        return "loading a checkpoint of another number of processes was not tested with FSDP1"
    if context_parallel > 1:
        return "processes share each sequence (`context_parallel`)"
    return None


def _has_micro_batch_mean(method: Method, arguments: Mapping[str, Json]) -> bool:
    """Whether a part of the loss is a mean over each micro-batch, and not over the complete step."""
    losses = arguments.get("loss_type")
    named = [str(one) for one in losses] if isinstance(losses, list) else [str(losses)]
    return means_over_micro_batch(
        method["name"],
        named,
        arguments.get("rpo_alpha") or arguments.get("cpo_alpha"),
        arguments.get("router_aux_loss_coef"),
    )
