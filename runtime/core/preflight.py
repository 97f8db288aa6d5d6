"""Seconds before hours: everything that can be looked at before the model is loaded, told in one go."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from . import bundle_integrity, checkpoint_integrity, checkpoints, machine, output_folder
from .errors import RunError, findings
from .feature import Bundle
from .first_rows import rows_and_tokens

DONE = "XPC_PREFLIGHT"
"""The variable that says what has been looked at by now: "files", or that all "passed"."""


def without_libraries(bundle: Bundle) -> list[str]:
    """What takes no library to find out, before the launch. Several nodes look when they have met. Raises Finished."""
    output_folder.check_unfinished(bundle)
    if bundle.run["nodes"] > 1:
        return []
    os.environ[DONE] = "files"
    return file_findings(bundle, 0, 0)


def check(bundle: Bundle, rank: int, local_rank: int, known: Sequence[str] = ()) -> None:
    """Every check that nobody has made yet, each on the process whose business it is. Raises one RunError, which tells
    of what is ``known`` by now, too.

    Before the launch of several nodes, one process of each meets the others here; node 0 tells what all found.
    """
    output_folder.check_unfinished(bundle)
    if any(one.check_nodes(bundle, lambda rank: node_findings(bundle, rank, 0, alone=True)) for one in bundle.features):
        return
    found = [*known, *node_findings(bundle, rank, local_rank, alone="WORLD_SIZE" not in os.environ)]
    if found:
        error = findings(found)
        error.local = local_rank == 0  # type: ignore[attr-defined]  # this node's own finding is told by this node
        for feature in bundle.features:
            feature.preflight_failed(bundle, error)
        raise error


def node_findings(bundle: Bundle, rank: int, local_rank: int, alone: bool) -> list[str]:
    """What is wrong on this node. `alone` is true for the one process of a node before the launch."""
    found = [] if os.environ.get(DONE) else file_findings(bundle, rank, local_rank)
    if local_rank == 0 and versions(bundle):  # a wrong stack makes its libraries' answers doubtful
        return found
    if local_rank == 0:
        wrong = machine.devices(bundle)
        wrong += [one for feature in bundle.features for one in feature.check_build_tools(bundle)]
        if alone and not wrong:
            wrong = [one for feature in bundle.features for one in feature.check_gpu_links(bundle)]
        found += wrong
    if rank == 0 or alone:
        found += rows_and_tokens(bundle)  # every node reads the data, and the model that makes tokens of it
    return found


def file_findings(bundle: Bundle, rank: int, local_rank: int) -> list[str]:
    """What takes no library to find out: packages, the files of the bundle, the disk, the output folder."""
    found: list[str] = []
    if local_rank == 0:
        wrong = versions(bundle)
        found += wrong + bundle_integrity.problems(bundle)
        if not wrong:
            found += [one for feature in bundle.features for one in feature.missing_packages(bundle)]
    if rank == 0:
        found += disk(bundle)
        try:
            output_folder.begin(bundle)
        except RunError as error:
            found.append(str(error))
        found += [one for feature in bundle.features for one in feature.check_access(bundle)]
    return found


def versions(bundle: Bundle) -> list[str]:
    """The installed packages against the pins. A local part (2.13.0+cpu) is no difference."""
    found = []
    for name, pinned in bundle.pins.items():
        found_version = machine.installed(name)
        if found_version is None:
            found.append(f"{name} {pinned} is not installed")
        elif machine.plain(found_version) != machine.plain(pinned):
            found.append(f"{name} {machine.plain(found_version)} is installed, and this bundle is for {pinned}")
    if found:
        found[-1] += f" ({sys.executable} -m pip install -r requirements.txt)"
    return found


def disk(bundle: Bundle) -> list[str]:
    """Free space where the run writes, against the final model and the checkpoints that stand at once."""
    plan = bundle.run.get("disk")
    if plan is None:
        return []
    needed = plan["model"] + plan["checkpoints"] * plan["checkpoint"]
    folder = Path(bundle.output_dir)
    free = shutil.disk_usage(next(one for one in (folder, *folder.parents) if one.is_dir())).free
    if free + _written(bundle) >= needed:
        return []
    parts = ", ".join(f"{plan[one] / 2**30:.1f} GiB a {one}" for one in ("checkpoint", "model"))
    return [
        f"{needed / 2**30:.1f} GiB will be written to {bundle.output_dir} ({plan['checkpoints']} checkpoints at once, "
        f"{parts}), and {free / 2**30:.1f} GiB are free; `keep` in save lowers the first"
    ]


def _written(bundle: Bundle) -> int:
    """Bytes of the checkpoints that are there: a run that goes on replaces them."""
    paths = [path for _, path in checkpoints.steps(bundle.output_dir)]
    return sum(os.path.getsize(os.path.join(path, name)) for path in paths for name in checkpoint_integrity.names(path))
