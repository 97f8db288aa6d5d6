"""docs/coming-from.md has a table of other tools' names for settings. For each such name, `xpc explain NAME` answers
with the setting of xpc in the same row.
"""

from __future__ import annotations

import os
import re

import pytest

from xpc.compiler.language.extras import owner
from xpc.compiler.language.schema import BY_PATH, CLAUSES
from xpc.compiler.suggest.meaning import meaning

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _names() -> list[tuple[str, str, str]]:
    """Every filled cell of the table as a triple: the other tool, the tool's name for the setting, and the setting of
    xpc.
    """
    with open(os.path.join(ROOT, "docs", "coming-from.md"), encoding="utf-8") as handle:
        table = handle.read().partition("## Names side by side")[2].partition("\n## ")[0]
    head, _, *rows = [re.split(r"\s*\|\s*", line.strip("| \n")) for line in table.splitlines() if line.startswith("|")]
    cells = [(dict(zip(head, row, strict=False)), row[0].strip("`")) for row in rows]
    return [
        (tool, name.strip("`"), path) for row, path in cells for tool, name in row.items() if tool != "xpc" and name
    ]


@pytest.mark.parametrize(("tool", "name", "path"), _names())
def test_a_name_of_another_tool_is_answered_with_the_setting_of_the_page(tool: str, name: str, path: str) -> None:
    assert path in BY_PATH or path in CLAUSES
    if (owner("trl", name) or "") == path:
        return
    found = meaning(name)
    assert found is not None, (tool, name)
    assert found.path in (path, f"{path}.name"), (tool, name)


def test_every_setting_of_the_page_has_names() -> None:
    assert len(_names()) > 100
