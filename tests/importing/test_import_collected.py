"""Results of imports were measured on public files. A committed list has the repositories, paths and blob ids of these
files, but not their contents.
"""

from __future__ import annotations

import os
import re

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "collected_files.txt")


def test_list_has_blobs_of_many_repositories() -> None:
    with open(LIST, encoding="utf-8") as handle:
        head, *lines = handle.read().splitlines()
    assert head.startswith("# Public files")
    rows = [line.split("\t") for line in lines]
    assert all(len(row) == 4 and re.fullmatch("[0-9a-f]{40}", row[2]) for row in rows)
    assert len({row[0] for row in rows}) >= 60
    assert {row[3] for row in rows} == {"trl-yaml", "trl-sh", "trl-py", "lf", "lf-sh", "axolotl"}
