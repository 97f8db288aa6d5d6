"""The preflight: every check that is possible before the model is loaded, reported together."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from . import bundle_integrity, checkpoint_integrity, checkpoints, machine, output_folder
from .cache_folders import hub_home
from .errors import RunError, findings
from .feature import Bundle
from .first_rows import rows_and_tokens

DONE = "XPC_PREFLIGHT"
"""The environment variable that says which checks are done: "files" (by the launcher) or "passed" (all)."""


def without_libraries(bundle: Bundle) -> list[str]:
    """Before the launch, return the findings of all checks that need no library. On several nodes, return none, because
    one process per node makes these checks later. Raises Finished if this run is already done.
    """
    output_folder.check_unfinished(bundle)
    if bundle.run["nodes"] > 1:
        return []
    os.environ[DONE] = "files"
    return file_findings(bundle, 0, 0)


def check(bundle: Bundle, rank: int, local_rank: int, known: Sequence[str] = ()) -> None:
    """Make the checks that this process is responsible for. If there are findings, raise one RunError with them and the
    findings in ``known``.

    Before a launch on several nodes, one process per node checks, and node 0 reports the findings of all nodes.
    """
    output_folder.check_unfinished(bundle)
    if any(one.check_nodes(bundle, lambda rank: node_findings(bundle, rank, 0, alone=True)) for one in bundle.features):
        return
    found = [*known, *node_findings(bundle, rank, local_rank, alone="WORLD_SIZE" not in os.environ)]
    if found:
        error = findings(found)
        error.local = local_rank == 0  # on each node, one process reports
        for feature in bundle.features:
            feature.preflight_failed(bundle, error)
        raise error


def node_findings(bundle: Bundle, rank: int, local_rank: int, alone: bool) -> list[str]:
    """The findings of this process. With `alone`, before the launch, the process makes all checks of its node."""
    found = [] if os.environ.get(DONE) else file_findings(bundle, rank, local_rank)
    if local_rank == 0 and versions(bundle):  # the checks below need the pinned versions
        return found
    if local_rank == 0:
        wrong = machine.devices(bundle)
        wrong += [one for feature in bundle.features for one in feature.check_build_tools(bundle)]
        if alone and not wrong:
            wrong = [one for feature in bundle.features for one in feature.check_gpu_links(bundle)]
        found += wrong
    if rank == 0 or alone:
        found += rows_and_tokens(bundle)  # before a launch, one process per node checks the rows; in a run, rank 0
    return found


def file_findings(bundle: Bundle, rank: int, local_rank: int) -> list[str]:
    """Findings of checks that need no library: packages, the files of the bundle, the disk, the output folder."""
    found: list[str] = []
    if local_rank == 0:
        wrong = versions(bundle)
        found += wrong + bundle_integrity.problems(bundle)
        if not wrong:
            found += [one for feature in bundle.features for one in feature.missing_packages(bundle)]
    if rank == 0:
        found += disk(bundle) + caches()
        try:
            output_folder.begin(bundle)
        except RunError as error:
            found.append(str(error))
        found += [one for feature in bundle.features for one in feature.check_access(bundle)]
    return found


def caches() -> list[str]:
    """Findings about cache folders that cannot be written. The libraries' own errors do not name the folder."""
    found = []
    stated = {one: os.environ[one] for one in ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE") if os.environ.get(one)}
    if not {"HF_HOME", "HF_DATASETS_CACHE"} & stated.keys():
        stated["HF_HOME"] = hub_home()
    for name, written in stated.items():
        place = Path(written).expanduser().absolute()
        there = next(one for one in (place, *place.parents) if one.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            found.append(f"{name}={written}: {there} is not a folder that this user can write to")
    return found


def versions(bundle: Bundle) -> list[str]:
    """Findings about packages whose installed version is not the pinned one. Local parts (2.13.0+cpu) are ignored."""
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
    """Findings about disk space. It must suffice for the final model and for all checkpoints that exist at once."""
    plan = bundle.run.get("disk")
    if plan is None:
        return []
    needed = plan["model"] + plan["checkpoints"] * plan["checkpoint"]
    folder = Path(bundle.output_dir)
    free = shutil.disk_usage(next(one for one in (folder, *folder.parents) if one.is_dir())).free
    if free + _written(bundle) >= needed:
        return []
    one, unit = (2**30, "GiB") if needed >= 2**30 else (2**20, "MiB")
    parts = ", ".join(f"{plan[name] / one:.1f} {unit} a {name}" for name in ("checkpoint", "model"))
    return [
        f"{needed / one:.1f} {unit} will be written to {bundle.output_dir} ({plan['checkpoints']} checkpoints at once, "
        f"{parts}), and {free / one:.1f} {unit} are free; lower `keep` in save, or free some space"
    ]


def _written(bundle: Bundle) -> int:
    """The bytes of existing checkpoints. They count as free space, because a resumed run replaces these checkpoints."""
    paths = [path for _, path in checkpoints.steps(bundle.output_dir)]
    return sum(os.path.getsize(os.path.join(path, name)) for path in paths for name in checkpoint_integrity.names(path))
