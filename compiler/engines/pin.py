"""The digest of what a bundle runs, by which a job knows its bundle when it starts.

A job may wait for days, and the folder that it was submitted from may hold another run by then. `run.sha256` lists the
files that run, as sha256sum does, and a file that is handed to a scheduler names the digest of that list. The README,
the spec and bundle.toml are not in it, nor the schedulers' own files: they change what is told and not what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from xpc.compiler.files.digest import sha256

LIST = "run.sha256"
NOT_RUN = ("README.md", "model_card.md", "model_card_merged.md", "spec.xp")
LATER = "data/"
"""Rows are compared with their digests when they are read."""

CHECK = """\
if ! printf '%s  %s\\n' {pin} "{bundle}/run.sha256" | sha256sum --check --status; then
  echo "{file}: the run in {bundle} is another than the one that was submitted: submit it anew" >&2
  exit 1
fi
if ! (cd -- "{bundle}" && sha256sum --check --quiet run.sha256 2>/dev/null) >&2; then
  echo "{file}: files in {bundle} were changed since they were compiled: compile the spec again" >&2
  exit 1
fi
"""


def listed(files: Mapping[str, bytes]) -> bytes:
    """`run.sha256`: the digests of the files that run, by name."""
    names = sorted(name for name in files if name not in NOT_RUN and not name.startswith(LATER))
    return "".join(f"{pin(files[name])}  {name}\n" for name in names).encode()


@lru_cache(maxsize=256)  # a sweep hands in the trainer's files as often as it has members
def pin(data: bytes) -> str:
    """The digest of a file, in 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def check(digest: str, bundle: str, file: str) -> str:
    """Lines of a shell that end it where `bundle`, a folder as the shell names it, is not the run of the digest."""
    return CHECK.format(pin=digest, bundle=bundle, file=file)
