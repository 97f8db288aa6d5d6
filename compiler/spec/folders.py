"""Data folders: which files belong to a split, by the rules of the datasets library.

The library looks only at names (datasets 5.2 and 5.0 `data_files.py`, `_get_data_files_patterns`): first for shards
`data/SPLIT-00000-of-00001.*`, then for the word of a split in the names of folders, then in the names of files. All
files of a folder without any of these belong to the split `train`. The runtime does the same
(runtime/features/rows/split_files.py); a test compares the library, the runtime and this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve

KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Words for a split in the name of a file or folder."""
IGNORED = ("README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
"""Files of a folder that contain no data."""
SHARD = re.compile(r"data/(.+)-\d{5}-of-\d{5}[^/]*\.[^/]*")
TOLD = 3
"""The most files of a folder that one rule reports."""
KINDS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
"""The reader of each file ending."""


@lru_cache(maxsize=64)  # every rule about rows calls it
def of_split(names: tuple[str, ...], split: str) -> tuple[str, ...]:
    """The files of a folder that belong to a split, sorted. `names` are relative to the folder."""
    names = tuple(sorted(names))
    shards = {name: found[1] for name in names if (found := SHARD.fullmatch(name))}
    if shards:
        return tuple(name for name in names if shards.get(name) == split)
    words = KEYWORDS.get(split, (split,))
    known = _has(*words, *(word for several in KEYWORDS.values() for word in several))
    for parts in (slice(-1), slice(-1, None)):  # first the names of the folders around a file, then its own name
        if any(known(part) for name in names for part in name.split("/")[parts]):
            has = _has(*words)
            return tuple(one for one in names if any(has(part) for part in one.split("/")[parts]))
    return names if split == "train" else ()


def _has(*words: str) -> Callable[[str], object]:
    """A function that tests whether a name contains the word of a split, separated by signs or digits from the rest."""
    return re.compile(rf"(?:^|[-._ 0-9])(?:{'|'.join(map(re.escape, words))})(?:[-._ 0-9]|$)").search


def splits(names: tuple[str, ...]) -> list[str]:
    """The splits that the names of a folder's files contain."""
    shards = {found[1] for name in names if (found := SHARD.fullmatch(name))}
    return sorted(shards) if shards else [split for split in KEYWORDS if of_split(names, split)]


def kinds(names: Sequence[str]) -> set[str]:
    """The names of the readers that these files need, such as `json`."""
    return {KINDS[name[name.rfind(".") :].lower()] for name in names}


def fewer(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The problems without those that a rule repeats for more than three files of a folder."""
    alike: dict[object, list[Diagnostic]] = {}
    for one in problems:
        alike.setdefault((one.code, one.severity, one.primary), []).append(one)
    out = []
    for several in alike.values():
        out += several[:TOLD]
        more = len(several) - TOLD
        if more > 0:
            out[-1] = evolve(out[-1], message=f"{out[-1].message}; {more:,} more like this")
    return out
