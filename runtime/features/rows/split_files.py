"""Find the files of a data folder that belong to a split, by the rules of the datasets library. Standard library only.

The library looks only at names (datasets 5.2 and 5.0 `data_files.py`, `_get_data_files_patterns`). It tries three kinds
of names in turn: shards ``data/SPLIT-00000-of-00001.*``, split keywords in folder names, split keywords in file names.
If a folder has none of these, all its files are the split ``train``. The compiler uses the same rules.
"""

import os
import re
from collections.abc import Callable, Sequence

KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
IGNORED = ("README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
SHARD = re.compile(r"data/(.+)-\d{5}-of-\d{5}[^/]*\.[^/]*")


def of_split(names: Sequence[str], split: str) -> list[str]:
    """The sorted files of a split; ``names`` are the files of a folder, relative to it."""
    names = sorted(names)
    shards = {name: found[1] for name in names if (found := SHARD.fullmatch(name))}
    if shards:
        return [name for name in names if shards.get(name) == split]
    words = KEYWORDS.get(split, (split,))
    known = _has(*words, *(word for several in KEYWORDS.values() for word in several))
    for parts in (slice(-1), slice(-1, None)):  # keywords in folder names are tried first, then keywords in file names
        if any(known(part) for name in names for part in name.split("/")[parts]):
            has = _has(*words)
            return [one for one in names if any(has(part) for part in one.split("/")[parts])]
    return list(names) if split == "train" else []


def _has(*words: str) -> Callable[[str], object]:
    """Make a function that tests whether a name contains one of the words as a separate word: `my-train1.jsonl`
    contains `train`, but `training` does not.
    """
    return re.compile(rf"(?:^|[-._ 0-9])(?:{'|'.join(map(re.escape, words))})(?:[-._ 0-9]|$)").search


def listed(folder: str, endings: Sequence[str]) -> list[str]:
    """The relative paths of the data files below a folder, without hidden files. Links to folders are not followed."""
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith((".", "__"))]
        for name in names:
            if not name.startswith(".") and name not in IGNORED and os.path.splitext(name)[1].lower() in endings:
                found.append(os.path.relpath(os.path.join(where, name), folder).replace(os.sep, "/"))
    return sorted(found)
