"""Each golden file of diagnostics has the output that the compiler prints today. Each case has one golden file, and no
golden file is without a case.
"""

import os

import pytest
from rule_cases import CASES, PREVIEWED, SYNTAX

from tests.golden_diagnostics import FOLDER, SEPARATOR, golden
from xpc.compiler.language.codes import CODES
from xpc.compiler.rules import every

EVERY = (*SYNTAX, *CASES)


def kept(case):
    with open(os.path.join(FOLDER, f"{case.title}.txt"), encoding="utf-8", newline="") as handle:
        return handle.read()


@pytest.mark.parametrize("hundred", sorted({case.code[:3] for case in EVERY}))
def test_every_golden_is_the_printed_diagnostic(hundred):
    cases = [case for case in EVERY if case.code.startswith(hundred)]
    assert not [case.title for case in cases if case.code not in kept(case).partition(f"\n{SEPARATOR}\n")[2]]
    other = {case.title: output for case in cases if (output := golden(case)) != kept(case)}
    assert other == {case.title: kept(case) for case in cases if case.title in other}, "make golden writes them anew"


def test_no_orphan_and_none_missing():
    names = set(os.listdir(FOLDER))
    assert names == {f"{case.title}.txt" for case in EVERY}
    shown = {name[:5] for name in names}
    assert not {*CODES, *(rule.code for rule in every())} - shown - {*PREVIEWED}
