"""Fetch what a run reads from the hub, for machines without a network: ``launch.sh --stage DIR [--wheels]``.

DIR gets ``hub`` (models and tokenizers, in the hub's cache layout), ``rows`` (the rows of each source, as parquet
files), ``wheels`` if requested, and last staged.json, which lists the contents with commits and sizes. Rows are stored
as files because the datasets library, when offline, ignores the requested revision and takes the newest rows in its
cache. After an interruption, the next call continues. A folder without staged.json counts as not staged.
"""

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

if not __package__:
    if __name__ == "__main__":
        sys.path[0] = os.path.dirname(os.path.abspath(__file__))
    __package__ = "trainer"
    _kept, sys.pycache_prefix = sys.pycache_prefix, os.devnull  # read no bytecode of this folder (see __init__.py)
    __import__(__package__)
    sys.pycache_prefix = _kept

from .core import arguments, data_sources, progress
from .core import bundle as bundles
from .core.errors import RunError, findings, first_line, say, stop
from .core.feature import Bundle, Rows, Source
from .core.metrics_file import replace
from .enabled import FEATURES

INDEX = "staged.json"
PICKLES = ("*.bin", "*.pt", "*.pth")
OTHERS = (
    "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx*", "*.ot", "*.tflite", "consolidated*", "coreml/*", "onnx/*",
    "openvino*", "original/*",
)  # fmt: skip
"""Patterns for files with weights in formats that no run reads."""
REQUIREMENTS = {
    "requirements.txt": (),
    "requirements-eval.txt": (),
    "requirements-flash.txt": ("--no-build-isolation", "--no-deps"),
}


def main(folder: str, words: Sequence[str]) -> int:
    """Run the program. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="launch.sh --stage", allow_abbrev=False)
    parser.add_argument("DIR", help="folder for the fetched files; several bundles can share it")
    parser.add_argument("--wheels", action="store_true", help="also fetch the packages, as wheels")
    parser.add_argument("--missing", action="store_true", help="only report what DIR lacks")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(list(words))
    place = os.path.abspath(options.DIR)
    try:
        bundle = bundles.read(folder, FEATURES)
        if options.missing:
            missing = _missing(bundle, place)
            return stop(findings(missing)) if missing else 0
        if options.check:
            return _check(bundle, place)
        # with this variable, this process would read rows from an older stage instead of the hub
        os.environ.pop("XPC_STAGED", None)
        progress.watch()
        _stage(bundle, place, options.wheels)
    except RunError as error:
        return stop(error)
    except KeyboardInterrupt:
        say("stopped; the same command continues")
        return 130
    progress.now("")
    # libraries read HF_HUB_OFFLINE only when they are imported, so a new process checks the stage
    check = [sys.executable, os.path.abspath(__file__), place, "--check"]
    offline = {"XPC_STAGED": place, "HF_HUB_CACHE": os.path.join(place, "hub"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(check, env={**os.environ, **offline}, check=False).returncode


def _check(bundle: Bundle, place: str) -> int:
    from .core.first_rows import rows_and_tokens

    arguments.prepare_environment(bundle)
    progress.watch()
    progress.now("reading what was fetched")
    found = rows_and_tokens(bundle)
    if found:
        raise findings(found)
    say(f"{place} is complete; to train without a network: XPC_STAGED={place} ./launch.sh")
    return 0


def _needs(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """The models and rows that the run reads from the hub, by their names in staged.json."""
    models = [bundle.model, bundle.plan["method"]["teacher"]]
    found: dict[str, dict[str, Any]] = {
        f"{one['id']}@{one['revision'] or 'main'}": {"model": one} for one in models if one and one["id"]
    }
    for source in bundle.sources():
        for split in (source["split"], bundle.data["eval_split"] if source in bundle.data["sources"] else None):
            if source["id"] and split:
                found[_name(source, split)] = {"source": source, "split": split}
    return found


def _name(source: Source, split: str) -> str:
    """The name of a hub source's rows in staged.json. The name contains everything that determines the rows."""
    config, part = (f":{source[one]}" if source[one] else "" for one in ("config", "slice"))
    return f"{source['id']}{config}[{split}{part}]@{source['revision'] or 'main'}"


def rows(source: Source, split: str, streaming: bool) -> Rows:
    """The rows of a hub source in $XPC_STAGED. A run with this variable calls this function. Raises RunError."""
    from datasets import load_dataset

    place = os.environ["XPC_STAGED"]
    files = [os.path.join(place, one) for one in _index(place)[_name(source, split)]["files"]]
    found: Rows = load_dataset("parquet", data_files=files, split="train", streaming=streaming)
    return found


def _index(place: str) -> dict[str, Any]:
    """The contents of staged.json; empty if there is no such file. Raises RunError if the file is damaged."""
    path = os.path.join(place, INDEX)
    try:
        with open(path, encoding="utf-8") as handle:
            return {str(name): {**one, "files": dict(one["files"])} for name, one in json.load(handle).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"cannot read {path}: {first_line(error)}") from error


def _missing(bundle: Bundle, place: str) -> list[str]:
    """A sentence for each model and each set of rows that this run needs and ``place`` lacks. Raises RunError."""
    staged, found = _index(place), []
    again = f"run `launch.sh --stage {place}` of this bundle on a machine with a network"
    for name in _needs(bundle):
        files = staged.get(name, {}).get("files")
        others = sorted(one for one in staged if one.partition("@")[0] == name.partition("@")[0])
        if files is None:
            instead = f", and has {', '.join(others)}" if others else ""
            found.append(f"{place} has no {name}{instead}: {again}")
            continue
        damaged = [one for one, size in files.items() if _size(os.path.join(place, one)) != size]
        if damaged:
            found.append(f"in {place}, {damaged[0]} of {name} is missing or cut off: {again}")
    return found


def _stage(bundle: Bundle, place: str, wheels: bool) -> None:
    try:
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, "staged.lock"), "a", encoding="utf-8") as lock:
            with suppress(OSError):  # some network file systems have no locks: run without
                fcntl.flock(lock, fcntl.LOCK_EX)
            if wheels:
                _wheels(bundle, os.path.join(place, "wheels"))
            _fetch(bundle, place)
    except OSError as error:
        raise RunError(f"cannot write to {place}: {error.strerror or error}") from error


def _fetch(bundle: Bundle, place: str) -> None:
    """Download everything that is missing, and list the folder's contents in staged.json."""
    fetched: dict[str, Any] = {}
    with suppress(ImportError):  # if the hub's libraries are missing, the first download reports it
        from .library_internals import progress_bars

        progress_bars.capture(True)
    for name, need in _needs(bundle).items():
        progress.now(f"fetching {name}")
        try:
            done = _model(place, bundle, need["model"]) if "model" in need else _rows(place, bundle, name, **need)
        except RunError:
            raise
        except Exception as error:  # an error of huggingface_hub or of its network library
            raise RunError(f"cannot fetch {name}: {first_line(error)}") from error
        size = sum(done["files"].values()) / 2**20
        say(f"{name}: commit {done['commit']}, {len(done['files'])} files, {size:,.1f} MiB")
        fetched[name] = done
    replace(os.path.join(place, INDEX), [json.dumps({**_index(place), **fetched}, indent=1)])


def _model(place: str, bundle: Bundle, model: Mapping[str, Any]) -> dict[str, Any]:
    """Fetch a model with its tokenizer into a hub cache. There, an interrupted download can continue."""
    from huggingface_hub import snapshot_download

    cache, left = os.path.join(place, "hub"), [*OTHERS, *(() if model.get("pickle") else PICKLES)]
    folder = snapshot_download(model["id"], revision=model["revision"], cache_dir=cache, ignore_patterns=left)
    files = _files(place, folder)
    for other in _code_of_others(folder) if bundle.model["trust_remote_code"] else ():
        files |= _files(place, snapshot_download(other, cache_dir=cache, allow_patterns=["*.py"]))
    return {"commit": os.path.basename(folder), "files": files}


def _code_of_others(folder: str) -> set[str]:
    """The repositories of code that a model's configuration names, in the form "org/name--file.Class"."""
    repos: set[str] = set()
    for name in ("config.json", "tokenizer_config.json"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                repos |= {one.partition("--")[0] for one in _texts(json.load(handle).get("auto_map")) if "--" in one}
    return repos


def _texts(found: object) -> list[str]:
    if isinstance(found, dict | list):
        return [text for one in (found.values() if isinstance(found, dict) else found) for text in _texts(one)]
    return [found] if isinstance(found, str) else []


def _rows(place: str, bundle: Bundle, name: str, source: Source, split: str) -> dict[str, Any]:
    """Fetch the rows of a source as the run would read them from the hub. The folder is renamed when it is complete."""
    from huggingface_hub import HfApi, hf_hub_download

    commit = str(HfApi().dataset_info(str(source["id"]), revision=source["revision"]).sha)
    which = sha256(name.encode()).hexdigest()[:8]
    folder = os.path.join(place, "rows", f"{str(source['id']).replace('/', '--')}-{commit[:12]}-{which}")
    if not os.path.isdir(folder):
        shutil.rmtree(folder + ".part", ignore_errors=True)
        os.makedirs(folder + ".part")
        data_sources.load(bundle, source, split).to_parquet(os.path.join(folder + ".part", "rows.parquet"))
        os.rename(folder + ".part", folder)
    with suppress(Exception):  # a dataset without a card has no licence
        hf_hub_download(str(source["id"]), "README.md", repo_type="dataset", revision=source["revision"],
                        cache_dir=os.path.join(place, "hub"))  # fmt: skip
    return {"commit": commit, "files": _files(place, folder)}


def _wheels(bundle: Bundle, place: str) -> None:
    """Fetch the packages of the requirements files as wheels for this Python and platform."""
    for name, more in REQUIREMENTS.items():
        if os.path.exists(path := bundle.inside(name)):
            words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", *more]
            locked = bundle.inside("constraints.txt")
            progress.now(f"fetching the packages of {name}")
            words += ["--wheel-dir", place, "-r", path, *(["-c", locked] if os.path.exists(locked) else [])]
            if subprocess.run(words, check=False).returncode != 0:
                raise RunError(f"pip built no wheels for {name}; its message is above")
    say(f"wheels: pip install --no-index --find-links {place} -r {bundle.inside('requirements.txt')}")


def _files(place: str, folder: str) -> dict[str, int]:
    """The files below a folder: a dict from their paths, relative to ``place``, to their sizes in bytes."""
    paths = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
    return {os.path.relpath(path, place): os.path.getsize(path) for path in sorted(paths)}


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else -1


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]))
