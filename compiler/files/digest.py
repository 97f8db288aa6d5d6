"""Compute the SHA-256 of small texts without `hashlib`, because importing `hashlib` loads OpenSSL, which takes
milliseconds.

The digests are those of `hashlib`. For megabytes of data, `hashlib` is faster.
"""

from __future__ import annotations

from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256 as sha256
else:
    try:
        # `_sha2` is a private module, but the module `random` of Python 3.12 imports it, too
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256  # Python 3.11
        except ImportError:  # a Python that was built without both modules
            from hashlib import sha256


def digest(data: bytes) -> str:
    """The SHA-256 digest as manifests write it: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + sha256(data).hexdigest()


shared_digest = lru_cache(maxsize=256)(digest)
"""Compute a digest (see `digest`) and cache it. This saves time for a sweep, whose members share the trainer and the
data files.
"""
