"""The preflight: every check that is possible before the model is loaded, reported together."""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from . import bundle_integrity, checkpoints, machine, output_folder
from .cache_folders import hub_home
from .errors import RunError, findings, say
from .feature import Bundle
from .first_rows import rows_and_tokens

CONTAINER = "/sys/fs/cgroup/memory.max"
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
    """Make the checks of this process. If there are findings, raise one RunError with them and those in ``known``.
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
        memory(bundle)
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
        if not (there := nearest(written)).is_dir() or not os.access(there, os.W_OK | os.X_OK):
            found.append(f"{name}={written}: {there} is not a folder that this user can write to")
    return found


def nearest(path: str) -> Path:
    """The path itself or, if it does not exist, the nearest parent that exists."""
    place = Path(path).expanduser().absolute()
    return next(one for one in (place, *place.parents) if one.exists())


def versions(bundle: Bundle) -> list[str]:
    """Findings about packages whose installed version is not the pinned one. Local parts (2.13.0+cpu) are ignored."""
    found = []
    for name, pinned in bundle.pins.items():
        there = machine.plain(machine.installed(name) or "")
        if there != machine.plain(pinned):
            another = f"{name} {there} is installed, and this bundle is for {pinned}"
            found.append(another if there else f"{name} {pinned} is not installed")
    if found:
        found[-1] += f" ({sys.executable} -m pip install -r requirements.txt)"
    return found


def memory(bundle: Bundle) -> None:
    """Warn if this machine has too little RAM. The kernel would end a process later, without a message."""
    there, needed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), bundle.run.get("host_memory", 0)
    with suppress(OSError, ValueError):  # a container's limit; without a limit, the file contains a word
        there = min(there, int(Path(CONTAINER).read_text()))
    if needed > there:
        say(f"warning: the run needs {needed / 2**30:.1f} GiB of RAM, and this machine has {there / 2**30:.1f} GiB")


def disk(bundle: Bundle) -> list[str]:
    """Findings about disk space: for the final model, for all checkpoints that exist at once, and for the download."""
    plan, hub = bundle.run.get("disk"), os.environ.get("HF_HUB_CACHE") or os.path.join(hub_home(), "hub")
    if plan is None:
        return []
    there = sum(_size(path) for _, path in checkpoints.steps(bundle.output_dir))  # a resumed run replaces them
    new = plan["model"] + plan["checkpoints"] * plan["checkpoint"] - there
    left = plan["download"] - _size(os.path.join(hub, f"models--{str(bundle.model['id']).replace('/', '--')}"))
    many = f"{plan['checkpoints']} checkpoints at once, {plan['checkpoint'] / 2**30:.2f} GiB each"
    return [
        f"{needed / 2**30:.2f} GiB will be written to {folder}, and {free / 2**30:.2f} GiB are free{more}"
        for needed, folder, more in (
            (new, bundle.output_dir, f" ({many}, and the model); lower `keep` in save"),
            (0 if os.environ.get("HF_HUB_OFFLINE") else left, hub, " (the model of the hub); set HF_HUB_CACHE"),
        )
        if needed > (free := shutil.disk_usage(nearest(folder)).free)
    ]


def _size(folder: str) -> int:
    return sum(one.lstat().st_size for one in Path(folder).expanduser().rglob("*") if one.is_file())  # links are small
