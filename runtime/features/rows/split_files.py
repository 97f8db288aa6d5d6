"""Data folders: which files of one belong to a split, as the datasets library tells them apart. Standard library only.

The library looks at names alone (datasets 5.2 and 5.0 `data_files.py`, `_get_data_files_patterns`): first for shards
``data/SPLIT-00000-of-00001.*``, then for a word of a split in the names of folders, then in the names of files; a
folder without any is one split, ``train``. What compiled the bundle does the same.
"""

import os
import re
from collections.abc import Sequence

KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
IGNORED = ("README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
SHARD = re.compile(r"data/(.+)-\d{5}-of-\d{5}[^/]*\.[^/]*")


def of_split(names: Sequence[str], split: str) -> list[str]:
    """The files of a split among the files of a folder, which are named relative to it; sorted."""
    names = sorted(names)
    shards = {name: found[1] for name in names if (found := SHARD.fullmatch(name))}
    if shards:
        return [name for name in names if shards.get(name) == split]
    words = KEYWORDS.get(split, (split,))
    known = {*words, *(word for several in KEYWORDS.values() for word in several)}
    for parts in (slice(-1), slice(-1, None)):  # the folders that a file lies in, then its own name
        if any(_has(part, word) for name in names for part in name.split("/")[parts] for word in known):
            return [one for one in names if any(_has(part, word) for part in one.split("/")[parts] for word in words)]
    return list(names) if split == "train" else []


def _has(part: str, word: str) -> bool:
    return re.search(rf"(?:^|[-._ 0-9]){re.escape(word)}(?:[-._ 0-9]|$)", part) is not None


def listed(folder: str, endings: Sequence[str]) -> list[str]:
    """The data files below a folder by their names in it, without what is hidden; links to folders are not followed."""
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith((".", "__"))]
        for name in names:
            if not name.startswith(".") and name not in IGNORED and os.path.splitext(name)[1].lower() in endings:
                found.append(os.path.relpath(os.path.join(where, name), folder).replace(os.sep, "/"))
    return sorted(found)
