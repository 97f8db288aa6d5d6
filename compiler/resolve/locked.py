"""Make the parts of a bundle that come from a lock file: a copy of the lock, the list of resolved packages, and the
commits of kernel repositories.
"""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.files.pins import KERNEL, Lock
from xpc.compiler.files.workspace import bundle_name
from xpc.compiler.resolve.lockfile import constraints
from xpc.compiler.stacks import Stack


def copies(lock: Lock, reads: Mapping[str, str]) -> dict[str, bytes]:
    """The files that a bundle gets from a lock file: a copy of the lock, and the list of packages. Because of the
    copied lock, the spec in the bundle compiles to the same bundle again.

    `reads` are the digests of the files that were read. While the lock itself is being made, there is no lock to copy,
    so the result is empty.
    """
    if not lock.text:
        return {}
    out = {"files/" + bundle_name(lock.name, reads[lock.name]): lock.text}
    packages = constraints(lock)
    return out if packages is None else {**out, "constraints.txt": packages}


def kernels(lock: Lock, attention: str, stack: Stack) -> dict[str, str]:
    """Map the kernel repository that replaces flash-attn to its locked commit. Empty if the run uses no such
    repository, or if the lock does not pin it.
    """
    repository = stack.facts.flash_kernels.get(attention)
    if repository is None:
        return {}
    id, _, branch = repository.partition("@")
    pin = lock.find(KERNEL, id, branch)
    return {} if pin is None else {id: pin.revision}
