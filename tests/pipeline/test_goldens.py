"""Each golden file of diagnostics has the output that the compiler prints today. Each case has one golden file, and no
golden file is without a case.
"""

import os

import pytest
from rule_cases import CASES, PREVIEWED, SYNTAX

from tests.golden_diagnostics import FOLDER, SEPARATOR, golden, kept
from xpc.compiler.language.codes import CODES
from xpc.compiler.rules import every

EVERY = (*SYNTAX, *CASES)
FIRST = {case.code: case.title for case in reversed(CASES)}
"""Maps each code to the title of its first case. tests/rules/core/test_rules.py compares the golden file of this case
in every tier.
"""
OTHERS = [case for case in EVERY if FIRST.get(case.code) != case.title]


@pytest.mark.parametrize("hundred", sorted({case.code[:3] for case in OTHERS}))
def test_every_golden_is_the_printed_diagnostic(hundred):
    cases = [case for case in OTHERS if case.code.startswith(hundred)]
    other = {case.title: output for case in cases if (output := golden(case)) != kept(case)}
    assert other == {case.title: kept(case) for case in cases if case.title in other}, "`make golden` rewrites them"


def test_every_golden_shows_its_code():
    assert not [case.title for case in EVERY if case.code not in kept(case).partition(f"\n{SEPARATOR}\n")[2]]


def test_each_case_and_code_has_a_golden_file():
    names = set(os.listdir(FOLDER))
    assert names == {f"{case.title}.txt" for case in EVERY}
    shown = {name[:5] for name in names}
    assert not {*CODES, *(rule.code for rule in every())} - shown - {*PREVIEWED}
