"""Check this machine's packages, GPUs and driver against the bundle and the torch build."""

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from .errors import first_line
from .feature import Bundle

FREE = 0.9
"""This share of a GPU's memory must be free. It is below 1 because the CUDA context of this check takes 100 MiB."""


def devices(bundle: Bundle) -> list[str]:
    """Findings about the GPU count, name, capability and memory of this node."""
    needed, gpu = bundle.run["processes_per_node"], bundle.run["gpu"]
    if gpu is None:  # the run uses no GPU
        return []
    import torch

    if not torch.cuda.is_available():
        return [f"{needed} GPU(s) are needed, and torch sees none{no_gpu_reason()}"]
    count = torch.cuda.device_count()
    if count < needed:
        return [f"{needed} GPUs are needed on this node, and torch sees {count}"]
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
                f" {facts.major}.{facts.minor}); install a build of torch that has them"
            )
        elif memory < gpu["memory_gib"] * 0.97:
            found.append(f"GPU {index} has {memory:.1f} GiB, but the plan assumes {gpu['memory_gib']} GiB")
        elif os.environ.get("WORLD_SIZE", "1") == "1":  # once per node, because the check creates a CUDA context
            found += _free(index, gpu["memory_gib"])
    return found


def _free(index: int, planned: float) -> list[str]:
    import torch

    try:
        free = torch.cuda.mem_get_info(index)[0] / 2**30
    except RuntimeError as error:
        return [f"GPU {index} cannot be used: {str(error).splitlines()[0]}"]
    text = f"GPU {index} has {free:.1f} GiB free, but the plan assumes {planned} GiB: another process uses it"
    return [text] if free < FREE * planned else []


def has_kernels(built: Sequence[str], major: int, minor: int) -> bool:
    """Whether a torch build for the architectures ``built``, such as `sm_80`, runs on this GPU: one of them must have
    the GPU's major version, and must not be newer than the GPU. True if ``built`` is empty.
    """
    numbers = {int(one.removeprefix("sm_")) for one in built if one.removeprefix("sm_").isdigit()}
    return not numbers or any(one // 10 == major and one % 10 <= minor for one in numbers)


def no_gpu_reason() -> str:
    """Why torch sees no GPU: no driver, an old driver, or a build without CUDA. The text is the end of a sentence. It
    is the error of initializing CUDA, because `torch.cuda.is_available` gives no reason.
    """
    import torch

    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ": CUDA_VISIBLE_DEVICES hides them all"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f": {first_line(error)} (torch {torch.__version__})"
    return ""


def installed(name: str) -> str | None:
    """The version of a package, perhaps with a local part (2.13.0+cpu); None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plain(version: str) -> str:
    """A version without its local part (`+cpu`), because pins have no local part."""
    return version.split("+")[0]
