"""Data folders: the files of a split, the splits of a folder, and findings about many files of one folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve
from xpc.runtime.features.rows import split_files

REPORTED = 3
"""If a rule has findings about many files of a folder, only this many of them are shown."""
KINDS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}
"""Maps file endings to the reader of the datasets library for such files."""


@lru_cache(maxsize=64)  # cached, because every rule about rows calls this function
def of_split(names: tuple[str, ...], split: str) -> tuple[str, ...]:
    """The files of a folder that belong to a split, sorted. `names` are the paths of all files, relative to the
    folder.
    """
    return tuple(split_files.of_split(names, split))


def splits(names: tuple[str, ...]) -> list[str]:
    """The splits, such as `train`, that occur in the names of the files in a folder."""
    shards = {found[1] for name in names if (found := split_files.SHARD.fullmatch(name))}
    return sorted(shards) if shards else [split for split in split_files.KEYWORDS if of_split(names, split)]


def kinds(names: Sequence[str]) -> set[str]:
    """The readers of the datasets library, such as `json`, that the given files need."""
    return {KINDS[name[name.rfind(".") :].lower()] for name in names}


def fewer(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Shorten findings that repeat each other. Of a rule's findings about files of one folder, at most three are kept;
    the message of the last one says how many were dropped.
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
