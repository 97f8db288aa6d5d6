"""The parts of a lock file that a run uses: a copy of the lock, the resolved packages, and commits of kernels."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.files.bundled import bundle_name
from xpc.compiler.files.pins import KERNEL, Lock
from xpc.compiler.resolve.lockfile import constraints
from xpc.compiler.stacks import Stack


def copies(lock: Lock, reads: Mapping[str, str]) -> dict[str, bytes]:
    """The files that the bundle gets from a lock: a copy of the lock, with which the bundle's own spec compiles to the
    same bundle, and the list of packages.

    `reads` are the digests of the files that were read. The result is empty for a lock that is just being made.
    """
    if not lock.text:
        return {}
    out = {"files/" + bundle_name(lock.name, reads[lock.name]): lock.text}
    packages = constraints(lock)
    return out if packages is None else {**out, "constraints.txt": packages}


def kernels(lock: Lock, attention: str, stack: Stack) -> dict[str, str]:
    """The commit of the kernel repository that is used if flash-attn is not installed."""
    repository = stack.facts.flash_kernels.get(attention)
    if repository is None:
        return {}
    id, _, branch = repository.partition("@")
    pin = lock.find(KERNEL, id, branch)
    return {} if pin is None else {id: pin.revision}
