"""Prepared rows in $XPC_PREPARED belong to a call of `Dataset.map`. They are used only if the run makes the same call
on the same rows.
"""

from __future__ import annotations

from typing import Any

import pytest

from xpc.runtime import prepare_rows
from xpc.runtime.core.errors import RunError


class Rows(list[str]):
    """A stand-in for a dataset with one column."""

    column_names = ("text",)
    format = "as stated"


def call(rows: int, *files: str, columns: tuple[str, ...] = ("text",)) -> dict[str, Any]:
    """A call of `Dataset.map` in the form in which the preparation records it."""
    return {"rows": rows, "columns": list(columns), "files": list(files)}


def real(rows: Rows, function: Any = None, **options: Any) -> str:
    return f"mapped here: {len(rows)}"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """Replace the function that reads prepared files by a fake one, which returns "prepared" instead of the rows.
    Return the list of its calls: each is a pair of the files' paths and the rows' format. The list stays empty if every
    call of `Dataset.map` is really made.
    """
    found: list[tuple[list[str], str]] = []
    monkeypatch.setattr(prepare_rows, "_joined", lambda paths, form: found.append((paths, form)) or "prepared")
    return found


def test_each_call_gets_its_own_files_in_order(read: list[tuple[list[str], str]]) -> None:
    mapped = prepare_rows._reading("/there", [call(3, "a-0", "a-1"), call(3), call(2, "b-0")])
    assert mapped(real, Rows("abc"), None) == "prepared"
    assert mapped(real, Rows("abc"), None) == "mapped here: 3"  # the preparation stored no rows for this call
    assert mapped(real, Rows("ab"), None) == "prepared"
    # the preparation was interrupted before it made this call
    assert mapped(real, Rows("abc"), None) == "mapped here: 3"
    assert read == [(["/there/a-0", "/there/a-1"], "as stated"), (["/there/b-0"], "as stated")]


def test_a_call_inside_another_call_has_no_files(read: list[tuple[list[str], str]]) -> None:
    def nested(rows: Rows, function: Any = None, **options: Any) -> Any:
        return mapped(real, Rows("ab"), None)

    mapped = prepare_rows._reading("/there", [call(3), call(2, "b-0")])
    assert mapped(nested, Rows("abc"), None) == "mapped here: 2"
    assert mapped(real, Rows("ab"), None) == "prepared"


@pytest.mark.parametrize("recorded", [call(4, "a-0"), call(3, "a-0", columns=("prompt",)), call(4)])
def test_rows_of_another_number_or_other_columns_are_not_taken(
    read: list[tuple[list[str], str]], recorded: dict[str, Any]
) -> None:
    mapped = prepare_rows._reading("/there", [recorded])
    with pytest.raises(RunError, match="/there has other rows than this run; delete it"):
        mapped(real, Rows("abc"), None)
    assert not read
