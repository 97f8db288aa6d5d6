"""This machine: its Python and packages, its GPUs and their driver, against the plan and the torch build."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from .bundle import Bundle

PYTHON = (3, 11)
"""The oldest Python that the runtime is for."""
FREE = 0.9
"""Share of the planned memory that must be free: the question's own CUDA context takes some hundred MiB."""


def devices(bundle: Bundle) -> list[str]:
    """GPU count, name, capability and memory of this node against the plan."""
    if bundle.on_cpu:
        return []
    import torch

    run = bundle.run
    needed, gpu = run["processes_per_node"], run["gpu"]
    if not torch.cuda.is_available():
        return [f"{needed} GPU(s) are needed, and torch sees none{blind()}"]
    count = torch.cuda.device_count()
    if count < needed:
        return [f"{needed} GPUs are needed on this node, and torch sees {count}"]
    if gpu is None:
        return []
    found = []
    for index in range(needed):
        facts = torch.cuda.get_device_properties(index)
        memory = facts.total_memory / 2**30
        names = gpu["device_names"]
        if names and not any(one.lower() in facts.name.lower() for one in names):
            found.append(f"GPU {index} is a {facts.name}, and this bundle is for {gpu['name']}")
        elif (facts.major, facts.minor) < tuple(gpu["capability"]):
            found.append(f"GPU {index} has compute capability {facts.major}.{facts.minor}, below {gpu['capability']}")
        elif not has_kernels(torch.cuda.get_arch_list(), facts.major, facts.minor):
            found.append(
                f"torch {torch.__version__} has no kernels for GPU {index} ({facts.name}, compute capability"
                f" {facts.major}.{facts.minor}); install a build of it that has"
            )
        elif memory < gpu["memory_gib"] * 0.97:
            found.append(f"GPU {index} has {memory:.1f} GiB, and the plan counts on {gpu['memory_gib']} GiB")
        elif os.environ.get("WORLD_SIZE", "1") == "1":  # not each process: asking leaves a CUDA context on every GPU
            found += _free(index, gpu["memory_gib"])
    return found


def _free(index: int, planned: float) -> list[str]:
    import torch

    try:
        free = torch.cuda.mem_get_info(index)[0] / 2**30
    except RuntimeError as error:
        return [f"GPU {index} cannot be used: {str(error).splitlines()[0]}"]
    if free >= FREE * planned:
        return []
    return [f"GPU {index} has {free:.1f} GiB free, and the plan counts on {planned} GiB: something else uses it"]


def has_kernels(built: Sequence[str], major: int, minor: int) -> bool:
    """Whether a build of torch for these architectures (`sm_80`) runs on a GPU: of its major version, none newer.

    True where the list names none.
    """
    numbers = {int(one.removeprefix("sm_")) for one in built if one.removeprefix("sm_").isdigit()}
    return not numbers or any(one // 10 == major and one % 10 <= minor for one in numbers)


def blind() -> str:
    """Why torch sees no GPU, as the end of a sentence; empty where nothing can be said.

    torch falls silent on an old driver (its `is_available` warns and gives False), so the driver itself is asked.
    """
    import torch

    if torch.version.cuda is None:
        return f": torch {torch.__version__} is built without CUDA"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ": CUDA_VISIBLE_DEVICES hides them all"
    able = driver()
    if able is None:
        return ": there is no NVIDIA driver (libcuda.so.1 cannot be loaded)"
    built = tuple(map(int, torch.version.cuda.split(".")[:2]))
    if able[0] < built[0]:
        return (
            f": torch {torch.__version__} is built for CUDA {torch.version.cuda}, and the NVIDIA driver knows CUDA"
            f" {able[0]}.{able[1]} at most; install a newer driver, or a build of torch for CUDA {able[0]}"
        )
    return f": the NVIDIA driver knows CUDA {able[0]}.{able[1]}, and torch is built for {torch.version.cuda}"


def driver() -> tuple[int, int] | None:
    """The newest CUDA that the NVIDIA driver knows, as it says itself (cuDriverGetVersion); None without a driver.

    A build of torch for an older minor version of the same CUDA, or an older CUDA, runs on it.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
        number = ctypes.c_int(0)
        if library.cuDriverGetVersion(ctypes.byref(number)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return number.value // 1000, number.value % 1000 // 10


def fits() -> bool:
    """Whether this Python is new enough."""
    return sys.version_info >= PYTHON


def installed(name: str) -> str | None:
    """The version of a package with its local part (2.13.0+cpu); None where it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plain(version: str) -> str:
    """A version without its local part, which makes no difference to a pin."""
    return version.split("+")[0]
