"""Compute a digest of a bundle. When a job starts, it checks with this digest that its folder still contains the job's
own bundle.

A job may wait for days before it starts, and in the meantime another bundle may be written into its folder.
`run.sha256` lists the files that run, in sha256sum's format, and the scheduler's file contains the digest of this list.
The README, the spec, bundle.toml and the schedulers' own files are not listed, because they do not change what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from xpc.compiler.files.digest import sha256
from xpc.grammar.package_data import read_text

LIST = "run.sha256"
NOT_RUN = ("README.md", "model_card.md", "model_card_merged.md", "spec.xp")
LATER = "data/"
"""The prefix of the paths of data files. `run.sha256` does not list data files, because the run checks the digest of
each data file when it reads the file.
"""


def listed(files: Mapping[str, bytes]) -> bytes:
    """The text of `run.sha256`, which has a line with the digest of each file that affects the run. The lines are
    sorted by name.
    """
    names = sorted(name for name in files if name not in NOT_RUN and not name.startswith(LATER))
    return "".join(f"{pin(files[name])}  {name}\n" for name in names).encode()


@lru_cache(maxsize=256)  # cached, because the members of a sweep have the same trainer files
def pin(data: bytes) -> str:
    """The SHA-256 of a file's contents, in 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def check(digest: str, bundle: str, file: str) -> str:
    """Shell lines that compare the bundle in the folder `bundle` (a shell expression) with this digest. If they differ,
    the script ends with an error.
    """
    return read_text(__file__, "pin.sh").format(pin=digest, bundle=bundle, file=file)
