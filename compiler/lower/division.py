"""What of the way in which a run divides its steps may change between two starts of it, and the reason where not.

accelerate hands out micro-batches in turn, so the rows of a step are the same, in the same order, for every division of
the global batch. What else a step depends on decides here; `runtime/core/same_run.py` compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xpc.compiler.language.methods.micro_batch import means_over_micro_batch
from xpc.compiler.stacks import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Division, Method

BY_NUMBER = {"adamw_torch", "adamw_torch_fused", "rmsprop", "sgd"}
"""Optimizers, as transformers names them, that keep a number for each number of a weight, in a tensor as long as it.
Others keep one for a block or a row, or have a form of their own for what they save (bitsandbytes)."""
UNSEEN = ("hpz", "mics", "nvme", "parameter_alignment", "grad_accum_dtype")
"""Parts of DeepSpeed's own keys under which shards were not seen to be cut anew."""


def division(
    method: Method, arguments: Mapping[str, Json], distributed_type: str, fsdp1: bool, context_parallel: int,
    extra: Iterable[str] = (),
) -> Division:  # fmt: skip
    """The section of trainer_args.json. ``extra`` are the keys of `extra deepspeed`."""
    ulysses = distributed_type == "DEEPSPEED" and context_parallel > 1
    if distributed_type == "DEEPSPEED" and not ulysses:
        processes = _of_shards(arguments, extra)
    else:
        processes = _of_processes(distributed_type, fsdp1, context_parallel)
    means = ulysses or _means(method, arguments)
    return {
        "step": _of_any(method, arguments),
        "processes": processes,
        "micro": "a part of its loss is a mean over each micro-batch" if means else None,
    }


def _of_any(method: Method, arguments: Mapping[str, Json]) -> str | None:
    """Why a step is another one, however it is divided otherwise."""
    grouped = arguments.get("group_by_length") or arguments.get("train_sampling_strategy")
    if method["generates"]:
        return "each process draws its completions from a random state of its own"
    if method["unpaired"]:
        return "its KL term is an estimate from the rows that all processes have at once"
    if grouped not in (None, False, "random", "sequential"):
        return "rows are grouped by their length in a process's share of a step"
    if arguments.get("dataloader_drop_last"):
        return "`dataloader_drop_last` leaves out as many rows as do not fill the micro-batches of all processes"
    if arguments.get("average_tokens_across_devices") is False and method["name"] == "sft":
        return "`average_tokens_across_devices = false` weighs the tokens of each process by themselves"
    return None


def _of_shards(arguments: Mapping[str, Json], extra: Iterable[str]) -> str | None:
    """Why ZeRO's shards cannot be cut for another number of processes. DeepSpeed itself refuses each other number."""
    if arguments.get("optim") not in BY_NUMBER:
        return f"{arguments.get('optim')} keeps states of whole shards, which other processes cannot share out"
    unseen = next((key for key in extra if any(part in key for part in UNSEEN)), None)
    return f"`{unseen}` was not seen to load what another number of processes has saved" if unseen else None


def _of_processes(distributed_type: str, fsdp1: bool, context_parallel: int) -> str | None:
    """Why another number of processes cannot read the checkpoints."""
    if distributed_type == "FSDP" and fsdp1:
        return "FSDP1 was not seen to load what another number of processes has saved"
    if context_parallel > 1:
        return "processes share each sequence (`context_parallel`)"
    return None


def _means(method: Method, arguments: Mapping[str, Json]) -> bool:
    """Whether a part of the loss is a mean over a micro-batch, and not over the step."""
    losses = arguments.get("loss_type")
    named = [str(one) for one in losses] if isinstance(losses, list) else [str(losses)]
    return means_over_micro_batch(
        method["name"], named, arguments.get("rpo_alpha"), arguments.get("router_aux_loss_coef")
    )
