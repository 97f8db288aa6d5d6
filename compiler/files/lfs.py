"""Git LFS pointers: short texts that git stores instead of large files. In a checkout without LFS, a file contains its
pointer.
"""

from __future__ import annotations

import re

POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n"
)
MOST = 1024
"""Maximum size in bytes of a pointer, according to the specification of Git LFS."""


def pointer(data: bytes) -> tuple[str, int] | None:
    """The digest and the size of the file that a Git LFS pointer stands for. None if `data` is not a pointer."""
    found = POINTER.fullmatch(data) if len(data) <= MOST and data.startswith(b"version ") else None
    return None if found is None else (found[1].decode(), int(found[2]))
