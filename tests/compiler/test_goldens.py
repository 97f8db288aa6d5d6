"""The goldens say what the compiler says; none is missing, none is an orphan."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from golden_diagnostics import FOLDER, SEPARATOR, golden
from rule_cases import CASES, SYNTAX

from xpc.compiler.language.codes import CODES
from xpc.compiler.rules import every

EVERY = (*SYNTAX, *CASES)


@pytest.mark.parametrize("case", EVERY, ids=[case.title for case in EVERY])
def test_golden(case):
    with open(os.path.join(FOLDER, f"{case.title}.txt"), encoding="utf-8", newline="") as handle:
        kept = handle.read()
    assert golden(case) == kept, "make golden writes the goldens anew"
    assert case.code in kept.partition(f"\n{SEPARATOR}\n")[2]


def test_no_orphan_and_none_missing():
    names = set(os.listdir(FOLDER))
    assert names == {f"{case.title}.txt" for case in EVERY}
    shown = {name[:5] for name in names}
    assert not {*CODES, *(rule.code for rule in every())} - shown
