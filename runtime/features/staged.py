"""What `launch.sh --stage DIR` has fetched for a run: read from there where XPC_STAGED names DIR, and no hub is asked.

DIR holds ``hub`` (models and tokenizers, a cache of the hub's own kind), ``rows`` (of each source, as parquet), and
staged.json, which names what is there whole, with its commit and the sizes of its files. The datasets library itself
takes, offline, the newest rows that its cache has of a dataset, whatever revision is asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, MutableMapping
from typing import Any

from ..core.bundle import Bundle
from ..core.errors import RunError, first_line

VARIABLE, INDEX = "XPC_STAGED", "staged.json"


def read_there(environment: MutableMapping[str, str]) -> None:
    """Points the libraries to the folder, where one is named."""
    if environment.get(VARIABLE):
        place = environment[VARIABLE] = os.path.abspath(environment[VARIABLE])
        environment.pop("TRANSFORMERS_CACHE", None)  # which transformers before 5 prefers
        environment.update(HF_HUB_CACHE=os.path.join(place, "hub"), HF_HUB_OFFLINE="1")


def needs(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """What the run reads from the hub, by the name that staged.json has for it."""
    models = [bundle.model, bundle.plan["method"]["teacher"]]
    found = {f"{one['id']}@{one['revision'] or 'main'}": {"model": one} for one in models if one and one["id"]}
    for source in bundle.sources():
        for split in (source["split"], bundle.data["eval_split"] if source in bundle.data["sources"] else None):
            if source["id"] and split:
                found[_name(source, split)] = {"source": source, "split": split}
    return found


def _name(source: Any, split: str) -> str:
    part = f"{split}:{source['slice']}" if source["slice"] else split
    config = f":{source['config']}" if source["config"] else ""
    return f"{source['id']}{config}[{part}]@{source['revision'] or 'main'}"


def index(place: str) -> dict[str, Any]:
    """What is there by its name; nothing where nothing is yet. Raises RunError for a staged.json that is none."""
    path = os.path.join(place, INDEX)
    try:
        with open(path, encoding="utf-8") as handle:
            return {str(name): {**one, "files": dict(one["files"])} for name, one in json.load(handle).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"cannot read {path}: {first_line(error)}") from error


def missing(bundle: Bundle) -> list[str]:
    """What the folder lacks for this run, a sentence each. Raises RunError."""
    place = os.environ.get(VARIABLE)
    if not place:
        return []
    there, found = index(place), []
    again = f"`launch.sh --stage {place}` of this bundle fetches it where there is a network"
    for name in needs(bundle):
        files = there.get(name, {}).get("files")
        others = sorted(one for one in there if one.partition("@")[0] == name.partition("@")[0])
        if files is None:
            instead = f", and has {', '.join(others)}" if others else ""
            found.append(f"{place} has no {name}{instead}: {again}")
            continue
        lost = [one for one, size in files.items() if _size(os.path.join(place, one)) != size]
        if lost:
            found.append(f"{place} lacks {lost[0]} of {name}, or it is cut off: {again}")
    return found


def read(of_hub: Callable[..., Any]) -> Callable[..., Any]:
    """What reads the rows of a source: ``of_hub``, or `_rows` where they were staged."""
    return _rows if os.environ.get(VARIABLE) else of_hub


def _rows(bundle: Bundle, source: Any, split: str, streaming: bool) -> Any:
    from datasets import load_dataset

    place, name = os.environ[VARIABLE], _name(source, split)
    if name not in (there := index(place)):
        raise RunError(f"{place} has no {name}")
    files = [os.path.join(place, one) for one in there[name]["files"]]
    return load_dataset("parquet", data_files=files, split="train", streaming=streaming)


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else -1
