"""The checks of `xpc doctor` for an interpreter and its machine. This file is run as a program; runs do not use it.

It reads a JSON object from standard input (`pins`: versions that every bundle needs; `optional`: versions that only
some bundles need), and writes a JSON list of entries. It does not use the network. Secrets, such as tokens, are
reported only as set or not set.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

if not __package__:
    sys.path[0], __package__ = os.path.split(os.path.dirname(os.path.abspath(__file__)))
    _kept, sys.pycache_prefix = sys.pycache_prefix, os.devnull  # read no bytecode of this folder (see __init__.py)
    __import__(__package__)
    sys.pycache_prefix = _kept
    del sys.path[0]  # a checked library must not import a module of this folder instead of its own

from .core import machine
from .core.cache_folders import hub_home, user_caches
from .features.distributed import deepspeed, shared_folder

FINE, NOTE, WRONG = "fine", "note", "wrong"
SECRETS = ("HF_TOKEN", "WANDB_API_KEY")
SWITCHES = (
    "HF_HUB_OFFLINE",
    "CUDA_VISIBLE_DEVICES",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "TORCH_CUDA_ARCH_LIST",
)
"""Variables that change where a run looks for files. They are not secret."""
COMPILING = 0.5
"""A compilation takes minutes. A lock that is older than this many hours was left by a compilation that died."""
LOW = 20.0
"""At least this many GiB should be free: enough for the weights and a checkpoint of a model with 1B parameters."""

Entry = tuple[str, str, str]
"""The name of a check, such as `memory`, its result (`fine`, `note` or `wrong`), and a sentence about it."""


def main() -> int:
    """Print the entries as JSON. Returns the exit status."""
    request = json.load(sys.stdin)
    output = os.dup(1)
    os.dup2(2, 1)  # imported libraries print to stderr, because the caller reads stdout as JSON
    entries = list(inspect(request["pins"], request["optional"]))
    with os.fdopen(output, "w", encoding="utf-8") as out:
        json.dump([dict(zip(("what", "state", "says"), one, strict=True)) for one in entries], out)
    return 0


def inspect(pins: Mapping[str, str], optional: Mapping[str, str]) -> Iterator[Entry]:
    """All entries, in the order of the report: interpreter, packages, torch, locks, folders, variables."""
    yield python()
    yield from packages(pins, optional)
    yield from torch()
    yield from locks()
    yield from folders()
    yield from variables()


def python() -> Entry:
    """The entry about the interpreter. For a version that is too old, ``__init__.py`` has already ended the process."""
    return ("python", FINE, f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}")


def packages(pins: Mapping[str, str], optional: Mapping[str, str]) -> Iterator[Entry]:
    """Entries that compare the installed packages with the target's pins. Local parts (2.13.0+cpu) are ignored."""
    fine, absent = [], []
    for name, pinned in {**pins, **optional}.items():
        found = machine.installed(name)
        if found is None and name in pins:
            yield ("packages", WRONG, f"{name} {pinned} is not installed (pip install {name}=={pinned})")
        elif found is None:
            absent.append(name)
        elif machine.plain(found) == machine.plain(pinned):
            fine.append(name)
        else:
            yield (
                "packages",
                WRONG,
                f"{name} {machine.plain(found)} is installed, and the bundle needs {pinned}",
            )
    if fine:
        yield ("packages", FINE, f"{len(fine)} with the version that the target pins: {', '.join(fine)}")
    if absent:
        yield ("packages", NOTE, f"not installed, and only some runs need them: {', '.join(absent)}")


def torch() -> Iterator[Entry]:
    """Entries about the build of torch, the driver, each GPU, and the tools that compile extensions."""
    try:
        import torch as library
    except ImportError as error:
        if find_spec("torch") is not None:  # the entries about packages report a missing torch
            yield ("torch", WRONG, f"cannot be imported: {str(error).splitlines()[0]}")
        return
    yield ("torch", FINE, f"{library.__version__}, {_build(library)}")
    if library.cuda.is_available():
        for index in range(library.cuda.device_count()):
            yield _gpu(library, index)
    else:
        found = os.path.exists("/proc/driver/nvidia/version")
        what = "torch sees no GPU" + machine.no_gpu_reason()
        yield ("gpu", WRONG if found else NOTE, what + ("" if found else "; runs with `hardware cpu` only"))
    missing = deepspeed.missing(cuda=library.cuda.is_available())
    if missing:
        yield ("compiler", NOTE, f"{'; '.join(missing)}: DeepSpeed cannot compile its Adam for GPUs")
    else:
        yield ("compiler", FINE, "ninja and a C++ compiler" + (", nvcc" if library.cuda.is_available() else ""))


def locks() -> Iterator[Entry]:
    """Entries about locks that a killed compilation of an extension has left. torch waits forever for such locks
    (torch/utils/file_baton.py).
    """
    cache = os.path.expanduser(user_caches())
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions"))
    for one in sorted(root.glob("**/lock")):
        hours = (time.time() - one.stat().st_mtime) / 3600 if one.exists() else 0.0
        if hours > COMPILING:
            what = f"runs wait for {one}, the lock of a compilation that began {hours:.1f} hours ago"
            yield ("compiler", WRONG, f"{what}; if no compilation is running, remove the file")


def _build(library: object) -> str:
    cuda = getattr(getattr(library, "version", None), "cuda", None)
    return f"built for CUDA {cuda}" if cuda else "built without CUDA"


def _gpu(library: object, index: int) -> Entry:
    cuda = library.cuda  # type: ignore[attr-defined]
    facts = cuda.get_device_properties(index)
    what = f"GPU {index}, {facts.name}, compute capability {facts.major}.{facts.minor}"
    if not machine.has_kernels(cuda.get_arch_list(), facts.major, facts.minor):
        return ("gpu", WRONG, f"{what}: this build of torch has no kernels for it")
    try:
        free, total = cuda.mem_get_info(index)
    except RuntimeError as error:
        return ("gpu", WRONG, f"{what}, cannot be used: {str(error).splitlines()[0]}")
    return ("gpu", FINE, f"{what}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")


def folders() -> Iterator[Entry]:
    """Entries about the folders that a run reads and writes: whether they are writable, and their free space."""
    home = os.path.expanduser(hub_home())
    for what, place in (("here", os.getcwd()), ("HF_HOME", home), ("temporary files", tempfile.gettempdir())):
        standing, _ = shared_folder.nearest_existing(place)
        if not os.access(standing, os.W_OK):
            yield ("disk", WRONG, f"{what}: {place} cannot be written to")
            continue
        free = shutil.disk_usage(standing).free / 2**30
        state = NOTE if free < LOW and what != "temporary files" else FINE
        yield ("disk", state, f"{what}: {free:.1f} GiB free in {place}")


def variables() -> Iterator[Entry]:
    """Entries about environment variables: which secrets are set (never their values), and variables with paths of
    files.
    """
    login = os.environ.get("HF_TOKEN_PATH") or os.path.expanduser(os.path.join(hub_home(), "token"))
    for name in SECRETS:
        where = "set" if os.environ.get(name) else "not set"
        if name == "HF_TOKEN" and where == "not set" and os.path.isfile(login):
            where = "not set, but `hf auth login` has stored a token"
        yield ("tokens", FINE, f"{name} is {where}")
    for name in SWITCHES:
        if name in os.environ:
            yield ("variables", NOTE, f"{name} is {os.environ[name]!r}")


if __name__ == "__main__":
    sys.exit(main())
