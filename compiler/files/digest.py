"""Compute SHA-256 of small texts without OpenSSL, because importing `hashlib` loads it, which takes milliseconds.

The digests are the same; for megabytes `hashlib` is faster.
"""

from __future__ import annotations

from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256 as sha256
else:
    try:  # random.py of the standard library does the same from Python 3.12 on
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256  # 3.11
        except ImportError:  # an interpreter built without _sha2
            from hashlib import sha256


def digest(data: bytes) -> str:
    """The digest in the form of manifests: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + sha256(data).hexdigest()


shared_digest = lru_cache(maxsize=256)(digest)
"""`digest` with a cache: the members of a sweep share the trainer and their data."""
