"""`xpc verify DIR --run OUT`: compare the summary.json of a finished run with its bundle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from xpc.compiler.files.folder_contents import LARGEST, read
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review.installed import pins, plain_version
from xpc.compiler.review.verifying import run_files

SUMMARY = "summary.json"
DECISIVE = ("trainer_args.json", "accelerate.yaml", "deepspeed.json")
"""The files of a bundle whose digests a run records in its summary.json (runtime/core/bundle.py)."""
PLACES = ("deepspeed", "chat_template_path")
"""Arguments whose value is the path of a file in the bundle. A run records the absolute path, so these values are not
compared as texts.
"""
LAUNCH = ("vllm_server_host", "disable_tqdm", "use_cpu", "no_cuda", "_n_gpu")
"""Arguments whose value depends on how the run is launched. They are not compared."""
SHOWN = 60
"""A message shows at most this many characters of an argument's value."""


def verify_run(folder: str, out: str, steps: int | None) -> tuple[str, int]:
    """Return the text to print, and the exit status, which is 1 if the run differs from its bundle. `steps` is the
    expected number of steps, or None if it is unknown.

    Raises UsageError.
    """
    summary, plan = read_json(os.path.join(out, SUMMARY)), read_json(os.path.join(folder, DECISIVE[0]))
    if "arguments" not in summary:
        raise UsageError(f"{out}/{SUMMARY} is from an older bundle and does not record the arguments of the run")
    strange = [f"{SUMMARY} has {name} in another form than a run writes it" for name in _malformed(summary, plan)]
    found = strange[:1] or [*_differences(folder, summary, plan, steps), *run_files.differences(out, summary)]
    if found:
        return "".join(f"{line}\n" for line in [*found, f"the run in {out} differs from the bundle {folder}"]), 1
    tokens = summary.get("tokens")
    amounts = f"{summary['steps']:,} steps, {summary['sequences']:,} sequences"
    if isinstance(tokens, int | float):
        amounts += f", {tokens:,.0f} tokens"
    return f"{out} is what {folder} asks for: {amounts}\n", 0


def _malformed(summary: Mapping[str, Any], plan: Mapping[str, Any]) -> Iterator[str]:
    """The names of values in summary.json that are missing, or whose type is not the type that a run writes. For a
    method that generates, and for a stream of rows, `data` (counts of rows) may be missing.
    """
    counts = ("steps", "sequences", "world")
    yield from (name for name in counts if type(summary.get(name)) is not int)
    yield from (name for name in ("arguments", "versions") if not isinstance(summary.get(name), dict))
    uncounted = plan["method"]["generates"] or plan["data"].get("streaming")
    if not (uncounted and summary.get("data") is None) and not isinstance(summary.get("data"), dict):
        yield "data"
    versions = summary.get("versions")
    if isinstance(versions, dict) and not all(isinstance(one, str | None) for one in versions.values()):
        yield "versions"


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON object that a run or the compiler wrote. Raises UsageError."""
    try:
        found = json.loads(read(path, LARGEST).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read; a run writes it when it ends") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not a summary of a run")
    return found


def _differences(folder: str, summary: Mapping[str, Any], plan: Mapping[str, Any], steps: int | None) -> Iterator[str]:
    run, arguments, seen = plan["run"], plan["arguments"], summary["arguments"]
    if summary.get("bundle") != bundle_digest(folder):
        yield "the run used another bundle: the digest in its summary differs from this bundle's"
    if summary.get("world") != run["world_size"]:
        yield f"{summary.get('world')} processes, but the bundle asks for {run['world_size']}"
    expected = arguments["max_steps"] if arguments.get("max_steps", -1) > 0 else steps
    early = run.get("patience") is not None and expected is not None and summary["steps"] < expected
    excluded = (summary.get("data") or {}).get("left_out")
    if expected is not None and summary.get("steps") != expected and not (excluded or early):
        yield f"{summary.get('steps')} steps, but the bundle asks for {expected}"
    if summary.get("sequences") != summary["steps"] * run["gbs"]:
        yield f"{summary.get('sequences')} sequences, but {summary.get('steps')} steps have {run['gbs']} each"
    for name, version in sorted(pins(os.path.join(folder, "requirements.txt")).items()):
        there = summary["versions"].get(name)
        if plain_version(there) != version:
            yield f"{name} {there or 'was not installed'}, but the bundle pins {version}"
    for name, value in arguments.items():
        # access tokens are not compared, because a run does not record them
        if name in LAUNCH or name.endswith("_token") or name not in seen:
            continue
        if not same_argument(name, value, seen[name]):
            yield f"{name} was {_cut(seen[name])}, but the bundle states {_cut(value)}"


def same_argument(name: str, stated: object, seen: object) -> bool:
    """Whether a value that a run recorded equals the bundle's value. The notation may differ: a run records paths as
    absolute paths, and some enums and numbers as strings.
    """
    if name in PLACES and stated and seen:
        return os.path.basename(str(stated)) == os.path.basename(str(seen))
    if name == "report_to":
        return _trackers(stated) == _trackers(seen)
    # the recorded value may have more keys: the library's dataclass adds its defaults
    if isinstance(stated, dict) and isinstance(seen, dict):
        return all(key in seen and same_argument(key, value, seen[key]) for key, value in stated.items())
    # if the bundle states a list with one loss, trl stores only the loss: `[sigmoid]` becomes `sigmoid`
    if isinstance(stated, list) and len(stated) == 1 and not isinstance(seen, list):
        return same_argument(name, stated[0], seen)
    if isinstance(stated, bool) or isinstance(seen, bool) or stated is None or seen is None:
        return stated == seen or (stated is None and seen in ([], {}, ""))
    if isinstance(stated, int | float) and isinstance(seen, int | float):
        return float(stated) == float(seen)
    return stated == seen or str(stated) == str(seen)


def _trackers(value: object) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [str(one) for one in listed if one not in (None, "none")]


def _cut(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def bundle_digest(folder: str) -> str:
    """The digest of a bundle on disk, as a run computes it for its summary."""
    return decisive_digest(partial(contents, folder))


def contents(folder: str, name: str) -> bytes | None:
    """The contents of a file in a bundle; None if it cannot be read."""
    try:
        return read(os.path.join(folder, name))
    except OSError:
        return None


def decisive_digest(data: Callable[[str], bytes | None]) -> str:
    """The digest of a bundle, as a run records it in summary.json. `data` takes the name of a file and returns its
    contents, or None if the file is missing.
    """
    total = sha256()
    for name in DECISIVE:
        found = data(name)
        if found is not None:
            total.update(name.encode() + b"\0" + sha256(found).digest())
    return "sha256:" + total.hexdigest()
