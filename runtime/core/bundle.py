"""Read the bundle that contains this trainer/ folder. Standard library only, because it runs before heavy imports."""

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from . import FORMAT
from .errors import RunError
from .feature import Bundle, Feature

DECISIVE = ("trainer_args.json", "accelerate.yaml", "deepspeed.json")
"""The files that determine the results of a run. Their digest identifies the run."""
MANIFEST = "bundle.toml"
LARGEST = 16 * 2**20
"""A bundle.toml is read only if it has at most this many bytes."""


def manifest_digests(folder: str, of: str = "files") -> dict[str, str]:
    """The digests of the bundle's files by name; with ``of="weights"``, the digests of local models' files. Empty if
    bundle.toml is missing or unreadable.
    """
    import tomllib

    try:
        with open(os.path.join(folder, MANIFEST), "rb") as handle:
            table = tomllib.loads(handle.read(LARGEST).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    files = table.get(of)
    return {str(name): str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}


def read(folder: str, features: Sequence[Feature]) -> Bundle:
    """Read the bundle in ``folder`` for a run with these features.

    Raises RunError if a file is missing, is unreadable, or has another format version.
    """
    folder = os.path.abspath(folder)
    path = os.path.join(folder, "trainer_args.json")
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON: {error}") from error
    found = plan.get("format") if isinstance(plan, dict) else None
    if found != FORMAT:
        raise RunError(f"trainer_args.json has format {found!r}; this runtime reads format {FORMAT}")
    for name in plan["trainer"]["unused"]:
        value = _at(plan, name)
        if value and value not in ("no", "none", ["none"]):
            raise RunError(f"trainer_args.json sets {name}, but trainer/ has no module for it: compile the spec again")
    return Bundle(folder, plan, _digest(folder), _pins(os.path.join(folder, "requirements.txt")), features)


def _at(plan: Any, path: str) -> object:
    """The value at a dotted path such as "method.name" in nested dicts; None if there is no such path."""
    for name in path.split("."):
        try:
            plan = plan[int(name)] if isinstance(plan, list) else plan[name]
        except (LookupError, TypeError):
            return None
    return plan


def check_world(run: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Raise RunError if the number of processes differs from the bundle's: this would change the global batch."""
    try:
        world = int(environment.get("WORLD_SIZE", "1"))
    except ValueError as error:
        raise RunError(f"WORLD_SIZE is {environment['WORLD_SIZE']!r}; it must be a number of processes") from error
    micro, accumulation, gbs, share = run["micro"], run["accumulation"], run["gbs"], run.get("context_parallel", 1)
    if world != run["world_size"]:
        groups = f"{world} / {share}" if share > 1 else str(world)
        raise RunError(
            f"the launcher started {world} process(es), and {groups} x {micro} sequences x {accumulation} accumulation "
            f"is {world * micro * accumulation / share:g}, not the global batch of {gbs}: this bundle needs "
            f"{run['world_size']} processes"
        )


def _digest(folder: str) -> str:
    paths = [Path(folder, name) for name in DECISIVE]
    parts = [one.name.encode() + b"\0" + sha256(one.read_bytes()).digest() for one in paths if one.exists()]
    return "sha256:" + sha256(b"".join(parts)).hexdigest()


def _pins(path: str) -> dict[str, str]:
    if not os.path.exists(path):
        return {}
    lines = [line.split("#")[0].partition("==") for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return {name.strip(): version.split(";")[0].strip() for name, equals, version in lines if equals}
