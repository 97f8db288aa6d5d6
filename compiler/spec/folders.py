"""Data folders: find the files that belong to a split, as the datasets library does.

The library looks only at names (datasets 5.2 and 5.0 `data_files.py`, `_get_data_files_patterns`). It looks first for
shards `data/SPLIT-00000-of-00001.*`, then for a word that means a split, such as `train`, in the names of folders, and
then for such a word in the names of files. If no name in a folder mentions a split, all its files belong to the split
`train`. The runtime does the same (runtime/features/rows/split_files.py); a test compares the library, the runtime and
this module.
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
"""For each split, the words that mean it in the name of a file or folder."""
IGNORED = ("README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
"""Names of files in data folders that contain no rows."""
SHARD = re.compile(r"data/(.+)-\d{5}-of-\d{5}[^/]*\.[^/]*")
REPORTED = 3
"""If a rule reports many files of a folder, only this many of the findings are shown."""
KINDS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
"""For each ending of a file, the reader of the datasets library that reads such files."""


@lru_cache(maxsize=64)  # cached, because every rule about rows calls this function
def of_split(names: tuple[str, ...], split: str) -> tuple[str, ...]:
    """The files of a folder that belong to a split, sorted. `names` are relative to the folder."""
    names = tuple(sorted(names))
    shards = {name: found[1] for name in names if (found := SHARD.fullmatch(name))}
    if shards:
        return tuple(name for name in names if shards.get(name) == split)
    words = KEYWORDS.get(split, (split,))
    known = _has(*words, *(word for several in KEYWORDS.values() for word in several))
    # the names of the folders above a file are searched first, and then its own name
    for parts in (slice(-1), slice(-1, None)):
        if any(known(part) for name in names for part in name.split("/")[parts]):
            has = _has(*words)
            return tuple(one for one in names if any(has(part) for part in one.split("/")[parts]))
    return names if split == "train" else ()


def _has(*words: str) -> Callable[[str], object]:
    """Make a function that tests whether a name contains one of the words as a separate word: `my-train1.jsonl`
    contains `train`, and `training` does not.
    """
    return re.compile(rf"(?:^|[-._ 0-9])(?:{'|'.join(map(re.escape, words))})(?:[-._ 0-9]|$)").search


def splits(names: tuple[str, ...]) -> list[str]:
    """The splits, such as `train`, that the names of files in a folder mention."""
    shards = {found[1] for name in names if (found := SHARD.fullmatch(name))}
    return sorted(shards) if shards else [split for split in KEYWORDS if of_split(names, split)]


def kinds(names: Sequence[str]) -> set[str]:
    """The readers of the datasets library, such as `json`, that the given files need."""
    return {KINDS[name[name.rfind(".") :].lower()] for name in names}


def fewer(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Shorten findings that repeat each other. If a rule reports more than three files of a folder, only three findings
    are kept, and the message of the last one counts the others.
    """
    alike: dict[object, list[Diagnostic]] = {}
    for one in problems:
        alike.setdefault((one.code, one.severity, one.primary), []).append(one)
    out = []
    for several in alike.values():
        out += several[:REPORTED]
        more = len(several) - REPORTED
        if more > 0:
            out[-1] = evolve(out[-1], message=f"{out[-1].message}; {more:,} more like this")
    return out
