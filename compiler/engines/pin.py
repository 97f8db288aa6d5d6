"""Compute the digest by which a starting job recognizes its bundle.

A job may wait for days, and by then its folder may contain another bundle. `run.sha256` lists the files that run, in
sha256sum's format, and a scheduler's file contains the digest of that list. The README, the spec, bundle.toml and the
schedulers' own files are not listed, because they do not change what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from xpc.compiler.files.digest import sha256
from xpc.grammar.package_data import read_text

LIST = "run.sha256"
NOT_RUN = ("README.md", "model_card.md", "model_card_merged.md", "spec.xp")
LATER = "data/"
"""The prefix of data files, which `run.sha256` does not list, because they are compared with their digests when they
are read.
"""


def listed(files: Mapping[str, bytes]) -> bytes:
    """The text of `run.sha256`: a line with the digest of each file that affects the run, sorted by name."""
    names = sorted(name for name in files if name not in NOT_RUN and not name.startswith(LATER))
    return "".join(f"{pin(files[name])}  {name}\n" for name in names).encode()


@lru_cache(maxsize=256)  # cached, because the members of a sweep have equal trainer files
def pin(data: bytes) -> str:
    """The SHA-256 of a file's contents, in 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def check(digest: str, bundle: str, file: str) -> str:
    """Shell lines that exit if the bundle in the folder `bundle` (a shell expression) does not have this digest."""
    return read_text(__file__, "pin.sh").format(pin=digest, bundle=bundle, file=file)
