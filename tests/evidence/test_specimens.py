"""Each row of specimens.toml describes a past defect: what was wrong, how it was found, and the tests for it. These
tests must exist, and the rules in `codes` must have cases.
"""

import os
import tomllib

import pytest
from compile_support import REPOSITORY
from rule_cases import CASES

with open(os.path.join(os.path.dirname(__file__), "specimens.toml"), "rb") as handle:
    ROWS = tomllib.load(handle)


def test_every_row_is_there():
    groups = {"V": 17, "S": 18, "L": 17, "P": 6}
    assert list(ROWS) == [f"{group}{number + 1}" for group, most in groups.items() for number in range(most)]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_complete_and_its_tests_exist(name):
    row = ROWS[name]
    assert {*row} - {"codes"} == {"what", "how", "found", "tests"}
    assert {*row.get("codes", ())} <= {case.code for case in CASES}
    assert row["how"] in ("run", "read")
    assert row["tests"]
    for one in row["tests"]:
        path, _, test = one.partition("::")
        with open(os.path.join(REPOSITORY, path), encoding="utf-8") as file:
            assert f"\ndef {test}(" in file.read().replace("\nasync def ", "\ndef "), one
