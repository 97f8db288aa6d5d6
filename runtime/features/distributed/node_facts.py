"""The facts that the nodes exchange, and the differences between nodes that stop a run."""

import os
import platform
import socket
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...core import bundle_integrity, machine
from ...core.bundle import DECISIVE, manifest_digests
from ...core.feature import Bundle

SHOWN = 3
"""A finding names at most this many files; further files are only counted."""


def local_facts(bundle: Bundle) -> dict[str, object]:
    """This node's facts, ready for JSON."""
    return {
        "host": socket.gethostname(),
        "digest": bundle.digest,
        "files": contents(bundle),
        "versions": versions(bundle),
        "output": bundle.output_dir,
    }


def contents(bundle: Bundle) -> dict[str, str]:
    """The digests of this node's copy of the bundle: of the files that bundle.toml lists, and of every Python module.

    Data files are not hashed here, because they are compared with bundle.toml when they are read.
    """
    digests = manifest_digests(bundle.folder)
    names = {*digests, *DECISIVE, "requirements.txt", "bundle.toml"}
    trainer = str(Path(os.path.abspath(__file__)).parents[2])
    found = {}
    for name in sorted(names):
        if name.startswith(bundle_integrity.CHECKED_LATER):
            found[name] = digests[name]
        elif os.path.isfile(os.path.join(bundle.folder, name)):
            found[name] = bundle_integrity.digest(os.path.join(bundle.folder, name))
    for name in bundle_integrity.modules(trainer):
        found["trainer" + name[name.index("/") :]] = bundle_integrity.digest(
            os.path.join(trainer, *name.split("/")[1:])
        )
    return found


def versions(bundle: Bundle) -> dict[str, str]:
    """Versions of Python, the installed pinned packages, and torch's CUDA and NCCL."""
    found = {"Python": ".".join(map(str, sys.version_info[:2])), "machine": platform.machine()}
    for name in bundle.pins:
        found[name] = machine.installed(name) or "none"
    if not bundle.on_cpu and found.get("torch") != "none":
        import torch

        found["torch's CUDA"] = str(torch.version.cuda)
        if torch.cuda.is_available():
            found["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def total(files: Mapping[str, str]) -> str:
    """One short digest for all files of a bundle."""
    text = "".join(f"{name}\0{one}\n" for name, one in sorted(files.items()))
    return "sha256:" + sha256(text.encode()).hexdigest()[:16]


def differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """A sentence for each difference in files or versions between two nodes. Any difference stops the run."""
    problems = []
    mine, theirs = dict(first["files"]), dict(other["files"])
    names = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    if names:
        listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        what = "the files" if len(names) > 1 else "the file"
        problems.append(
            f"its bundle is {total(theirs)}, that of node 0 is {total(mine)}: {what} {listed} {_verb(names)}"
        )
    for name, version in sorted(first["versions"].items()):
        found = other["versions"].get(name, "none")
        if found != version:
            problems.append(f"{name} is {found}, and {version} on node 0")
    return problems


def _verb(names: list[str]) -> str:
    return "differ" if len(names) > 1 else "differs"
