"""Seconds before hours: everything that can be looked at before the model is loaded, told in one go."""

from __future__ import annotations

import os
import shutil
import sys

from ..features import all_reduce, hub, node_messages, node_rendezvous, shared_folder
from . import bundle_integrity, checkpoint_integrity, checkpoints, installed_versions, output_folder, requirements
from .bundle import Bundle
from .errors import RunError, findings, say
from .first_rows import rows_and_tokens
from .machine import devices, extensions

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def check(bundle: Bundle, rank: int, local_rank: int) -> None:
    """Every check, each on the process whose business it is. Raises one RunError with all findings.

    Before the launch of several nodes, one process of each meets the others here; node 0 tells what all found.
    """
    here = node_messages.seat(bundle.run["nodes"], os.environ)
    if here is not None:
        node_rendezvous.hold(bundle, here, lambda: own(bundle, here.rank, 0, alone=True))
        return
    found = own(bundle, rank, local_rank, alone="WORLD_SIZE" not in os.environ)
    if found:
        error = findings(found)
        if local_rank == 0:  # this node's own finding is told by this node
            node_rendezvous.end(error)
        raise error
    if bundle.run["nodes"] > 1 and "WORLD_SIZE" not in os.environ:
        say("only this node was looked at: NODE_RANK, MASTER_ADDR and MASTER_PORT name the others")


def own(bundle: Bundle, rank: int, local_rank: int, alone: bool) -> list[str]:
    """What is wrong on this node. `alone` is true for the one process of a node before the launch."""
    found: list[str] = []
    wrong = versions(bundle) if local_rank == 0 else []
    found += wrong
    found += bundle_integrity.problems(bundle) if local_rank == 0 else []
    if local_rank == 0 and not wrong:  # a wrong stack makes the answers of its libraries doubtful
        gpus = devices(bundle)
        found += gpus + requirements.packages(bundle) + extensions(bundle)
        if alone and not gpus:
            found += between_gpus(bundle)
    if rank == 0:
        found += disk(bundle) + output_problems(bundle) + hub.problems(bundle) + requirements.tracker(bundle)
    if (rank == 0 or alone) and not wrong:
        found += rows_and_tokens(bundle)  # every node reads the data, and the model that makes tokens of it
    return found


def between_gpus(bundle: Bundle) -> list[str]:
    """A tiny all-reduce over this node's GPUs, told in a line: one that hangs would hang the run, too."""
    count = bundle.run["processes_per_node"]
    if bundle.on_cpu or count < 2:
        return []
    out = all_reduce.bounded(lambda out: all_reduce.within(count, out))
    if all_reduce.left_behind:
        return [
            f"NCCL hangs between the {count} GPUs of this node; NCCL_DEBUG=INFO tells where, and NCCL_P2P_DISABLE=1 "
            "helps where the GPUs cannot reach each other directly"
        ]
    told = f"warning: not possible ({out['error']})" if "error" in out else node_rendezvous.speeds(out)
    say(f"all-reduce over the {count} GPUs of this node: {told}")
    return []


def versions(bundle: Bundle) -> list[str]:
    """Python and the installed packages against the pins. A local part (2.13.0+cpu) is no difference."""
    found = []
    if not installed_versions.fits():
        found.append(f"Python 3.11 to 3.13 is needed, and this is {sys.version.split()[0]}")
    for name, pinned in bundle.pins.items():
        there = installed_versions.installed(name)
        if there is None:
            found.append(f"{name} {pinned} is not installed")
        elif installed_versions.plain(there) != installed_versions.plain(pinned):
            found.append(f"{name} {installed_versions.plain(there)} is installed, and this bundle is for {pinned}")
    if found:
        found[-1] += " (pip install -r requirements.txt)"
    return found


def disk(bundle: Bundle) -> list[str]:
    """Free space where the run writes, against the weights and the checkpoints that will be kept."""
    params = bundle.model.get("params")
    if not params:
        return []
    arguments = bundle.arguments
    weights = params * BYTES.get(bundle.model["dtype"], 4)
    kept = 0
    if arguments.get("save_strategy", "steps") != "no":
        kept = (arguments.get("save_total_limit") or 1) + 1  # one more while the next is written
    full = 0 if arguments.get("save_only_model") else params * 12  # two moments and a float32 copy
    needed = weights + kept * (weights + full)
    free = shutil.disk_usage(shared_folder.standing(bundle.output_dir)[0]).free
    if free + _written(bundle) >= needed:
        return []
    return [f"{needed / 2**30:.1f} GiB will be written to {bundle.output_dir}, and {free / 2**30:.1f} GiB are free"]


def _written(bundle: Bundle) -> int:
    """Bytes of the checkpoints that are there: a run that goes on replaces them."""
    paths = [path for _, path in checkpoints.steps(bundle.output_dir)]
    return sum(os.path.getsize(os.path.join(path, name)) for path in paths for name in checkpoint_integrity.names(path))


def output_problems(bundle: Bundle) -> list[str]:
    """The rules of the output folder, before anything is loaded."""
    try:
        output_folder.begin(bundle)
    except RunError as error:
        return [str(error)]
    return []
