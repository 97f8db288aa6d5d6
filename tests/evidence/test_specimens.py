"""Each row of specimens.toml describes a past defect: what was wrong, how it was found, and the tests for it. These
tests must exist.
"""

import os
import tomllib

import pytest
from compile_support import REPOSITORY

with open(os.path.join(os.path.dirname(__file__), "specimens.toml"), "rb") as handle:
    ROWS = tomllib.load(handle)


def test_every_row_is_there():
    assert list(ROWS) == [*(f"V{number}" for number in range(1, 18)), *(f"S{number}" for number in range(1, 19))]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_complete_and_its_tests_exist(name):
    row = ROWS[name]
    assert set(row) == {"what", "how", "found", "tests"}
    assert row["how"] in ("run", "read")
    assert row["tests"]
    for one in row["tests"]:
        path, _, test = one.partition("::")
        with open(os.path.join(REPOSITORY, path), encoding="utf-8") as file:
            assert f"\ndef {test}(" in file.read().replace("\nasync def ", "\ndef "), one
