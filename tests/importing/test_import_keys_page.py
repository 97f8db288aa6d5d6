"""docs/import-keys.md is up to date: it is what keys_page.py generates from the importers' tables."""

from __future__ import annotations

import os

from import_support import REPOSITORY
from keys_page import page


def test_the_page_of_keys_is_of_the_tables() -> None:
    with open(os.path.join(REPOSITORY, "docs", "import-keys.md"), encoding="utf-8") as handle:
        assert handle.read() == page(), "make docs"
