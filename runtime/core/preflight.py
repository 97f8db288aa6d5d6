"""Seconds before hours: everything that can be looked at before the model is loaded, told in one go."""

from __future__ import annotations

import os
import shutil
import sys

from . import bundle_integrity, checkpoint_integrity, checkpoints, machine, output_folder
from .bundle import Bundle
from .errors import RunError, findings, say
from .first_rows import rows_and_tokens

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def check(bundle: Bundle, rank: int, local_rank: int) -> None:
    """Every check, each on the process whose business it is. Raises one RunError with all findings.

    Before the launch of several nodes, one process of each meets the others here; node 0 tells what all found.
    """
    if bundle.uses("node_rendezvous"):
        from ..features import node_rendezvous

        if node_rendezvous.held(bundle, lambda rank: own(bundle, rank, 0, alone=True)):
            return
    found = own(bundle, rank, local_rank, alone="WORLD_SIZE" not in os.environ)
    if found:
        error = findings(found)
        error.local = local_rank == 0  # type: ignore[attr-defined]  # this node's own finding is told by this node
        if bundle.uses("all_reduce"):
            from ..features import all_reduce

            all_reduce.end(error)
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
        gpus = machine.devices(bundle)
        found += gpus
        if bundle.uses("packages"):
            from ..features import packages

            found += packages.missing(bundle)
        if bundle.uses("deepspeed"):
            from ..features import deepspeed

            found += deepspeed.extensions(bundle)
        if bundle.uses("all_reduce") and alone and not gpus:
            from ..features import all_reduce

            found += all_reduce.between_gpus(bundle.run["processes_per_node"])
    if rank == 0:
        found += disk(bundle) + output_problems(bundle)
        if bundle.uses("hub"):
            from ..features import hub

            found += hub.problems(bundle)
        if bundle.uses("packages"):
            from ..features import packages

            found += packages.tracker(bundle)
    if (rank == 0 or alone) and not wrong:
        found += rows_and_tokens(bundle)  # every node reads the data, and the model that makes tokens of it
    return found


def versions(bundle: Bundle) -> list[str]:
    """Python and the installed packages against the pins. A local part (2.13.0+cpu) is no difference."""
    found = []
    if not machine.fits():
        found.append(f"Python 3.11 to 3.13 is needed, and this is {sys.version.split()[0]}")
    for name, pinned in bundle.pins.items():
        there = machine.installed(name)
        if there is None:
            found.append(f"{name} {pinned} is not installed")
        elif machine.plain(there) != machine.plain(pinned):
            found.append(f"{name} {machine.plain(there)} is installed, and this bundle is for {pinned}")
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
    free = shutil.disk_usage(output_folder.standing(bundle.output_dir)[0]).free
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
