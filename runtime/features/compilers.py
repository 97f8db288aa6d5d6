"""The tools that compile an extension of torch, and whether they are there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def lacking(cuda: bool) -> list[str]:
    """What torch needs to compile an extension, and does not find: ninja, a C++ compiler, with `cuda` its toolkit."""
    found = []
    if shutil.which("ninja") is None:
        beside = os.path.join(os.path.dirname(sys.executable), "ninja")
        where = f"put {os.path.dirname(beside)} on PATH" if os.path.exists(beside) else "pip install ninja"
        found.append(f"ninja is not on PATH ({where})")
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        found.append(f"there is no C++ compiler ({compiler} is not on PATH)")
    if cuda:
        found += _toolkit()
    return found


def _toolkit() -> list[str]:
    """CUDA's compiler against the CUDA of torch; DeepSpeed refuses another major version, torch too."""
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None:
        return ["there is no CUDA toolkit: set CUDA_HOME to one, or put its nvcc on PATH"]
    nvcc = os.path.join(CUDA_HOME, "bin", "nvcc")
    try:
        said = subprocess.run([nvcc, "-V"], capture_output=True, text=True, timeout=60, check=True).stdout
        release = said.split("release ")[1].split(",")[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return [f"{nvcc} does not run: CUDA_HOME holds no compiler"]
    built = str(torch.version.cuda)
    if release.split(".")[0] != built.split(".")[0] and os.environ.get("DS_SKIP_CUDA_CHECK", "0") != "1":
        return [f"{nvcc} is of CUDA {release}, and torch is built for CUDA {built}"]
    return []
